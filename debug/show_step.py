"""Shows what one step of the engine was told and did, or all steps of a run in one line each.

Reach for it when a run goes on other tokens, positions or blocks than you thought, or when you wonder why a request
waited, was preempted or ended: it says who ran and why, from which position, in which slots, and what came out.

    python debug/show_step.py oracle-failures/CASE.json
    python debug/show_step.py oracle-failures/CASE.json --step 3 --picture steps.svg
    python debug/show_step.py "run it again: python -m oracle replay oracle-failures/CASE.json" --fault norm_epsilon
"""

import argparse
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console

from oracle.commands.shared import output_file
from oracle.explain.course import Step
from oracle.explain.recording import RowRecord, StepRecord
from oracle.explain.show import steps_table
from oracle.explain.watch import INPUT_IDS, POSITION_IDS
from oracle.inspection.case_file import load_case
from oracle.inspection.picture import steps_picture
from oracle.inspection.script import EXIT_FOUND, EXIT_SHOWN, parser_of, run_script, save_picture, say, table_of
from oracle.inspection.watched import WatchedCase, watch

EXAMPLE = "python debug/show_step.py oracle-failures/schedules-paged.json --step 3 --picture steps.svg"

MOST_TOKENS = 12
"""Token ids of a row that are printed; of more, the first and the last ones."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and gives its exit status."""
    parser = parser_of("Shows what the steps of a run were told and did.", EXAMPLE)
    parser.add_argument(
        "--step", type=int, metavar="N", help="this step in full, counted from 0 (default: all, briefly)"
    )
    parser.add_argument("--mode", default="paged", help="the mode that runs it (default: %(default)s)")
    parser.add_argument("--fault", metavar="NAME", help="plant a bug first, to see what it does")
    parser.add_argument("--picture", type=output_file, metavar="FILE", help="draw requests × steps, as SVG")
    return run_script(_run, parser, arguments)


def _run(options: argparse.Namespace, console: Console) -> int:
    case = load_case(options.case, options.model)
    watched = watch(case.scenario, case.folder, mode=options.mode, fault=options.fault)
    if options.step is None:
        say(console, f"{watched.title}: {len(watched.steps)} steps, {len(case.scenario.requests)} requests")
        console.print(steps_table(watched.course))
    else:
        _show(console, watched, watched.step(options.step))
    save_picture(console, options.picture, lambda: steps_picture(watched))
    wrong = [f"step {step.number}: {words}" for step in watched.steps for words in step.violations]
    if options.step is None:
        for words in wrong:
            say(console, words, style="bold red")
    if watched.error is not None:
        line = f"the run ended in step {len(watched.steps) - 1}: {type(watched.error).__name__}: {watched.error}"
        say(console, line, style="bold red")
    return EXIT_FOUND if wrong or watched.error is not None else EXIT_SHOWN


def _show(console: Console, watched: WatchedCase, record: StepRecord) -> None:
    step = record.course or Step(record.number)
    say(console, f"step {record.number} of 0 to {len(watched.steps) - 1} ({watched.title})", style="bold")
    for name, words in _before(step).items():
        say(console, f"{name + ':':10} {words or '-'}")
    table = table_of("sample", "runs", "positions", "tokens", "guessed", "blocks", "slots", "emits")
    for row in record.rows:
        table.add_row(*_cells(row, watched.prompt_lengths[row.request]))
    console.print(table if record.rows else "nothing ran")
    for line in _told_otherwise(record.rows):
        say(console, line, style="bold red")
    say(console, f"{'then:':10} {_joined('ended', step.finished) or '-'}")
    for words in record.violations:
        say(console, f"does not hold: {words}", style="bold red")


def _before(step: Step) -> dict[str, str]:
    """Says what was decided before the rows ran."""
    came = [f"request {request} arrived" for request in step.arrived]
    came += [f"{name} was aborted" for name in step.aborted]
    decided = [
        _joined("admitted", step.admitted),
        _joined("preempted", step.preempted),
        _joined("swapped in", step.swapped_in),
    ]
    words = {"before": "; ".join(came), "scheduler": "; ".join(filter(None, decided))}
    if step.num_used_blocks is not None:
        copied = [f"{source} copied into {target}" for source, target in step.copied_blocks]
        counts = f"{step.num_used_blocks} held, {step.num_cached_blocks} kept by the prefix map only, "
        words["blocks"] = "; ".join([*copied, f"after the step {counts}{step.num_free_blocks} free"])
    return words


def _joined(verb: str, names: Iterable[str]) -> str:
    listed = ", ".join(names)
    return f"{verb} {listed}" if listed else ""


def _cells(row: RowRecord, num_prompt_tokens: int) -> tuple[str, ...]:
    """Gives the cells of one row; positions run from the first to the last, both among them."""
    own = row.token_ids[row.start : row.num_known]
    return (
        f"{row.request}/{row.sample}",
        kind_of(row, num_prompt_tokens),
        ranges(range(row.start, row.end)),
        shortened(own),
        shortened(row.token_ids[row.num_known :]),
        ranges(row.block_ids),
        ranges([slot for slot in row.slots if slot is not None]),
        shortened(row.emitted),
    )


def kind_of(row: RowRecord, num_prompt_tokens: int) -> str:
    """Says whether a row runs its prompt, one new token, or guesses; or keeps its place, or computes its past again."""
    if row.is_ended:
        return "ended, keeps its place"
    if row.num_guessed:
        return "verify"
    if row.start >= num_prompt_tokens:
        return "decode"
    if row.end > num_prompt_tokens:
        return "prompt and output again"
    is_whole = row.start == 0 and row.end == num_prompt_tokens
    return "prefill" if is_whole else f"prefill, {row.end} of {num_prompt_tokens}"


def ranges(numbers: Iterable[int]) -> str:
    """Writes numbers down, runs of neighbours as "first..last"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return " ".join(str(run[0]) if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs)


def shortened(token_ids: Sequence[int]) -> str:
    """Writes token ids down, the middle of many left out."""
    if len(token_ids) <= MOST_TOKENS:
        return " ".join(map(str, token_ids))
    half = MOST_TOKENS // 2
    first, last = (" ".join(map(str, part)) for part in (token_ids[:half], token_ids[-half:]))
    return f"{first} ... {last} ({len(token_ids)})"


def _told_otherwise(rows: Sequence[RowRecord]) -> Iterable[str]:
    """Says where the model was given other tokens or positions than the scheduler's."""
    for row in rows:
        due_by_name = {INPUT_IDS: row.token_ids[row.start :], POSITION_IDS: range(row.start, row.end)}
        for name, due in due_by_name.items():
            told = row.activations.get(name)
            if told is not None and not row.is_ended and told.flatten().tolist() != list(due):
                written = ranges(told.flatten().tolist()) if name == POSITION_IDS else shortened(told.tolist())
                yield f"{row.request}/{row.sample}: the model was told {name} {written}"


if __name__ == "__main__":
    sys.exit(main())
