"""Shows an explanation on a terminal: the verdict first, then how it was come by."""

from collections.abc import Collection, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from oracle.errors import OracleError
from oracle.explain.clues import Place
from oracle.explain.course import Step
from oracle.explain.explanation import Explanation, Need

_STYLE_BY_NEED = {Need.NEEDED: "bold red", Need.NOT_NEEDED: "green", Need.NOT_PRESENT: "dim"}
_MOST_STEPS = 30
"""Steps that are shown, those around the first sign."""


def show_explanation(console: Console, explanation: Explanation) -> None:
    """Prints an explanation."""
    blame = explanation.blame
    _line(console, f"blame: {blame.sentence}", style="bold red")
    if blame.sources:
        _line(console, f"look in: {', '.join(blame.sources)}")
    _line(console, f"explained: {explanation.check} × {explanation.subject}: {explanation.message}", style="dim")
    console.print(_ladder(explanation))
    if explanation.features:
        console.print(_features(explanation))
    if explanation.minimal is not None:
        _line(console, f"enough to fail: {', '.join(explanation.minimal) or 'the simplest run'}")
    if explanation.steps:
        console.print(_steps(explanation))
    if explanation.survives_watching is False:
        _line(console, "the failure did not come while everything was watched", style="yellow")
    _line(console, f"explained in {explanation.seconds:.1f} s; again: {explanation.command}", style="dim")


def _line(console: Console, text: str, *, style: str | None = None) -> None:
    console.print(Text(text, style=style or ""), soft_wrap=True, highlight=False)


def _ladder(explanation: Explanation) -> RenderableType:
    table = _table("rung", "what it says")
    for rung in explanation.rungs:
        words = _words(explanation, rung.name) if rung.is_reached else rung.note
        table.add_row(rung.name, Text(words, style="" if rung.is_reached else "dim"))
    return table


def _words(explanation: Explanation, rung: str) -> str:
    token, write, read, operation = explanation.token, explanation.write, explanation.read, explanation.operation
    if rung == "token" and token is not None:
        margins = (("the subject's own margin", token.own_margin), ("the referee's", token.referee_margin))
        shown = [f"{name} {value:.3g}" for name, value in margins if value is not None]
        bound = "" if token.bound is None else f", rounding within {token.bound:.3g}"
        return f"{token.kind}: {token.what} {token.got} instead of {token.due}, {_at(token.place)}; " + (
            ", ".join(shown) + bound
        )
    if rung == "write" and write is not None:
        later = write.num_steps_before_token
        after = "" if not later else f"; the output goes wrong {later} steps later"
        return f"{write.part}, {_at(write.place)}: {write.largest:.3g} off, {write.bound:.3g} permitted{after}"
    if rung == "read" and read is not None:
        written = "" if read.written_step is None else f", written in step {read.written_step}"
        return f"{read.part or 'key and value'}, {_at(read.place)}{written}: {read.found}"
    if rung == "operation" and operation is not None:
        inputs = ", ".join(operation.inputs)
        return (
            f"{operation.name}, {_at(operation.place)}: {operation.largest:.3g} off the {operation.against} pass, "
            f"{operation.bound:.3g} permitted; {inputs} agree"
        )
    if rung == "features":
        needed = (feature.name for feature in explanation.features if feature.need is Need.NEEDED)
        return ", ".join(needed) or "none needed"
    message = f"rung {rung!r} is reached, and what it found is missing; only an answer can be put into words"
    raise OracleError(message, rung=rung)


def _at(place: Place) -> str:
    parts = [f"request {place.request}"]
    parts += [f"sample {place.sample}"] if place.sample else []
    parts += [f"position {place.position}"] if place.position is not None else []
    parts += [f"layer {place.layer}"] if place.layer is not None else []
    parts += [f"step {place.step}"] if place.step is not None else []
    return ", ".join(parts)


def _features(explanation: Explanation) -> RenderableType:
    table = _table("feature", "needed?", "how it was turned off")
    for feature in explanation.features:
        if feature.need is not Need.NOT_PRESENT:
            table.add_row(feature.name, Text(str(feature.need), style=_STYLE_BY_NEED[feature.need]), feature.change)
    absent = [feature.name for feature in explanation.features if feature.need is Need.NOT_PRESENT]
    return Group(table, Text(f"not present: {', '.join(absent)}", style="dim")) if absent else table


def _steps(explanation: Explanation) -> RenderableType:
    clues = (explanation.write, explanation.read, explanation.operation, explanation.token)
    marked = {clue.place.step for clue in clues if clue is not None}
    first = min((step for step in marked if step is not None), default=0)
    start = max(0, min(first - _MOST_STEPS // 2, len(explanation.steps) - _MOST_STEPS))
    return steps_table(explanation.steps[start : start + _MOST_STEPS], marked)


def steps_table(steps: Sequence[Step], marked: Collection[int | None] = ()) -> Table:
    """Makes a table of steps, one line each.

    Args:
        steps: The steps.
        marked: The numbers of those that are pointed at.
    """
    table = _table("step", "request/sample position+tokens → emitted", "events", "used+cached+free")
    for step in steps:
        blocks = "" if step.num_used_blocks is None else _blocks(step)
        table.add_row(
            str(step.number),
            _rows(step),
            "; ".join(_events(step)),
            blocks,
            style="red" if step.number in marked else "",
        )
    return table


def _rows(step: Step) -> str:
    return ", ".join(
        f"{row.request}/{row.sample} {row.start}+{row.num_tokens}"
        + (f" ({row.num_guessed} guessed)" if row.num_guessed else "")
        + (f" → {' '.join(map(str, row.token_ids))}" if row.token_ids else "")
        for row in step.rows
    )


def _events(step: Step) -> list[str]:
    named = {
        "arrived": tuple(map(str, step.arrived)),
        "admitted": step.admitted,
        "preempted": step.preempted,
        "swapped in": step.swapped_in,
        "aborted": step.aborted,
        "finished": step.finished,
        "copied": tuple(f"{source}→{target}" for source, target in step.copied_blocks),
    }
    return [f"{name} {', '.join(values)}" for name, values in named.items() if values]


def _blocks(step: Step) -> str:
    return f"{step.num_used_blocks}+{step.num_cached_blocks}+{step.num_free_blocks}"


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
