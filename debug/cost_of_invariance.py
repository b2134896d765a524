"""Times the invariant manner of numerics against the plain one, on the same work in one process.

Reach for it when you have changed an operation of either manner, or want to know what `batch_invariant=True`
costs on your machine.

    python debug/cost_of_invariance.py
    python debug/cost_of_invariance.py --dtypes float32,bfloat16 --repeats 5 --threads 2
    python debug/cost_of_invariance.py --model smollm2

Without `--model` the work is W1: the 48 requests of `debug/w1.json`, 16 at a time over the continuous cache, on a
random model of 6 layers. With a model, one request decodes alone. The two manners take turns, and the shortest of
their times is divided; other programs on the machine make all of them longer, and the shortest least.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from oracle.checkpoint_files import write_weights
from oracle.commands.shared import chosen_dtypes, positive
from oracle.inspection.script import EXIT_SHOWN, run_script, say
from oracle.report import environment
from refinfer import LLM, SamplingParams
from refinfer.config import ModelConfig
from refinfer.hub import resolve_model
from refinfer.model import Llama
from refinfer.numerics import PlainNumerics

WORKLOAD = Path(__file__).parent / "w1.json"
MAX_NUM_SEQS = 16
WEIGHT_STD = 0.05
"""As `w1.json` asks for."""

PROMPT_OF_ONE = [504, 3575, 282, 4649, 314]
"""Any ids that a vocabulary of a few thousand holds."""


@dataclass(frozen=True)
class Work:
    """What both manners do.

    Attributes:
        name: How the table names it.
        folder: The checkpoint.
        prompts: What is continued.
        max_tokens: For each prompt, how many tokens are emitted.
    """

    name: str
    folder: Path
    prompts: Sequence[Sequence[int]]
    max_tokens: Sequence[int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and gives its exit status."""
    return run_script(_run, _parser(), arguments)


def _run(options: argparse.Namespace, console: Console) -> int:
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    dtypes = chosen_dtypes(options.dtypes)
    with _work(options) as work:
        say(console, " · ".join(f"{name} {value}" for name, value in environment().items()))
        table = Table(title=f"{work.name}: seconds, shortest of {options.repeats}", title_justify="left")
        for column in ("dtype", "plain", "invariant", "invariant / plain"):
            table.add_column(column)
        for dtype in dtypes:
            plain, invariant = _time_in_turns(work, dtype, options.repeats, console)
            table.add_row(dtype, f"{plain:.3f}", f"{invariant:.3f}", f"{invariant / plain:.3f}")
        console.print(table)
    return EXIT_SHOWN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a checkpoint folder or name: one request decodes alone, instead of W1")
    parser.add_argument("--dtypes", default="float32", help="comma-separated (default: %(default)s)")
    parser.add_argument("--repeats", type=positive, default=5, help="turns of each manner (default: %(default)s)")
    parser.add_argument("--threads", type=positive, help="threads of torch (default: its own choice)")
    parser.add_argument("--requests", type=positive, help="only so many of W1's requests")
    parser.add_argument(
        "--tokens", type=positive, default=64, help="tokens that one request decodes (default: %(default)s)"
    )
    return parser


@contextmanager
def _work(options: argparse.Namespace) -> Iterator[Work]:
    if options.model is not None:
        yield Work("one request alone", resolve_model(options.model), [PROMPT_OF_ONE], [options.tokens])
        return
    workload: dict[str, Any] = json.loads(WORKLOAD.read_text(encoding="utf-8"))
    requests = workload["requests"][: options.requests]
    with tempfile.TemporaryDirectory() as name:
        write_model(Path(name), workload["model"]["config"])
        prompts = [request["prompt_token_ids"] for request in requests]
        yield Work("W1", Path(name), prompts, [request["max_tokens"] for request in requests])


def write_model(folder: Path, config: dict[str, Any]) -> None:
    """Writes a random model as `w1.json` describes it: normal matrices, norms of one.

    Args:
        folder: Where to; it exists.
        config: What becomes its config.json.
    """
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    empty = Llama(ModelConfig.from_folder(folder), dtype=torch.float32, numerics=PlainNumerics())
    shape_by_name = {name: tuple(weight.shape) for name, weight in empty.named_parameters() if name != "lm_head.weight"}
    generator = np.random.Generator(np.random.Philox(0))

    def blocks(name: str) -> Iterable[np.ndarray]:
        shape = shape_by_name[name]
        if len(shape) == 1:
            yield np.ones(shape, dtype=np.float32)
        else:
            yield generator.normal(0, WEIGHT_STD, shape).astype(np.float32)

    write_weights(folder, shape_by_name, blocks, dtype="float32")


def _time_in_turns(work: Work, dtype: str, repeats: int, console: Console) -> tuple[float, float]:
    """Gives the shortest time of each manner, plain first, after one run of each that is not counted."""
    llms = [
        LLM(work.folder, cache="continuous", max_num_seqs=MAX_NUM_SEQS, dtype=dtype, batch_invariant=is_invariant)
        for is_invariant in (False, True)
    ]
    params = [SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True) for count in work.max_tokens]
    shortest = [float("inf"), float("inf")]
    with Progress(console=console, transient=True) as progress:
        for turn in progress.track(range(repeats + 1), description=f"{work.name} in {dtype}"):
            for place, llm in enumerate(llms):
                start = time.perf_counter()
                llm.generate([list(prompt) for prompt in work.prompts], params)
                seconds = time.perf_counter() - start
                if turn:
                    shortest[place] = min(shortest[place], seconds)
    return shortest[0], shortest[1]


if __name__ == "__main__":
    sys.exit(main())
