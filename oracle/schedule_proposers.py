"""What guesses tokens in a scenario's engine: a look-up, a script, the model itself, or another one?"""

from collections.abc import Sequence

from oracle.checked_proposer import CheckedProposer
from oracle.engine_spec import SPECULATIVES
from oracle.errors import ScenarioError
from oracle.lone_answer import SampleRun
from oracle.scenario import Scenario
from oracle.scripted_proposer import ScriptedProposer
from oracle.symbolic import EOS_TOKEN_IDS, VOCAB_SIZE
from refinfer.engine import LoadedModel
from refinfer.model import Llama
from refinfer.speculative import DraftModelProposer, NgramProposer, Proposer


def scripted_proposer(
    scenario: Scenario, expected: Sequence[Sequence[SampleRun]], end_token_id: int, vocab_size: int
) -> Proposer:
    """Makes a proposer that knows what every sample gives alone."""
    token_ids_by_answer = {
        (str(place), index): sample.output.token_ids
        for place, samples in enumerate(expected)
        for index, sample in enumerate(samples)
    }
    return ScriptedProposer(token_ids_by_answer, scenario.engine.guesses, end_token_id, vocab_size)


def symbolic_proposer(scenario: Scenario, expected: Sequence[Sequence[SampleRun]]) -> Proposer | None:
    """Makes what guesses tokens; there is no second symbolic model, so a script stands for every model.

    Raises:
        ScenarioError: Nothing guesses under that name.
    """
    match scenario.engine.speculative:
        case None:
            return None
        case "ngram":
            return NgramProposer()
        case "scripted" | "self" | "draft":
            return scripted_proposer(scenario, expected, min(EOS_TOKEN_IDS), VOCAB_SIZE)
        case other:
            raise _nothing_guesses(other)


def model_proposer(
    loaded: LoadedModel,
    scenario: Scenario,
    num_blocks: int,
    expected: Sequence[Sequence[SampleRun]],
    draft_model: Llama | None,
) -> Proposer | None:
    """Makes what guesses tokens; a draft model has as many blocks as the model, so that it runs out of them too.

    Args:
        loaded: The model.
        scenario: How the engine is set up.
        num_blocks: Blocks of the model's own cache.
        expected: What every sample gives alone.
        draft_model: The other model that guesses, where the scenario has one.

    Raises:
        ScenarioError: Nothing guesses under that name.
    """
    engine = scenario.engine
    match engine.speculative:
        case None:
            return None
        case "ngram":
            return NgramProposer()
        case "scripted":
            end_token_id = min(loaded.eos_token_ids, default=0)
            return scripted_proposer(scenario, expected, end_token_id, loaded.model.config.vocab_size)
        case "self":
            model = loaded.model
        case "draft":
            model = loaded.model if draft_model is None else draft_model
        case other:
            raise _nothing_guesses(other)
    proposer = DraftModelProposer(
        model,
        num_blocks=num_blocks,
        block_size=engine.block_size,
        max_num_batched_tokens=engine.max_num_batched_tokens,
    )
    return CheckedProposer(proposer, model) if scenario.batch_invariant else proposer


def _nothing_guesses(speculative: str) -> ScenarioError:
    message = f"nothing guesses for speculative={speculative!r}; choose one of {', '.join(SPECULATIVES)}"
    return ScenarioError(message, speculative=speculative)
