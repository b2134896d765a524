"""Holds each row of each product of generated checkpoints to the bits that it has among all rows.

Reach for it when the processor or the build of torch is a new one: the check at load tries some hundred rows
of each shape of weight, and this thousands of each weight.

    python debug/product_rows.py
    python debug/product_rows.py --every-isa

Each row runs alone and in a small batch whose place moves. `--every-isa` does it once more for each instruction set to
which this processor can be held by `ATEN_CPU_CAPABILITY` and `ONEDNN_MAX_CPU_ISA`, and says which it lacks.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from oracle.checkpoints import CheckpointSpec, cached_checkpoint
from oracle.commands.shared import chosen_dtypes, positive
from oracle.inspection.script import EXIT_FOUND, EXIT_SHOWN, run_script, say
from oracle.report import environment
from oracle.scenario import DTYPES, Scenario
from oracle.search import StopDrawing, draw_scenarios
from oracle.strategies import scenarios
from refinfer import load_model
from refinfer.model.linear import Linear

ATEN_LEVELS = ("default", "avx2", "avx512")
ONEDNN_LEVELS = (
    *("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2"),
    *("AVX512_CORE", "AVX512_CORE_VNNI", "AVX512_CORE_BF16", "AVX512_CORE_FP16"),
    *("AVX512_CORE_AMX", "AVX512_CORE_AMX_FP16", "AVX10_1_512_AMX_FP16"),
)
"""Instruction sets by the names of the two libraries, each more than those before it."""

BATCH_SIZES = (2, 3, 5, 17, 33)

_ONEDNN_ISA = "onednn_verbose,v1,info,cpu,isa:"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoints", type=positive, default=50, help="how many (default: %(default)s)")
    parser.add_argument("--rows", type=positive, default=4000, help="of each product (default: %(default)s)")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="comma-separated (default: %(default)s)")
    parser.add_argument("--threads", type=positive, default=1, help="threads of torch (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="draws other checkpoints and rows (default: %(default)s)")
    parser.add_argument("--every-isa", action="store_true", help="on each instruction set that can be chosen here")
    parser.add_argument("--as-json", action="store_true", help="print counts by dtype as JSON")
    return run_script(_run, parser, arguments)


def _run(options: argparse.Namespace, console: Console) -> int:
    before = torch.get_num_threads()
    torch.set_num_threads(options.threads)
    try:
        return _show(options, console)
    finally:
        torch.set_num_threads(before)


def _show(options: argparse.Namespace, console: Console) -> int:
    dtypes = chosen_dtypes(options.dtypes)
    if options.as_json:
        sys.stdout.write(json.dumps(_counts_here(options, dtypes)) + "\n")
        return EXIT_SHOWN
    say(console, " · ".join(f"{name} {value}" for name, value in environment().items()))
    table = Table("instruction set", "products", *dtypes, title="rows with other bits, of rows tried")
    num_changed = 0
    runs = _by_instruction_set(options) if options.every_isa else [("as it is", _counts_here(options, dtypes))]
    for name, counts in runs:
        if counts is None:
            table.add_row(name, "nothing tried: this processor lacks it", *("-" for _ in dtypes))
            continue
        num_changed += sum(changed for _, changed, _ in counts.values())
        num_products = max(products for products, _, _ in counts.values())
        table.add_row(name, str(num_products), *(f"{changed}/{tried}" for _, changed, tried in counts.values()))
    console.print(table)
    return EXIT_FOUND if num_changed else EXIT_SHOWN


def _by_instruction_set(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, list[int]] | None]]:
    """Yield for each instruction set its counts by dtype, or None where this processor lacks it."""
    yield "as it is", _counts_elsewhere(options, {})
    capability = torch.backends.cpu.get_cpu_capability().lower()
    here = ATEN_LEVELS.index(capability) if capability in ATEN_LEVELS else 0
    for place, level in enumerate(ATEN_LEVELS):
        # torch obeys this variable also where the processor cannot
        counts = _counts_elsewhere(options, {"ATEN_CPU_CAPABILITY": level}) if place <= here else None
        yield f"ATEN_CPU_CAPABILITY={level}", counts
    before = None
    for level in ONEDNN_LEVELS:
        held = {"ONEDNN_MAX_CPU_ISA": level}
        effective = _onednn_isa(held)
        yield f"ONEDNN_MAX_CPU_ISA={level}", None if effective == before else _counts_elsewhere(options, held)
        before = effective


def _onednn_isa(held: dict[str, str]) -> str:
    """Return the instruction set that oneDNN says it uses under some environment variables."""
    code = "import torch; torch.ops.mkldnn._reorder_linear_weight(torch.ones(32, 32), 32)"
    lines = _output([sys.executable, "-c", code], held | {"ONEDNN_VERBOSE": "1"}).splitlines()
    return next((line.removeprefix(_ONEDNN_ISA) for line in lines if line.startswith(_ONEDNN_ISA)), "no oneDNN")


def _counts_elsewhere(options: argparse.Namespace, held: dict[str, str]) -> dict[str, list[int]]:
    command = [sys.executable, __file__, "--as-json", "--dtypes", options.dtypes]
    for name in ("checkpoints", "rows", "threads", "seed"):
        command += [f"--{name}", str(getattr(options, name))]
    counts: dict[str, list[int]] = json.loads(_output(command, held).splitlines()[-1])
    return counts


def _output(command: list[str], held: dict[str, str]) -> str:
    root = Path(__file__).parent.parent
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    environ = os.environ | {"PYTHONPATH": path} | held
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout  # noqa: S603 - our own


def _counts_here(options: argparse.Namespace, dtypes: Sequence[str]) -> dict[str, list[int]]:
    """Return by dtype the number of products, of rows that had other bits, and of rows tried."""
    counts = {dtype: [0, 0, 0] for dtype in dtypes}
    for spec in _drawn_checkpoints(options.checkpoints, options.seed):
        for dtype, count in counts.items():
            model = load_model(cached_checkpoint(spec), dtype=dtype, batch_invariant=True)
            for layer in (module for module in model.modules() if isinstance(module, Linear)):
                count[0] += 1
                count[1] += _num_changed(layer, options.rows, options.seed + count[0])
                count[2] += options.rows
    return counts


def _drawn_checkpoints(number: int, seed: int) -> list[CheckpointSpec]:
    found: dict[CheckpointSpec, None] = {}

    def keep(scenario: Scenario) -> None:
        if scenario.checkpoint is not None:
            found[scenario.checkpoint] = None
        if len(found) == number:
            raise StopDrawing

    draw_scenarios(scenarios(), keep, num_examples=20 * number, seed=seed)
    return list(found)


def _num_changed(layer: Linear, num_rows: int, seed: int) -> int:
    """Return how many rows have other bits alone, or in a small batch, than among all of them."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(num_rows, layer.weight.shape[1], generator=generator).to(layer.weight.dtype)
    together = layer(rows)
    alone = torch.cat([layer(row) for row in torch.split(rows, 1)])
    batches: list[Tensor] = []
    start = 0
    while start < num_rows:
        size = BATCH_SIZES[len(batches) % len(BATCH_SIZES)]
        batches.append(layer(rows[start : start + size].clone()))
        start += size
    return int((_differs(alone, together) | _differs(torch.cat(batches), together)).sum())


def _differs(own: Tensor, expected: Tensor) -> Tensor:
    return (own != expected).any(dim=1)


if __name__ == "__main__":
    sys.exit(main())
