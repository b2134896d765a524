"""Which checks are there, what does each need of an engine, and what do all of them find in one trial?"""

from collections.abc import Mapping
from dataclasses import dataclass

from oracle.contract.company_checks import check_agreement, check_company, check_samples_differ
from oracle.contract.end_check import check_ends
from oracle.contract.findings import Findings
from oracle.contract.form_check import check_form
from oracle.contract.score_checks import check_prompt_scores, check_scores
from oracle.contract.token_checks import answers, check_tokens, see_effects
from oracle.contract.trial import Trial
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineRun


@dataclass(frozen=True)
class ContractCheck:
    """One thing that an engine is held to.

    Attributes:
        question: What it answers, in one sentence.
        capabilities: One of these is needed; none for a check that needs nothing.
        parameters: One of these is needed, likewise.
        needs_referee: Whether it needs a reference.
    """

    question: str
    capabilities: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    needs_referee: bool = False

    def reason_to_skip(self, declaration: EngineDeclaration, *, has_referee: bool) -> str | None:
        """Tells what an engine lacks for it; None where it lacks nothing."""
        if self.needs_referee and not has_referee:
            return "no reference judges this model"
        if self.capabilities and not set(self.capabilities) & set(declaration.capabilities):
            return f"it shows none of {', '.join(self.capabilities)}"
        if self.parameters and not set(self.parameters) & set(declaration.parameters):
            return f"it takes none of {', '.join(self.parameters)}"
        return None


CHECKS: Mapping[str, ContractCheck] = {
    "alive": ContractCheck("Does it answer every run, without a crash, a hang, an error or a malformed line?"),
    "form": ContractCheck("Is there one output for each request, with tokens and scores that can be such?"),
    "tokens": ContractCheck(
        "Is every token one that its request's own parameters let come, up to rounding?", needs_referee=True
    ),
    "ends": ContractCheck("Does every request end where it should, for the reason it says?", needs_referee=True),
    "scores": ContractCheck(
        "Are log-probabilities and logits the reference's, up to rounding?",
        capabilities=("logprobs", "top_logprobs", "logits"),
        needs_referee=True,
    ),
    "prompt_scores": ContractCheck(
        "Are log-probabilities of the prompt the reference's?",
        capabilities=("prompt_logprobs",),
        needs_referee=True,
    ),
    "alone": ContractCheck("Does a request give the same alone and in company?", capabilities=("batching",)),
    "order": ContractCheck("Does the order of requests change nothing?", capabilities=("batching",)),
    "repeat": ContractCheck("Does the same run give the same once more, on warm caches?"),
    "aborts": ContractCheck("Do aborted neighbours change nothing?", capabilities=("aborts",)),
    "samples": ContractCheck(
        "Do seeded requests draw the same in any company, and samples of one request apart?", parameters=("seed", "n")
    ),
    "law": ContractCheck(
        "Do drawn tokens have the law that the request's parameters give them?",
        parameters=("temperature",),
        needs_referee=True,
    ),
    "agreement": ContractCheck("Does it give what the other engine, or the recording, gives?"),
    "effects": ContractCheck("Did every parameter that was accepted show its effect?", needs_referee=True),
    "refusals": ContractCheck("Is what cannot be run refused, and does the engine go on afterwards?"),
}
"""Every check of the contract, in the order of the report.

Their names are frozen, since files of known deviations use them.
"""


def judge_trial(trial: Trial, findings: Findings, other: EngineRun | None = None) -> None:
    """Lets every check that is about single trials look at one.

    Args:
        trial: The trial.
        findings: Where what they find goes.
        other: What another engine gave for the same requests.
    """
    broken = check_form(trial, findings)
    judged = answers(trial, broken)
    check_tokens(trial, judged, findings)
    check_ends(trial, judged, findings)
    check_scores(judged, findings)
    check_prompt_scores(trial, broken, findings)
    check_company(trial, broken, findings)
    check_samples_differ(trial, broken, findings)
    check_agreement(trial, other, broken, findings)
    see_effects(judged, findings)
