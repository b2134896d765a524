"""Shows the pool of a paged run: who holds each block, what lies in it, and what became of one block.

Reach for it when a request reads what it did not write, when blocks leak or run out, or when a prefix is found that
should not be, or is not found that should be.

    python debug/show_blocks.py oracle-failures/CASE.json --picture blocks.svg
    python debug/show_blocks.py oracle-failures/CASE.json --step 3
    python debug/show_blocks.py "run it again: python -m oracle replay oracle-failures/CASE.json" --block 5

A state is that of the step when its rows had run, before any block was given back. A draft model's own pool is not
looked at.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence

from rich.console import Console

from oracle.commands.shared import output_file
from oracle.errors import ScenarioError
from oracle.explain.recording import Written
from oracle.inspection.block_watch import BlockState, BlockWatch, sample_name
from oracle.inspection.case_file import load_case
from oracle.inspection.picture import blocks_picture
from oracle.inspection.script import EXIT_FOUND, EXIT_SHOWN, parser_of, run_script, save_picture, say, table_of
from oracle.inspection.watched import WatchedCase, watch

EXAMPLE = "python debug/show_blocks.py oracle-failures/schedules-paged.json --block 5 --picture blocks.svg"

PAGED = ("paged", "paged_gather")
"""The modes that have blocks."""

FREE, KEPT, SHARED = ".", "k", "+"
_LETTERS = "0123456789abcdefghij"
"""Signs of requests on the map; there is no sign k, which is the prefix map's."""

STEPS_IN_A_LINE = 80


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and gives its exit status."""
    parser = parser_of("Shows who holds each block of the pool, and what lies in it.", EXAMPLE)
    parser.add_argument(
        "--step", type=int, metavar="N", help="this step in full, counted from 0 (default: a map of all)"
    )
    parser.add_argument("--block", type=int, metavar="B", help="all that became of this block")
    parser.add_argument("--mode", default="paged", help="one of the paged modes (default: %(default)s)")
    parser.add_argument("--fault", metavar="NAME", help="plant a bug first, to see what it does")
    parser.add_argument("--picture", type=output_file, metavar="FILE", help="draw blocks × steps, as SVG")
    return run_script(_run, parser, arguments)


def _run(options: argparse.Namespace, console: Console) -> int:
    if options.mode not in PAGED:
        message = f"mode {options.mode!r} has no blocks; choose among {', '.join(PAGED)}"
        raise ScenarioError(message, mode=options.mode)
    case = load_case(options.case, options.model)
    watched = watch(case.scenario, case.folder, mode=options.mode, fault=options.fault)
    blocks = watched.blocks
    if blocks is None or not blocks.moments:
        message = f"no step was taken, so there are no blocks to show: {watched.error}"
        raise ScenarioError(message)
    if options.block is not None:
        _show_history(console, watched, blocks, options.block, options.step)
    elif options.step is not None:
        _show_step(console, watched, blocks, watched.step(options.step).number)
    else:
        _show_map(console, watched, blocks)
    save_picture(console, options.picture, lambda: blocks_picture(watched))
    if watched.error is not None:
        line = f"the run ended in step {len(watched.steps) - 1}: {type(watched.error).__name__}: {watched.error}"
        say(console, line, style="bold red")
        return EXIT_FOUND
    return EXIT_SHOWN


def _show_map(console: Console, watched: WatchedCase, blocks: BlockWatch) -> None:
    """Prints one sign for each block and step."""
    say(
        console, f"{blocks.num_blocks} blocks of {blocks.block_size} over {len(blocks.moments)} steps ({watched.title})"
    )
    say(
        console,
        f"a number: the request that holds it; {SHARED} several hold it; {KEPT} only the prefix map; {FREE} nobody",
    )
    for start in range(0, len(blocks.moments), STEPS_IN_A_LINE):
        moments = blocks.moments[start : start + STEPS_IN_A_LINE]
        marks = [f"{step:<5}" for step in range(start, start + len(moments), 5)]
        say(console, f"{'step':>9} {''.join(marks)}".rstrip())
        for block_id in range(blocks.num_blocks):
            signs = "".join(sign_of(moment.blocks[block_id]) for moment in moments)
            if signs.strip(FREE):
                say(console, f"block {block_id:>3} {signs}")
    num_unused = sum(all(moment.blocks[own].is_free for moment in blocks.moments) for own in range(blocks.num_blocks))
    if num_unused:
        say(console, f"{num_unused} more blocks were free all the time")


def sign_of(state: BlockState) -> str:
    """Gives the sign of a block on the map."""
    if len(state.holders) > 1:
        return SHARED
    if state.holders:
        return _LETTERS[state.holders[0][0] % len(_LETTERS)]
    return FREE if state.is_free else KEPT


def _show_step(console: Console, watched: WatchedCase, blocks: BlockWatch, step: int) -> None:
    """Prints a line for each block that is not free, and what is in host memory."""
    moment = blocks.moments[step]
    say(
        console, f"step {step} of 0 to {len(blocks.moments) - 1} ({watched.title}), when its rows had run", style="bold"
    )
    table = table_of("block", "held by", "refs", "prefix map", "slots: tokens", "written by, in step")
    for block_id, state in enumerate(moment.blocks):
        if not state.is_free:
            table.add_row(str(block_id), *_cells(state, step))
    console.print(table)
    free = [block_id for block_id, state in enumerate(moment.blocks) if state.is_free]
    say(console, f"free: {len(free)} of {blocks.num_blocks}")
    for key, number in moment.host.items():
        say(console, f"in host memory: {number} blocks of {sample_name(key)}")
    for event in blocks.events:
        if event.step == step:
            say(console, f"block {event.block_id}: {event.words}")


def _cells(state: BlockState, step: int) -> tuple[str, ...]:
    published = "-" if state.published is None else f"finds {' '.join(map(str, state.published))}"
    slots = " ".join("_" if own is None else str(own.prefix[-1]) for own in state.slots)
    holders = ", ".join(map(sample_name, state.holders)) or "-"
    return (holders, str(state.ref_count), published, slots, "; ".join(_writers(state.slots, step)))


def _writers(slots: Sequence[Written | None], step: int) -> Iterator[str]:
    """Says who wrote what lies in a block, and when; what was written in the step itself stands as "now"."""
    found = [(own.request, own.sample, own.step) for own in slots if own is not None]
    for request, sample, written in dict.fromkeys(found):
        yield f"{request}/{sample} {'now' if written == step else written}"


def _show_history(console: Console, watched: WatchedCase, blocks: BlockWatch, block_id: int, step: int | None) -> None:
    """Prints what became of one block, up to a step or to the end."""
    if not 0 <= block_id < blocks.num_blocks:
        message = f"there is no block {block_id}; the pool has blocks 0 to {blocks.num_blocks - 1}"
        raise ScenarioError(message, block_id=block_id, num_blocks=blocks.num_blocks)
    last = len(blocks.moments) - 1 if step is None else watched.step(step).number
    say(console, f"block {block_id} up to step {last} ({watched.title})", style="bold")
    events = [event for event in blocks.events if event.block_id == block_id and event.step <= last]
    for event in events:
        say(console, f"step {event.step}: {event.words}")
    if not events:
        say(console, "nothing: it was free all the time")


if __name__ == "__main__":
    sys.exit(main())
