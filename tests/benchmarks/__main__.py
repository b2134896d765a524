"""`python -m tests.benchmarks`: measures, writes JSON, prints tables, and draws pictures of what was measured.

    python -m tests.benchmarks peers --threads 2 --json peers.json
    python -m tests.benchmarks growth --threads 2 --json growth.json
    python -m tests.benchmarks draw peers.json growth.json --images notes/images

Each engine has a turn in every round, and the shortest of its runs counts; the load of the machine is kept beside.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from oracle.commands.shared import output_file, positive
from oracle.errors import OracleError
from refinfer.errors import RefinferError
from tests.benchmarks import damage_cost, engines, growth, harness_cost, workloads
from tests.benchmarks.comparison import Opener, compare, report_of
from tests.benchmarks.pictures import pictures_of
from tests.benchmarks.profiling import seconds_by_part
from tests.benchmarks.simulation import schedulers, simulate
from tests.benchmarks.tables import show

WORKLOADS: dict[str, Callable[[], workloads.Workload]] = {
    "w1": workloads.w1,
    "w2": workloads.w2,
    "w3": workloads.w3,
    **{spread: partial(workloads.uneven, spread) for spread in workloads.SPREADS},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    It is 1 where an engine gave other tokens than the first or damage cost too much, and 2 after an error.
    """
    options = _parser().parse_args(arguments)
    console = Console()
    if not console.is_terminal:
        console.width = 120  # tables in a file have room for their columns
    torch.set_num_threads(options.threads)
    try:
        if options.command == "draw":
            return _draw(options)
        reports = _MEASURED_BY_COMMAND[options.command](options, console)
    except (OracleError, RefinferError, OSError) as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        return 2
    for report in reports:
        show(console, report)
    if options.json is not None:
        options.json.write_text(json.dumps(reports, indent=1) + "\n", encoding="utf-8")
    counts = [(entry["num_equal"], report["num_requests"]) for report in reports for entry in report.get("engines", ())]
    is_bad = any(report.get("is_bad") for report in reports)
    return int(is_bad or any(num_equal != num_requests for num_equal, num_requests in counts))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.set_defaults(threads=torch.get_num_threads())
    commands = parser.add_subparsers(dest="command", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--threads", type=positive, default=torch.get_num_threads(), help="(default: %(default)s)")
    shared.add_argument("--rounds", type=positive, default=3, help="turns of each engine (default: %(default)s)")
    shared.add_argument("--requests", type=positive, help="only so many of the workload's requests")
    shared.add_argument("--most", type=positive, metavar="TOKENS", help="no request emits more")
    shared.add_argument("--json", type=output_file, metavar="FILE", help="write the figures there")
    for name, words in _HELP_BY_COMMAND.items():
        command = commands.add_parser(name, parents=[shared], help=words)
        if name in ("peers", "modes", "profile"):
            command.add_argument("--workload", choices=WORKLOADS, default="w1", help="(default: %(default)s)")
        if name == "peers":
            command.add_argument("--no-vllm", action="store_true", help="leave vLLM out")
            command.add_argument("--seqs", type=positive, default=engines.MAX_NUM_SEQS, help="most requests in a step")
    draw = commands.add_parser("draw", help="draw what was measured")
    draw.add_argument("reports", nargs="+", type=Path)
    draw.add_argument("--images", type=Path, required=True, metavar="FOLDER")
    return parser


def _compared(name: str, openers: dict[str, Opener], options: argparse.Namespace, console: Console) -> dict[str, Any]:
    work = WORKLOADS[name]().first(options.requests, options.most)
    with console.status(work.name) as status:
        entries = compare(work, openers, options.rounds, lambda engine: status.update(f"{work.name}: {engine}"))
    return {"kind": options.command, **report_of(work, entries)}


def _peers(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    openers = engines.peers(with_vllm=not options.no_vllm, max_num_seqs=options.seqs)
    return [_compared(options.workload, openers, options, console)]


def _modes(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    alone, batched = engines.modes(1), engines.modes()
    openers = {f"{name}, alone": own for name, own in alone.items()}
    openers |= {f"{name}, batch": own for name, own in batched.items()}
    return [_compared(options.workload, openers, options, console)]


def _prefix(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    return [_compared("w3", engines.prefix_sharing(), options, console)]


def _uneven(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    openers = {name: own for name, own in engines.modes().items() if name != "none"}
    reports = []
    for spread in workloads.SPREADS:
        report = _compared(spread, openers, options, console)
        work = WORKLOADS[spread]().first(options.requests, options.most)
        for entry in report["engines"]:
            kind = "static" if entry["name"] == "static" else "continuous"
            simulation = simulate(work, schedulers(engines.MAX_NUM_SEQS)[kind])
            entry |= {"num_steps": simulation.num_steps, "share": simulation.share}
        reports.append(report)
    return reports


def _growth(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    with console.status("growth") as status:
        charts = growth.measured(workloads.w1().folder, status.update)
    return [{"kind": "growth", "threads": options.threads, "charts": charts}]


def _profile(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    work = WORKLOADS[options.workload]().first(options.requests, options.most)
    reports = []
    for manner, is_invariant in (("exact", True), ("plain", False)):
        with console.status(f"{work.name}, {manner}"):
            seconds = seconds_by_part(work, **engines.PAGED, batch_invariant=is_invariant)
        told = {"workload": work.name, "manner": manner, "threads": options.threads}
        reports.append({"kind": "profile", **told, "seconds": seconds})
    return reports


def _harness(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    with console.status("schedules") as status:
        rates = harness_cost.schedules_per_second(options.requests or 400, options.requests or 60)
        seconds = harness_cost.seconds_per_property(options.requests or 10, on_property=status.update)
    return [{"kind": "harness", "threads": options.threads, "schedules_per_second": rates, "seconds": seconds}]


def _damage(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    num_cases = options.requests or 5000
    with console.status("damage") as status:
        report = damage_cost.measured(num_cases, max(1, num_cases // 16), on_case=status.update)
    return [{"kind": "damage", "threads": options.threads, **report}]


def _draw(options: argparse.Namespace) -> int:
    options.images.mkdir(parents=True, exist_ok=True)
    for path in options.reports:
        for name, picture in pictures_of(json.loads(path.read_text(encoding="utf-8"))).items():
            (options.images / f"{name}.svg").write_text(picture, encoding="utf-8")
    return 0


_MEASURED_BY_COMMAND = {
    "peers": _peers,
    "modes": _modes,
    "prefix": _prefix,
    "uneven": _uneven,
    "growth": _growth,
    "harness": _harness,
    "profile": _profile,
    "damage": _damage,
}

_HELP_BY_COMMAND = {
    "peers": "this engine beside Hugging Face's ways and vLLM",
    "modes": "alone and batched, with and without a cache, static, continuous and paged",
    "prefix": "W3 with and without prefix caching",
    "uneven": "static against continuous batching, as answers differ more and more in length",
    "growth": "step time against requests that wait or run, context and pool",
    "profile": "where the processor time of the paged engine goes",
    "harness": "schedules per second, and seconds for each property",
    "damage": "time and memory of damaged checkpoints (--requests says how many), and what escapes",
}

if __name__ == "__main__":
    sys.exit(main())
