"""What does a damaged checkpoint cost: time beside the sound one's, memory beside its file, and what escapes?"""

import ctypes
import gc
import shutil
import statistics
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers.utils import logging

from oracle.checkpoints import CheckpointSpec, write_checkpoint
from oracle.damage import WORKS, damage, outcome

MAX_TIME_RATIO = 10.0
MAX_MEMORY_SHARE = 1.2
NUM_SOUND_RUNS = 5

SMALL = (
    CheckpointSpec(num_layers=1, vocab_size=300, eos_token_ids=(1, 6), with_tokenizer=True),
    CheckpointSpec(
        num_layers=1,
        vocab_size=300,
        num_shards=2,
        tie_word_embeddings=True,
        legacy_rope_keys=True,
        with_tokenizer=True,
    ),
)
LARGE = CheckpointSpec(
    num_layers=4,
    hidden_size=512,
    intermediate_size=1536,
    num_heads=8,
    num_kv_heads=4,
    head_dim=64,
    vocab_size=4000,
    with_tokenizer=True,
)
"""66 MB, so that a share of the file stands out of what the process takes beside it."""


def measured(
    num_cases: int, num_large: int, seed: int = 0, on_case: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Damages small checkpoints in so many ways, and a large one, and tells what became of each.

    Time is processor time. Memory is measured on the large one, in the plain manner, since the exact manner
    holds a packed copy of float32 weights beside them whether they are damaged or not.
    """
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        root = Path(name)
        small = [write_checkpoint(spec, root / f"small-{place}") for place, spec in enumerate(SMALL)]
        large = write_checkpoint(LARGE, root / "large")
        cases = [small[case % len(small)] for case in range(num_cases)] + [large] * num_large
        sound = {folder: _sound(folder, batch_invariant=folder is not large) for folder in (*small, large)}
        entries = []
        for case, folder in enumerate(cases):
            copy = root / "damaged"
            shutil.copytree(folder, copy)
            words = damage(copy, seed + case)
            on_case(f"{case}: {words}")
            entry = _entry(copy, batch_invariant=folder is not large)
            entry["time_ratio"] = entry["seconds"] / sound[folder]["seconds"]
            entries.append(entry | {"seed": seed + case, "damage": words, "is_large": folder is large})
            shutil.rmtree(copy)
    size = sound[large]["file_bytes"]
    for entry in [*entries, sound[large]]:
        entry["memory_share"] = entry["memory"] / size
    return _report(entries, sound[large])


def _report(entries: list[dict[str, Any]], sound_large: dict[str, Any]) -> dict[str, Any]:
    on_large = [entry for entry in entries if entry["is_large"]]
    slowest = max(entries, key=lambda entry: entry["time_ratio"])
    heaviest = max(on_large, key=lambda entry: entry["memory_share"], default=sound_large)
    escaped = [entry for entry in entries if entry["escaped"]]
    is_over = slowest["time_ratio"] > MAX_TIME_RATIO or heaviest["memory_share"] > MAX_MEMORY_SHARE
    return {
        "outcomes": dict(Counter(entry["outcome"] for entry in entries).most_common()),
        "slowest": slowest,
        "heaviest": heaviest,
        "sound_memory_share": sound_large["memory_share"],
        "escaped": escaped,
        "is_bad": is_over or bool(escaped),
    }


def _sound(folder: Path, *, batch_invariant: bool) -> dict[str, Any]:
    outcome(folder, batch_invariant=batch_invariant)  # what is made once in a process is made now
    entries = [_entry(folder, batch_invariant=batch_invariant) for _ in range(NUM_SOUND_RUNS)]
    assert all(entry["outcome"] == WORKS for entry in entries), entries
    seconds = statistics.median(entry["seconds"] for entry in entries)
    file_bytes = sum(path.stat().st_size for path in folder.iterdir())
    return entries[-1] | {"seconds": seconds, "file_bytes": file_bytes}


def _entry(folder: Path, *, batch_invariant: bool) -> dict[str, Any]:
    idle = _reset_peak()
    start = time.process_time()
    escaped = False
    try:
        word = outcome(folder, batch_invariant=batch_invariant)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is what is looked for
        word, escaped = f"{type(error).__name__}: {str(error)[:100]}", True
    seconds = time.process_time() - start
    return {"outcome": word, "escaped": escaped, "seconds": seconds, "memory": _status("VmHWM") - idle}


def _reset_peak() -> int:
    """Gives what is unused back to the system, and begins the peak of the memory anew; gives the memory in use."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # 5 means the peak
    return _status("VmRSS")


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))
