"""Faults of guessed tokens: which of them stay, what is kept of the others, and where a request ends among them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from oracle.faults.registry import Area, one_replacement
from refinfer.engine import core as core_module
from refinfer.engine import speculation as speculation_module
from refinfer.engine.core import EngineCore
from refinfer.engine.speculation import Speculation
from refinfer.sampling import SampleContext
from refinfer.scheduler import BlockSpace, RequestQueues, RequestState, ScheduledRow
from refinfer.scheduler.request import held_blocks
from refinfer.shapes import LogitsRow, Probabilities
from refinfer.speculative import Draft, DraftModelProposer, DraftRequest, verifier, verify

_advance = RequestQueues.advance
_preempt = RequestQueues.preempt
_take = EngineCore._take  # noqa: SLF001
_propose = Speculation.propose
_begin = DraftModelProposer._begin  # noqa: SLF001


@one_replacement(
    "every_guess_stays",
    Area.SPECULATIVE,
    "guessed tokens are emitted without being compared to the model's own",
    speculation_module,
    "verify",
)
def every_guess_stays(logits: Sequence[LogitsRow], draft: Draft, context: SampleContext) -> list[int]:
    """Trusts the proposer, and has the model say only what comes after."""
    own = replace(context, output_token_ids=[*context.output_token_ids, *draft.token_ids])
    return [*draft.token_ids, *verify(logits[-1:], Draft(), own)]


@one_replacement(
    "guesses_held_to_the_logits_before",
    Area.SPECULATIVE,
    "each guessed token is held to the logits of the token before the one that it follows",
    speculation_module,
    "verify",
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
    verifier,
    "replace",
)
def guesses_share_one_position(context: SampleContext, **changes: Any) -> SampleContext:  # noqa: ARG001
    """Forgets the guessed tokens that stayed."""
    return context


@one_replacement(
    "guess_of_another_request",
    Area.SPECULATIVE,
    "the tokens that ran are held to what was guessed for the first request of the step",
    Speculation,
    "verify",
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
)
def one_guess_at_least(self: Speculation, scheduler: RequestQueues) -> list[Draft]:
    """Looks at the first of them."""
    drafts = _propose(self, scheduler)
    if drafts:
        _ = next(draft.token_ids for draft in drafts if draft.token_ids)
    return drafts


@one_replacement(
    "rejected_tokens_count_as_computed",
    Area.SPECULATIVE,
    "a request advances past guessed tokens that were rejected",
    RequestQueues,
    "advance",
)
def rejected_tokens_count_as_computed(
    self: RequestQueues, rows: Sequence[ScheduledRow], nums_rejected: Sequence[int] | None = None
) -> None:
    """Advances by all that ran."""
    _advance(self, rows, [0] * len(nums_rejected or rows))


@one_replacement(
    "rejected_tokens_published",
    Area.SPECULATIVE,
    "blocks with keys and values of rejected tokens can be found by their requests' real tokens",
    RequestQueues,
    "advance",
)
def rejected_tokens_published(
    self: RequestQueues, rows: Sequence[ScheduledRow], nums_rejected: Sequence[int] | None = None
) -> None:
    """Publishes one step later what this step wrote, as if all of it had stayed."""
    _advance(self, rows, nums_rejected)
    for row, num_rejected in zip(rows, nums_rejected or [0] * len(rows), strict=True):
        state = row.state
        if num_rejected and self.blocks is not None and len(held_blocks(state).table.block_ids):
            num_computed = state.num_computed_tokens
            num_held = len(held_blocks(state).table.block_ids) * self.blocks.block_size
            state.num_computed_tokens = min(num_computed + num_rejected, state.num_tokens, num_held)
            self.blocks.publish(state)
            state.num_computed_tokens = num_computed


@one_replacement(
    "look_ahead_blocks_lost",
    Area.SPECULATIVE,
    "blocks that only rejected tokens need are taken out of the table and never given back",
    BlockSpace,
    "give_back_look_ahead",
)
def look_ahead_blocks_lost(self: BlockSpace, state: RequestState) -> None:
    """Cuts the table, and nothing else."""
    held_blocks(state).table.cut(-(-state.num_tokens // self.block_size))


@one_replacement(
    "look_ahead_blocks_kept",
    Area.SPECULATIVE,
    "blocks that only rejected tokens need stay reserved",
    BlockSpace,
    "give_back_look_ahead",
)
def look_ahead_blocks_kept(self: BlockSpace, state: RequestState) -> None:
    """Keeps them for later."""


@one_replacement(
    "guess_survives_preemption",
    Area.SPECULATIVE,
    "what was guessed for a request is kept when the step that was to verify it preempts the request",
    RequestQueues,
    "preempt",
)
def guess_survives_preemption(self: RequestQueues, state: RequestState, *, by_swap: bool) -> str:
    """Takes the blocks back and leaves the guess."""
    draft_token_ids = state.draft_token_ids
    how = _preempt(self, state, by_swap=by_swap)
    state.draft_token_ids = draft_token_ids
    return how


@one_replacement(
    "end_inside_a_guess_missed",
    Area.SPECULATIVE,
    "an end-of-sequence or stop token ends a request only as the last token of a step",
    EngineCore,
    "_take",
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


@one_replacement(
    "draft_cache_misses_a_token",
    Area.DRAFTING,
    "the draft model never runs the last token before a guess again, and takes an old value for it",
    DraftModelProposer,
    "_begin",
)
def draft_cache_misses_a_token(self: DraftModelProposer, request: DraftRequest) -> Any:
    """Counts one token as run that has not."""
    guess = _begin(self, request)
    if guess is not None and len(guess.held.token_ids) + 1 < len(request.token_ids):
        guess.held.token_ids.append(request.token_ids[len(guess.held.token_ids)])
    return guess


@one_replacement(
    "draft_cache_shared_by_requests",
    Area.DRAFTING,
    "the draft model keeps the keys and values of all requests as if they were one",
    DraftModelProposer,
    "_begin",
)
def draft_cache_shared_by_requests(self: DraftModelProposer, request: DraftRequest) -> Any:
    """Looks all of them up under one name."""
    return _begin(self, request._replace(key="all"))


@one_replacement(
    "likeliest_token_replaces",
    Area.LAW,
    "after a rejection the likeliest token of the residual comes, instead of one that is drawn",
    verifier,
    "residual",
)
def likeliest_token_replaces(target: Probabilities, drafted: Probabilities) -> Probabilities:
    """Puts all on one token."""
    own = np.maximum(target - drafted, 0.0)
    return np.asarray(np.arange(len(own)) == own.argmax(), dtype=np.float64)


@one_replacement(
    "whole_distribution_replaces",
    Area.LAW,
    "after a rejection a token is drawn from the model's distribution, without taking the draft's away",
    verifier,
    "residual",
)
def whole_distribution_replaces(target: Probabilities, drafted: Probabilities) -> Probabilities:  # noqa: ARG001
    """Takes nothing away."""
    return target


@one_replacement(
    "acceptance_without_the_drafts_probability",
    Area.LAW,
    "a guess stays with the model's probability of it, whatever it was drawn with",
    verifier,
    "acceptance",
)
def acceptance_without_the_drafts_probability(
    target: Probabilities,
    drafted: Probabilities,  # noqa: ARG001
    token_id: int,
) -> float:
    """Leaves the quotient out."""
    return float(target[token_id])


FAULTS = (
    every_guess_stays,
    guesses_held_to_the_logits_before,
    no_token_after_a_right_guess,
    wrong_guess_emitted,
    guesses_share_one_position,
    guess_of_another_request,
    one_guess_at_least,
    rejected_tokens_count_as_computed,
    rejected_tokens_published,
    look_ahead_blocks_lost,
    look_ahead_blocks_kept,
    guess_survives_preemption,
    end_inside_a_guess_missed,
    logprobs_of_the_last_guess,
    draft_cache_misses_a_token,
    draft_cache_shared_by_requests,
    likeliest_token_replaces,
    whole_distribution_replaces,
    acceptance_without_the_drafts_probability,
)
