"""Which value parts first in a run that was watched? Told, read, written and computed, each held to the lone run."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from oracle.explain.block_history import COPIED, FOUND_AND_COPIED, SWAPPED_IN
from oracle.explain.clues import FirstOperation, FirstRead, Place
from oracle.explain.comparing import (
    KEYS,
    VALUES,
    differences,
    first_off,
    layer_of,
    num_comparable,
    num_shared,
    shown_name,
)
from oracle.explain.lone_pass import LonePass, LonePasses
from oracle.explain.recording import LayerReads, RowRecord, StepRecord
from oracle.explain.sources import CACHE_BY_MODE, RUNNER, sources_of_module
from oracle.explain.suspicion import Moment, Suspect, Suspicion
from oracle.explain.watch import INPUT_IDS, POSITION_IDS

_MOVES = {COPIED: "copying blocks", FOUND_AND_COPIED: "copying blocks", SWAPPED_IN: "swapping blocks"}
"""What has moved a block whose content is not what was written."""

_TOLD = {INPUT_IDS: "the token ids of the step", POSITION_IDS: "the position ids of the step"}


@dataclass
class ForwardSigns:
    """Holds every row of a run to its sample alone.

    Args:
        passes: The samples alone.
        mode: The mode that ran.

    Attributes:
        found: What parts, in the order of execution; of each row the first only.
    """

    passes: LonePasses
    mode: str
    found: list[Suspicion] = field(default_factory=list)

    def look_at(self, step: StepRecord) -> None:
        """Looks at all rows of one step."""
        due = sum(row.end - row.start for row in step.rows)
        if step.num_told is not None and step.num_told != due and not (step.error and not step.num_told):
            what = f"{step.num_told} tokens ran, where the requests of the step have {due} to run"
            files = (RUNNER[0], *CACHE_BY_MODE[self.mode], *RUNNER[1:])
            suspect = Suspect("runner", "packing tokens", files)
            self.found.append(Suspicion(step.number, Moment.FORWARD, 0, suspect, what))
            return
        for row in step.rows:
            if row.activations and not row.is_ended:
                sign = next(self._signs(row), None)
                if sign is not None:
                    self.found.append(sign)

    def _signs(self, row: RowRecord) -> Iterator[Suspicion]:
        """Gives what parts in a row, in the order of execution."""
        lone = self.passes.of(row.request, row.sample)
        num = num_comparable(row, lone)
        due = {INPUT_IDS: list(row.token_ids[row.start :]), POSITION_IDS: list(range(row.start, row.end))}
        names = list(row.activations)
        for rank, name in enumerate(names):
            own = row.activations[name]
            if name in due:
                yield from self._told(row, rank, name, own.tolist(), due[name])
            elif name.endswith(".core"):
                layer = layer_of(name) or 0
                if layer in row.reads:
                    yield from self._read(row, rank, layer, row.reads[layer], lone)
            if name in lone.activations and num:
                yield from self._computed(row, rank, names, lone)
        yield from _handed(row)

    def _told(self, row: RowRecord, rank: int, name: str, own: list[int], due: list[int]) -> Iterator[Suspicion]:
        if own == due:
            return
        at = next(place for place, pair in enumerate(zip(own, due, strict=True)) if pair[0] != pair[1])
        place = Place(row.step, row.request, row.sample, row.start + at)
        what = f"{_TOLD[name]} hold {own[at]} where request {row.request} has {due[at]}"
        of_cache = CACHE_BY_MODE["static"] if self.mode == "static" and name == POSITION_IDS else ()
        sources = (*of_cache, *RUNNER, "refinfer/model/llama.py")
        yield Suspicion(row.step, Moment.FORWARD, rank - 1000, Suspect("runner", _TOLD[name], sources), what, place)

    def _read(self, row: RowRecord, rank: int, layer: int, reads: LayerReads, lone: LonePass) -> Iterator[Suspicion]:
        sources = CACHE_BY_MODE[self.mode]
        if reads.num_visible != row.end:
            place = Place(row.step, row.request, row.sample, row.end - 1, layer)
            what = f"attention may look at {reads.num_visible} positions of a request that has {row.end}"
            layout = (*sources, RUNNER[0], "refinfer/attention_layout.py")
            yield Suspicion(
                row.step, Moment.FORWARD, rank, Suspect("cache", "the attention layout", layout), what, place
            )
            return
        path = f"model.layers.{layer}.self_attn"
        num = min(num_shared(row.token_ids, lone.token_ids), row.end)
        for part, own, name in (("key", reads.keys, f"{path}.{KEYS}"), ("value", reads.values, f"{path}.{VALUES}")):
            theirs = lone.activations[name].reshape(-1, *own.shape[1:])[:num]
            position, largest = first_off(differences(own[:num], theirs), lone.bounds[name])
            is_own = position is not None and position >= row.start
            if position is not None and not (is_own and self._is_off(row, name, position, lone)):
                yield self._misread(row, rank, Place(row.step, row.request, row.sample, position, layer), part, largest)
                return
        if not reads.is_room_finite:
            place = Place(row.step, row.request, row.sample, row.end, layer)
            what = "places past the tokens of the request are read, and hold what is no number"
            clue = FirstRead(place, None, None, None, "no number", is_bookkeeping=False)
            name = "reading whole tiles"
            yield Suspicion(row.step, Moment.FORWARD, rank, Suspect("cache", name, sources), what, place, clue)

    def _is_off(self, row: RowRecord, name: str, position: int, lone: LonePass) -> bool:
        """Tells whether what a row itself computed at a position is off, so that it was written off."""
        at = position - row.start
        own, theirs = row.activations[name][at : at + 1], lone.activations[name][position : position + 1]
        return first_off(differences(own, theirs), lone.bounds[name])[0] is not None

    def _misread(self, row: RowRecord, rank: int, place: Place, part: str, largest: float) -> Suspicion:
        position = place.position or 0
        kept = None if row.kept is None or position >= row.start else row.kept[position]
        found = "no number" if largest != largest or largest == float("inf") else "something else"  # noqa: PLR0124 - NaN
        clue = FirstRead(place, part, largest, None if kept is None else kept.step, found, is_bookkeeping=False)
        written = "written in this step" if position >= row.start else "written before"
        what = f"the {part} of position {position} that attention reads is not the one that was {written}"
        how = row.origin_of(position) or ""
        operation = _MOVES.get(how, "reading and writing")
        sources = CACHE_BY_MODE[self.mode]
        if operation != "reading and writing":
            sources = (*reversed(sources), *RUNNER)
        elif self.mode == "continuous":
            sources = (*sources, *RUNNER)
        return Suspicion(row.step, Moment.FORWARD, rank, Suspect("cache", operation, sources), what, place, clue)

    def _computed(self, row: RowRecord, rank: int, names: list[str], lone: LonePass) -> Iterator[Suspicion]:
        name = names[rank]
        own, start = row.activations[name], row.end - len(row.activations[name])
        stop = max(start, num_comparable(row, lone) + row.start)
        theirs = lone.activations[name][start:stop]
        offset, largest = first_off(differences(own[: len(theirs)], theirs), lone.bounds[name])
        if offset is None:
            return
        place = Place(row.step, row.request, row.sample, start + offset, layer_of(name))
        shown = shown_name(name)
        clue = FirstOperation(
            shown,
            place,
            largest,
            lone.bounds[name],
            tuple(shown_name(each) for each in names[max(0, rank - 3) : rank]),
            "alone",
        )
        what = f"{shown} is {largest:.3g} off, and everything before it agrees"
        sources = sources_of_module(name.removesuffix("down_proj.input").rstrip("."))
        if name.endswith(".core"):
            sources = (*sources, *CACHE_BY_MODE[self.mode])
        yield Suspicion(row.step, Moment.FORWARD, rank, Suspect("model", shown, sources), what, place, clue)


def _handed(row: RowRecord) -> Iterator[Suspicion]:
    """Gives it where a row is handed other logits than those that the head gave for it."""
    own = row.activations.get("lm_head")
    if own is None or row.logits is None or not len(own):
        return
    handed = torch.from_numpy(row.logits).to(torch.float64)
    if handed.shape != own.shape or not torch.equal(handed.nan_to_num(), own.to(torch.float64).nan_to_num()):
        place = Place(row.step, row.request, row.sample, row.end - 1)
        what = f"request {row.request} is handed other logits than the head gave for its tokens"
        yield Suspicion(row.step, Moment.HANDED, 0, Suspect("runner", "handing out logits", RUNNER), what, place)
