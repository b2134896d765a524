"""Shows a kill matrix on a terminal: a line for each fault, then a table of ways of looking, then figures."""

from statistics import median

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from oracle.matrix.kills import FaultRow, KillMatrix, Location
from oracle.matrix.summary import MOST_REQUESTS, MOST_TOKENS, Summary, summarise

_MEANINGS = (
    "sees: faults; alone: those that no other way sees; examples: until one is seen, in the median; unexpected: seen, "
    "though the fault does not list this way among those that should see it; missed: listed, and not seen"
)


def show_row(console: Console, row: FaultRow, *, is_none: bool = False) -> None:
    """Prints what saw a fault: each way, with the examples that it took.

    Args:
        console: Where.
        row: The row.
        is_none: Whether the fault is none, so that it is right to see nothing.
    """
    first, location = row.first, row.location
    if first is None:
        looked = ", ".join(f"{number} {lane}" for lane, number in row.examples.items())
        verdict, style = ("no alarm", "green") if is_none else ("NOT CAUGHT", "bold red")
        _line(console, f"{row.fault} ({row.area}): {verdict} in {looked}", style)
        return
    by = ", ".join(f"{name} {kill.num_examples}" for name, kill in row.kills.items())
    words = f"{row.fault} ({row.area}): caught in {first.seconds:.1f} s by {by}"
    if row.size is not None:
        words += f"; {row.size[0]} requests, {row.size[1]} tokens"
    if location is not None:
        words += f"; {_words(row, location)}"
    _line(console, words, "green" if location is None or row.place is not None else "yellow")


def _words(row: FaultRow, location: Location) -> str:
    """Says in which file a fault was located, or where it sits and what is blamed instead."""
    place, files = row.place, location.files
    if place is not None:
        return f"located in {files[place]}" + (f", named behind {', '.join(files[:place])}" if place else "")
    where = f" in {', '.join(row.sources)}" if row.sources else ""
    return f"not located{where}; blamed: {', '.join(files) or 'nothing'}; {location.sentence}"


def show_matrix(console: Console, matrix: KillMatrix) -> None:
    """Prints how many faults each way of looking saw, and each usual rule, and the figures of the whole."""
    summary = summarise(matrix.rows)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), caption=_MEANINGS, caption_justify="left", caption_style="")
    table.add_column("way of looking", no_wrap=True)
    for head in ("sees", "alone", "examples", "unexpected", "missed"):
        table.add_column(head, justify="right")
    for name, number in summary.num_by_sight.items():
        alone, unexpected = summary.num_by_sight_alone[name], summary.num_unexpected[name]
        figures = (_number(alone), _examples(matrix, name), _number(unexpected), _number(len(summary.missing[name])))
        table.add_row(name, str(number), *figures)
    table.add_section()
    for name, number in summary.num_by_rule.items():
        table.add_row(f"usual rule: {name}", str(number), "", _examples(matrix, name), "", "")
    console.print(table)
    for line in lines_of(summary):
        _line(console, line)


def _examples(matrix: KillMatrix, name: str) -> str:
    kills = [kill for row in matrix.rows if (kill := row.kills.get(name) or row.rule_kills.get(name)) is not None]
    return f"{median(kill.num_examples for kill in kills):g}" if kills else "·"


def _number(number: int) -> str:
    return str(number) if number else "·"


def lines_of(summary: Summary) -> list[str]:
    """Gives the figures in words."""
    lines = [f"{summary.num_caught} of {summary.num_faults} faults caught"]
    if summary.uncaught:
        lines.append(f"not caught: {', '.join(summary.uncaught)}")
    slowest = summary.slowest
    if slowest is not None and slowest.first is not None:
        lines.append(
            f"first kill after {summary.median_seconds:.2f} s in the median, "
            f"{slowest.first.seconds:.1f} s at most ({slowest.fault})"
        )
    if summary.num_with_case:
        lines.append(
            f"{summary.num_small} of {summary.num_with_case} shrunk cases within {MOST_REQUESTS} requests and "
            f"{MOST_TOKENS} tokens"
        )
        lines.append(
            f"{summary.num_located} of {summary.num_caught} located, "
            f"{summary.num_located_first} of them by the first file that is named"
        )
    if summary.mislocated and summary.num_with_case:
        lines.append(f"not located: {', '.join(summary.mislocated)}")
    rule, number = max(summary.num_by_rule.items(), key=lambda item: item[1])
    best = f" together, at most {number} by one ({rule})" if number else ""
    lines.append(f"the usual rules on the same cases see {summary.num_by_any_rule}{best}")
    return lines


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=True, highlight=False)
