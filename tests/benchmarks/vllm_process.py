"""A driver for vLLM on CPU, which runs in an environment of its own; another Python can stand in for it in tests."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from oracle.engines.environments import python_of
from oracle.engines.registry import find_recipe
from oracle.errors import EngineCrashed
from tests.benchmarks.drivers import Run, Runner
from tests.benchmarks.workloads import Workload

DRIVER = Path(__file__).parent / "vllm_driver.py"


@contextmanager
def vllm(
    work: Workload, *, max_num_seqs: int, max_num_batched_tokens: int = 512, shares_prefixes: bool = False
) -> Iterator[Runner]:
    """Drives vLLM on CPU without its compiler, with as many threads as torch has here.

    Raises:
        EngineUnavailable: It is not installed; `python -m oracle engines install vllm` does.
    """
    settings = {
        "skip_tokenizer_init": True,
        "dtype": "float32",
        "enforce_eager": True,
        "max_model_len": 32 * -(-work.longest // 32),
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max_num_batched_tokens,
        "enable_prefix_caching": shares_prefixes,
        "seed": 0,
    }
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    environment = {**os.environ, **find_recipe("vllm").environment, **threads}
    with driven(work, settings, [str(python_of("vllm")), str(DRIVER)], environment) as runner:
        yield runner


@contextmanager
def driven(
    work: Workload, settings: dict[str, Any], command: list[str], environment: dict[str, str]
) -> Iterator[Runner]:
    """Runs work in a process that speaks as `vllm_driver.py` does, which ends with the context.

    Raises:
        EngineCrashed: The process ended; the message has the last of what it printed.
    """
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):

        def ask(question: object) -> dict[str, Any]:
            answer = ""
            if process.stdin is not None and process.stdout is not None:
                try:
                    print(json.dumps(question), file=process.stdin, flush=True)
                    answer = process.stdout.readline()
                except BrokenPipeError:
                    with suppress(BrokenPipeError):  # closing sends once more what could not be sent
                        process.stdin.close()
            if not answer:
                process.wait()
                log.seek(0)
                message = f"{command[-1]} ended with status {process.returncode}: {log.read()[-2000:].decode()}"
                raise EngineCrashed(message, status=process.returncode)
            said: dict[str, Any] = json.loads(answer)
            return said

        told = {"folder": str(work.folder), "prompts": work.prompts, "max_tokens": work.max_tokens}
        ask({**told, "settings": settings})
        yield lambda: Run.from_json(ask({}))
