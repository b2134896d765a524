"""What does a failing property point at by itself, where nothing that was watched says more?"""

from oracle.explain import sources
from oracle.explain.bookkeeping_signs import known_by_words
from oracle.explain.failing_check import EFFECTS, SCHEDULES, STATE, SYMBOLIC, FailingCheck
from oracle.explain.suspicion import Moment, Suspect, Suspicion

_TOKENIZER = Suspect("tokenizer", "turning text into tokens", sources.TOKENIZER)
_DETOKENIZER = Suspect("detokenizer", "putting text together", sources.DETOKENIZER)
_REFUSALS = "refusing a broken checkpoint"
_SETTINGS = Suspect("loader", _REFUSALS, sources.CONFIG)
_ROPE_SETTINGS = Suspect("loader", _REFUSALS, (*sources.ROPE_CONFIG, *sources.CONFIG))
_NAMES = Suspect("loader", _REFUSALS, ("refinfer/model/checkpoint.py", "refinfer/model/weight_files.py"))
_FILES = Suspect("loader", _REFUSALS, ("refinfer/model/safetensors_file.py", "refinfer/model/weight_files.py"))

_BY_WORDS = {
    "text": (("encode", _TOKENIZER), ("put together", _DETOKENIZER), ("", _TOKENIZER)),
    "broken_checkpoints": (
        ("RoPE", _ROPE_SETTINGS),
        ("another ", _SETTINGS),
        ("sliding", _SETTINGS),
        ("file", _FILES),
        ("", _NAMES),
    ),
    "stopping": (("", Suspect("stop rules", "when a request ends", sources.STOPPING)),),
    "reference_bits": (
        ("", Suspect("model", "a pass without a cache", ("refinfer/model/llama.py", *sources.NUMERICS))),
    ),
}
"""By property, what words of its message point at."""

_OF_SCHEDULES = (STATE, SYMBOLIC, SCHEDULES, EFFECTS)
"""Checks that tell of broken invariants too, some of which are asked nowhere else."""


def property_signs(check: FailingCheck) -> list[Suspicion]:
    """Gives what a failing property points at, if it points at anything."""
    beginning = check.message.partition(":")[0]
    for words, suspect in _BY_WORDS.get(check.name, ()):
        if words in (beginning if check.name == "broken_checkpoints" else check.message):
            return [Suspicion(0, Moment.AFTER, 1, suspect, check.message)]
    told = known_by_words(check.message) if check.name in _OF_SCHEDULES else None
    return [] if told is None else [Suspicion(0, Moment.AFTER, 1, told, check.message)]
