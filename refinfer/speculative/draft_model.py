"""Guesses with a smaller model of the same vocabulary, which keeps a paged cache of its own."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from refinfer.cache import PagedCache, PagedPart
from refinfer.cache.block_pool import BlockPool
from refinfer.cache.block_table import BlockTable
from refinfer.errors import InvariantError, NoTokenLeftError
from refinfer.model import Llama
from refinfer.model.model_input import ModelInput
from refinfer.sampling import sample_token
from refinfer.sampling.logits import probabilities
from refinfer.sampling.sampler import draw_uniform, inverse_cdf_token_id
from refinfer.shapes import LogitsRow, Probabilities
from refinfer.speculative.proposer import Draft, DraftRequest
from refinfer.speculative.verifier import DRAFT_DRAW


@dataclass
class _Held:
    """What the draft model has of one sample: blocks, and the tokens whose keys and values lie there."""

    table: BlockTable
    token_ids: list[int] = field(default_factory=list)


@dataclass
class _Guess:
    """One draft in the making."""

    request: DraftRequest
    held: _Held
    token_ids: list[int] = field(default_factory=list)
    probabilities: list[Probabilities] = field(default_factory=list)
    has_ended: bool = False

    @property
    def known_token_ids(self) -> list[int]:
        """The sample's tokens and the guessed ones."""
        return [*self.request.token_ids, *self.token_ids]

    @property
    def is_done(self) -> bool:
        """Whether as many tokens were guessed as were asked for, or as can be."""
        return self.has_ended or len(self.token_ids) >= self.request.num_tokens

    def draft(self) -> Draft:
        """Gives what was guessed."""
        return Draft(tuple(self.token_ids), tuple(self.probabilities) if self.probabilities else None)


class DraftModelProposer:
    """Lets a draft model go ahead, one pass for each guessed token, all requests together.

    What it has of a sample is as much of the last guess as came true; the rest is run over. A sample
    with many tokens to catch up on catches up over several steps, without a guess until it has; one for which there
    are no blocks gives its own back, and is not guessed for.

    A greedy request, and one with a seed, is guessed for with certainty: the token is what the draft model itself would
    emit there, with the request's own random number, so that a good draft model guesses the very token. For others
    the token is drawn by itself, and the distribution goes with it. Where the draft model's logits give no token,
    which is no fault of the request, the guess ends.

    Args:
        model: The draft model.
        num_blocks: Blocks of its cache.
        block_size: Token places of a block.
        max_num_batched_tokens: Most tokens in one of its passes.
    """

    def __init__(self, model: Llama, *, num_blocks: int, block_size: int = 16, max_num_batched_tokens: int) -> None:
        self._model = model
        self._cache = PagedCache(model.config, model.dtype, num_blocks=num_blocks, block_size=block_size)
        self._pool = BlockPool(num_blocks)
        self._block_size = block_size
        self._max_num_batched_tokens = max_num_batched_tokens
        self._held_by_key: dict[Hashable, _Held] = {}

    @property
    def num_free_blocks(self) -> int:
        """Blocks that belong to no sample."""
        return self._pool.num_free_blocks

    def num_held_tokens(self, key: Hashable) -> int:
        """Tokens of a sample, guessed ones included, whose keys and values the draft model has."""
        held = self._held_by_key.get(key)
        return 0 if held is None else len(held.token_ids)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Guesses for each request."""
        guesses = [self._begin(request) for request in requests]
        active = self._catch_up([guess for guess in guesses if guess is not None])
        while active:
            self._run(active, [1] * len(active))
            active = [guess for guess in active if not guess.is_done]
        return [Draft() if guess is None else guess.draft() for guess in guesses]

    def forget(self, key: Hashable) -> None:
        """Gives the blocks of a sample back."""
        held = self._held_by_key.pop(key, None)
        if held is not None:
            self._release(held)

    def reset(self) -> None:
        """Make every block free, and forget what lies in it."""
        self._pool = BlockPool(self._cache.num_blocks)
        self._held_by_key = {}
        self._cache.forget(range(self._cache.num_blocks))

    def _begin(self, request: DraftRequest) -> _Guess | None:
        """Makes room for a guess; gives None where there is none, or where the sample outgrows the draft model."""
        held = self._held_by_key.setdefault(request.key, _Held(BlockTable(self._block_size)))
        pairs = zip(held.token_ids, request.token_ids[:-1], strict=False)  # the last token runs, for its logits
        del held.token_ids[sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)) :]
        # The last guessed token never runs.
        num_positions = len(request.token_ids) + request.num_tokens - 1
        num_missing = BlockTable.blocks_for(num_positions, self._block_size) - len(held.table.block_ids)
        is_too_long = num_positions > self._model.config.max_scaled_positions
        if is_too_long or num_missing > self._pool.num_free_blocks:
            self._release(held)
            return None
        held.table.append(self._pool.allocate(max(0, num_missing)))
        return _Guess(request, held)

    def _catch_up(self, guesses: list[_Guess]) -> list[_Guess]:
        """Runs what is known of each sample but its last token, as the budget lets; gives those that have caught up."""
        num_left = self._max_num_batched_tokens
        behind, nums_tokens = [], []
        for guess in guesses:
            num_tokens = min(len(guess.request.token_ids) - 1 - len(guess.held.token_ids), num_left)
            if num_tokens:
                behind.append(guess)
                nums_tokens.append(num_tokens)
                num_left -= num_tokens
        if behind:
            self._run(behind, nums_tokens, guesses=False)
        return [guess for guess in guesses if len(guess.held.token_ids) == len(guess.request.token_ids) - 1]

    def _run(self, active: Sequence[_Guess], nums_tokens: Sequence[int], *, guesses: bool = True) -> None:
        """Runs the next tokens of each sample; guesses one more token after the last of them."""
        starts = [len(guess.held.token_ids) for guess in active]
        token_ids = [
            guess.known_token_ids[start : start + num_tokens]
            for guess, start, num_tokens in zip(active, starts, nums_tokens, strict=True)
        ]
        parts = [
            PagedPart(tuple(guess.held.table.block_ids), start, num_tokens)
            for guess, start, num_tokens in zip(active, starts, nums_tokens, strict=True)
        ]
        model_input = ModelInput.pack(token_ids, starts, [int(guesses)] * len(active))
        logits = model_input.run(self._model, self._cache.view(parts, "blocks"))
        for guess, own, rows in zip(active, token_ids, logits, strict=True):
            guess.held.token_ids.extend(own)
            if guesses:
                try:
                    _extend(guess, rows[-1])
                except (InvariantError, NoTokenLeftError):
                    guess.has_ended = True

    def _release(self, held: _Held) -> None:
        held.token_ids.clear()
        self._cache.forget(self._pool.release(held.table.clear()))


def _extend(guess: _Guess, logits: LogitsRow) -> None:
    """Guesses one more token."""
    context = guess.request.context.after(guess.token_ids)
    params = context.params
    if params.is_greedy or params.seed is not None:
        guess.token_ids.append(sample_token(logits, context))
        return
    drafted = probabilities(logits, context)
    position = len(context.output_token_ids)
    uniform = draw_uniform(context.seed, context.sample_index, position, DRAFT_DRAW)
    guess.probabilities.append(drafted)
    guess.token_ids.append(inverse_cdf_token_id(drafted, uniform))
