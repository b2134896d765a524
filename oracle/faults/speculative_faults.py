"""Faults of guessed tokens: which of them stay, and where a request ends among them."""

from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np

from oracle.faults.registry import Area, one_replacement
from refinfer.engine import core as core_module
from refinfer.engine import speculation as speculation_module
from refinfer.engine.core import EngineCore
from refinfer.engine.speculation import Speculation
from refinfer.sampling import SampleContext
from refinfer.scheduler import RequestQueues, RequestState, ScheduledRow
from refinfer.shapes import LogitsRow
from refinfer.speculative import Draft, verify

_take = EngineCore._take  # noqa: SLF001
_propose = Speculation.propose


@one_replacement(
    "every_guess_stays",
    Area.SPECULATIVE,
    "guessed tokens are emitted without being compared to the model's own",
    speculation_module,
    "verify",
    models=None,
    component=("speculative/verifier.py", "engine/speculation.py"),
    needs=("speculation", "rejected guess"),
    seen_by=("greedy", "symbolic", "seeded"),
)
def every_guess_stays(logits: Sequence[LogitsRow], draft: Draft, context: SampleContext) -> list[int]:
    """Trusts the proposer, and has the model say only what comes after."""
    return [*draft.token_ids, *verify(logits[-1:], Draft(), context.after(draft.token_ids))]


@one_replacement(
    "guesses_held_to_the_logits_before",
    Area.SPECULATIVE,
    "each guessed token is held to the logits of the token before the one that it follows",
    speculation_module,
    "verify",
    models=None,
    component=("speculative/verifier.py", "engine/speculation.py"),
    needs=("speculation",),
    seen_by=("greedy", "symbolic", "seeded"),
)
def guesses_held_to_the_logits_before(logits: Sequence[LogitsRow], draft: Draft, context: SampleContext) -> list[int]:
    """Shifts the rows by one."""
    return verify([logits[0], *logits[:-1]], draft, context)


@one_replacement(
    "no_token_after_a_right_guess",
    Area.SPECULATIVE,
    "where every guessed token stays, the token that the model gives after them is dropped",
    speculation_module,
    "verify",
    models=None,
    component=("speculative/verifier.py", "engine/speculation.py"),
    needs=("speculation",),
    seen_by=("symbolic", "state", "contract"),
)
def no_token_after_a_right_guess(logits: Sequence[LogitsRow], draft: Draft, context: SampleContext) -> list[int]:
    """Emits no more tokens than were guessed."""
    return verify(logits, draft, context)[: max(1, len(draft.token_ids))]


@one_replacement(
    "wrong_guess_emitted",
    Area.SPECULATIVE,
    "the first guessed token that is wrong is emitted in place of the model's own",
    speculation_module,
    "verify",
    models=None,
    component=("speculative/verifier.py", "engine/speculation.py"),
    needs=("speculation", "rejected guess"),
    seen_by=("greedy", "symbolic", "seeded"),
)
def wrong_guess_emitted(logits: Sequence[LogitsRow], draft: Draft, context: SampleContext) -> list[int]:
    """Lets it slip through."""
    token_ids = verify(logits, draft, context)
    if len(token_ids) <= len(draft.token_ids):
        token_ids[-1] = draft.token_ids[len(token_ids) - 1]
    return token_ids


@one_replacement(
    "guesses_share_one_position",
    Area.SPECULATIVE,
    "penalties, min_tokens and random numbers of all tokens of a step are those of its first token",
    SampleContext,
    "after",
    models=None,
    component=("sampling/context.py", "speculative/verifier.py"),
    needs=("speculation", "mixed parameters"),
    seen_by=("greedy", "symbolic", "seeded"),
)
def guesses_share_one_position(self: SampleContext, token_ids: Sequence[int]) -> SampleContext:  # noqa: ARG001
    """Forgets the guessed tokens that stayed."""
    return self


@one_replacement(
    "guess_of_another_request",
    Area.SPECULATIVE,
    "the tokens that ran are held to what was guessed for the first request of the step",
    Speculation,
    "verify",
    models=None,
    component=("engine/speculation.py",),
    needs=("speculation", "batch"),
    seen_by=("greedy", "symbolic", "seeded", "lifecycle"),
)
def guess_of_another_request(self: Speculation, row: ScheduledRow, logits: np.ndarray) -> list[int]:
    """Looks up the wrong entry."""
    first = next(iter(self._draft_by_state.values()))
    return verify(list(logits), first.first(len(row.draft_token_ids)), row.state.sample_context(self._eos_token_ids))


@one_replacement(
    "one_guess_at_least",
    Area.SPECULATIVE,
    "a step without any guessed token raises an index error",
    Speculation,
    "propose",
    models=("vllm-project/vllm#7047 (9.09)",),
    component=("engine/speculation.py",),
    needs=("speculation",),
    seen_by=("lifecycle",),
)
def one_guess_at_least(self: Speculation, scheduler: RequestQueues) -> list[Draft]:
    """Looks at the first of them."""
    drafts = _propose(self, scheduler)
    if drafts:
        _ = next(draft.token_ids for draft in drafts if draft.token_ids)
    return drafts


@one_replacement(
    "end_inside_a_guess_missed",
    Area.SPECULATIVE,
    "an end-of-sequence or stop token ends a request only as the last token of a step",
    EngineCore,
    "_take",
    models=("huggingface/transformers#47912 (9.01)", "huggingface/transformers#31301 (9.01)"),
    component=("engine/core.py",),
    needs=("speculation",),
    seen_by=("greedy", "symbolic", "contract"),
)
def end_inside_a_guess_missed(self: EngineCore, state: RequestState, choice: Any) -> Any:
    """Takes the tokens before it as if none of them could end anything."""
    token_ids, logprobs = choice.token_ids, choice.logprobs
    with mock.patch.object(core_module, "finish", return_value=None):
        _take(self, state, choice._replace(token_ids=token_ids[:-1], logprobs=logprobs[:-1]))
    taken = _take(self, state, choice._replace(token_ids=token_ids[-1:], logprobs=logprobs[-1:], prompt_logprobs=[]))
    return taken._replace(num_tokens=len(token_ids))


@one_replacement(
    "logprobs_of_the_last_guess",
    Area.SPECULATIVE,
    "all tokens of a step get the log-probabilities of its last one",
    EngineCore,
    "_take",
    models=("sgl-project/sglang#5761 (14.17)",),
    component=("engine/core.py",),
    needs=("speculation", "logprobs"),
    seen_by=("symbolic", "contract"),
)
def logprobs_of_the_last_guess(self: EngineCore, state: RequestState, choice: Any) -> Any:
    """Repeats the last entry under every token."""
    if len(choice.logprobs) > 1 and choice.logprobs[-1] is not None:
        last = choice.logprobs[-1]
        listed = [
            {token_id: last[choice.token_ids[-1]], **{k: v for k, v in last.items() if k != token_id}}
            for token_id in choice.token_ids
        ]
        choice = choice._replace(logprobs=listed)
    return _take(self, state, choice)


FAULTS = (
    every_guess_stays,
    guesses_held_to_the_logits_before,
    no_token_after_a_right_guess,
    wrong_guess_emitted,
    guesses_share_one_position,
    guess_of_another_request,
    one_guess_at_least,
    end_inside_a_guess_missed,
    logprobs_of_the_last_guess,
)
