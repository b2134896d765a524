"""Do the block tables lead where they should, and does each request go on where it stopped? Asked without a tensor."""

import re
from collections.abc import Iterator

from oracle.explain import sources
from oracle.explain.block_history import COPIED, FORKED, FOUND_AND_COPIED, HIT, SWAPPED_IN
from oracle.explain.clues import FirstRead, Place
from oracle.explain.recording import RowRecord, StepRecord, Written
from oracle.explain.suspicion import Moment, Suspect, Suspicion
from oracle.scenario import Scenario

_SHARING = ("refinfer/scheduler/block_space.py", "refinfer/cache/prefix.py", "refinfer/scheduler/queues.py")

_ENGINE = ("refinfer/engine/engine.py", "refinfer/engine/core.py")
_CACHED = ("refinfer/cache/prefix.py", "refinfer/cache/prefix_tree.py", "refinfer/cache/block_pool.py")

_BY_WORDS = (
    ("the engine told of|its samples .* go on", Suspect("engine", "telling of requests", _ENGINE)),
    ("were used longer ago", Suspect("prefix cache", "which cached block is given up", _CACHED)),
    ("came in with", Suspect("block space", "room at admission", sources.SPACE)),
    ("cached tokens, and had", Suspect("block space", "counting cached tokens", _SHARING)),
    ("guess.* max_(model_len|tokens)", Suspect("speculation", "how far is guessed", sources.VERIFIER[1:2])),
    ("prefix|cached block|chain|findable", Suspect("prefix cache", "finding blocks by their tokens", sources.PREFIX)),
    ("would write to block", Suspect("block space", "copy on write", sources.SPACE)),
    ("references|does not add up", Suspect("block pool", "counting references", (*sources.POOL, *sources.TABLE[:1]))),
    ("is shared by", Suspect("block space", "sharing blocks", sources.PREFIX)),
    ("swapped out|host memory|SwapIn|DropSwapped", Suspect("block space", "swapping", sources.SPACE)),
    ("holds .* blocks|what is computed needs", Suspect("block space", "reserving blocks", sources.SPACE)),
    ("and emits", Suspect("scheduler", "which rows emit", sources.ROWS)),
    ("to run 0 tokens", Suspect("block space", "sharing what is computed, newest token included", _SHARING)),
    ("is to run, and is", Suspect("scheduler", "whose turn it is", sources.POLICY)),
    ("tokens run in one step", Suspect("scheduler", "the token budget", sources.POLICY)),
    ("where .* may|among those that run", Suspect("scheduler", "who runs", sources.POLICY)),
    ("computed tokens that are nowhere", Suspect("scheduler", "preemption", sources.SPACE)),
    ("tokens computed: none runs|to run .* tokens up to", Suspect("scheduler", "advancing requests", sources.QUEUES)),
    ("have not ended after", Suspect("scheduler", "whose turn it is", sources.POLICY)),
    ("in the order|waits before", Suspect("scheduler", "the order of the queue", sources.QUEUES[:1] + sources.POLICY)),
    ("to verify", Suspect("scheduler", "guessed tokens of a step", sources.QUEUES)),
)
"""What a broken invariant points at, by words of its message."""


def pointed_at(message: str) -> Suspect:
    """Gives what the message of a broken invariant points at."""
    return known_by_words(message) or Suspect("scheduler", "its state between two steps", sources.QUEUES)


def known_by_words(message: str) -> Suspect | None:
    """Gives what the words of a message point at; None where they are of no broken invariant."""
    return next((suspect for words, suspect in _BY_WORDS if re.search(words, message)), None)


class BookkeepingSigns:
    """Follows every sample through a run.

    Args:
        scenario: What ran.

    Attributes:
        found: What went wrong, in order.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._ends: dict[tuple[int, int], tuple[int, tuple[int, ...]]] = {}
        self._ran: dict[tuple[int, int], int] = {}
        self._preempted: dict[tuple[int, int], str] = {}
        self._admitted: set[tuple[int, int]] = set()
        self._num_right: dict[tuple[int, int], int] = {}
        self.found: list[Suspicion] = []

    def look_at(self, step: StepRecord) -> None:
        """Looks at one step."""
        for rank, message in enumerate(step.violations):
            self.found.append(Suspicion(step.number, Moment.BEFORE, rank, pointed_at(message), message))
        admitted = step.course.admitted if step.course is not None else ()
        self._admitted = {(int(name.partition("/")[0]), int(name.partition("/")[2])) for name in admitted}
        for entry in step.course.preempted if step.course is not None else ():
            name, how = entry.split(" ")
            request, sample = map(int, name.split("/"))
            self._preempted[request, sample] = how
            self._num_right.pop((request, sample), None)
        for row in step.rows:
            if not row.is_ended:
                self.found += list(self._signs(row))
            self._take(row)

    def _signs(self, row: RowRecord) -> Iterator[Suspicion]:
        yield from self._known(row)
        yield from self._cursor(row)
        yield from self._kept(row)
        if row.emitted and row.num_known < len(row.known):
            what = f"request {row.request} emits a token when {row.end} of the {len(row.known)} it has have run"
            yield _sign(row, 3, Suspect("scheduler", "which rows emit", sources.ROWS), what)

    def _known(self, row: RowRecord) -> Iterator[Suspicion]:
        """A sample knows its prompt, and what it emitted."""
        key = row.request, row.sample
        prompt = self._scenario.requests[row.request].prompt_token_ids
        known = self._ends[key][1] if key in self._ends else prompt
        own = row.known
        if own != known:
            num = min(len(own), len(known))
            at = next((p for p, pair in enumerate(zip(own, known, strict=False)) if pair[0] != pair[1]), num)
            what = (
                f"request {row.request} has {len(own)} tokens where it had {len(known)}; from position {at} they differ"
            )
            place = Place(row.step, row.request, row.sample, at)
            is_back = key in self._preempted
            operation = "preemption" if is_back else "keeping a request's tokens"
            yield _sign(row, 0, Suspect("scheduler", operation, sources.QUEUES), what, place)

    def _cursor(self, row: RowRecord) -> Iterator[Suspicion]:
        """A sample goes on where it stopped, or where its blocks were found or came back."""
        key = row.request, row.sample
        if row.num_guessed and key in self._admitted:
            what = f"{row.num_guessed} tokens run that were guessed before request {row.request} lost its place"
            yield _sign(row, 1, Suspect("scheduler", "dropping guesses on preemption", sources.QUEUES), what)
        if row.kept is None and row.start == 0:
            return
        how = self._preempted.get(key)
        end = None if key not in self._ends or how == "recompute" else self._ends[key][0]
        if end is not None and row.start == end:
            return
        if end is None:
            is_found = all(
                row.origin_of(position) in (HIT, FORKED, COPIED, FOUND_AND_COPIED) for position in range(row.start)
            )
            if row.start == 0 or is_found:
                return
        is_back = how is not None
        due = 0 if end is None else end
        operation = f"preemption by {how}" if is_back else "advancing requests"
        files = sources.SPACE if is_back else sources.QUEUES
        what = f"request {row.request} goes on at position {row.start}, and {due} of its tokens are computed"
        if end is None and not is_back and row.kept is not None:
            operation, files = "sharing a prefix", sources.SPACE
        yield _sign(row, 1, Suspect("scheduler", operation, files), what)

    def _kept(self, row: RowRecord) -> Iterator[Suspicion]:
        """What a row's block table leads to was written for the same tokens."""
        salt = self._scenario.requests[row.request].cache_salt
        for position, own in enumerate(row.kept or ()):
            if own is None or own.prefix != row.token_ids[: position + 1] or own.salt != salt:
                yield self._misled(row, position, own, salt)
                return

    def _misled(self, row: RowRecord, position: int, own: Written | None, salt: str | None) -> Suspicion:
        how = row.origin_of(position)
        ran = self._ran.get((row.request, row.sample), 0)
        place = Place(row.step, row.request, row.sample, position)
        found = _in_words(own, row, salt)
        clue = FirstRead(place, None, None, None, found, is_bookkeeping=True)
        what = f"the block table leads position {position} of request {row.request} to {found}"
        suspect = Suspect("block space", "handing out blocks", sources.POOL)
        was_right = position < self._num_right.get((row.request, row.sample), 0) and how != SWAPPED_IN
        is_own = own is not None and (own.request, own.sample, own.position) == (row.request, row.sample, position)
        if was_right and not is_own:
            suspect = Suspect(
                "block pool", "keeping blocks for those who hold them", (*sources.POOL, *sources.TABLE[:1])
            )
        elif how == HIT or (how == FOUND_AND_COPIED and own is not None):
            suspect = Suspect("prefix cache", "finding blocks by their tokens", sources.PREFIX)
        elif how in (COPIED, FOUND_AND_COPIED):
            suspect = Suspect("block space", "copy on write", sources.SPACE)
        elif how == SWAPPED_IN:
            suspect = Suspect("block space", "swapping", sources.SPACE)
        elif how == FORKED:
            suspect = Suspect("block space", "sharing the blocks of a first sample", sources.SPACE)
        elif is_own:
            suspect = Suspect("scheduler", "advancing past rejected guesses", sources.QUEUES)
        elif own is None and position >= ran:
            suspect = Suspect("scheduler", "advancing requests", sources.QUEUES)
        return _sign(row, 2, suspect, what, place, clue)

    def _take(self, row: RowRecord) -> None:
        key = row.request, row.sample
        num_rejected = row.num_guessed - max(0, len(row.emitted) - 1) if row.num_guessed else 0
        self._ends[key] = row.end - num_rejected, (*row.known, *row.emitted)
        self._num_right[key] = min(row.start, self._ends[key][0]) if row.kept is not None else 0
        self._ran[key] = max(row.end, self._ran.get(key, 0))
        self._preempted.pop(key, None)


def _sign(
    row: RowRecord,
    rank: int,
    suspect: Suspect,
    what: str,
    place: Place | None = None,
    clue: FirstRead | None = None,
) -> Suspicion:
    place = Place(row.step, row.request, row.sample, row.start) if place is None else place
    return Suspicion(row.step, Moment.BOOKKEEPING, rank, suspect, what, place, clue)


def _in_words(own: Written | None, row: RowRecord, salt: str | None) -> str:
    if own is None:
        return "a slot that nobody has written, or that was given back"
    whose = "its own" if (own.request, own.sample) == (row.request, row.sample) else f"request {own.request}'s"
    if own.salt != salt:
        return f"what {whose} position {own.position} wrote under another salt"
    return f"what {whose} position {own.position} wrote in step {own.step} after other tokens"
