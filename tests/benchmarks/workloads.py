"""The work that engines are given: a checkpoint, and requests that arrive at once and ignore the end of sequence."""

import json
import math
import os
import random
import shutil
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from debug.cost_of_invariance import WORKLOAD, write_model
from refinfer.errors import InvariantError
from refinfer.hub import resolve_model
from refinfer.hub.known_models import cache_folder
from refinfer.tokenizer import Tokenizer

SPREADS = {"uniform": 0.0, "moderate": 0.4, "high": 0.8, "extreme": 1.6}
"""How uneven answers are: the standard deviation of the logarithm of their lengths."""

_MEAN_ANSWER = 48
_LONGEST_ANSWER = 400
_PREFIX_FILE = Path(__file__).parent / "w3_prefix.json"
_CHATS = (
    "Which planets of the solar system have rings?",
    "Write a limerick about a lighthouse keeper.",
    "How do I boil an egg so that the yolk stays soft?",
    "Give three reasons to learn to swim as an adult.",
    "What does a compiler do, in two sentences?",
    "Turn this into a question: the train leaves at nine.",
    "Which is heavier, a litre of oil or a litre of water?",
    "Name four trees that keep their leaves in winter.",
)


@dataclass(frozen=True)
class Workload:
    """Requests and the checkpoint that answers them.

    Attributes:
        name: How tables name it.
        folder: The checkpoint.
        prompts: Token ids of each request.
        max_tokens: How many tokens each request emits.
    """

    name: str
    folder: Path
    prompts: tuple[tuple[int, ...], ...]
    max_tokens: tuple[int, ...]

    @property
    def num_output_tokens(self) -> int:
        """Tokens that all requests emit together."""
        return sum(self.max_tokens)

    @property
    def longest(self) -> int:
        """Tokens of the longest request, prompt and output together."""
        return max(len(prompt) + most for prompt, most in zip(self.prompts, self.max_tokens, strict=True))

    def first(self, num_requests: int | None, most: int | None = None) -> "Workload":
        """Gives the first requests alone, none of them with more than so many tokens; None cuts nothing."""
        max_tokens = self.max_tokens[:num_requests]
        if most is not None:
            max_tokens = tuple(min(most, own) for own in max_tokens)
        return replace(self, prompts=self.prompts[:num_requests], max_tokens=max_tokens)


def w1() -> Workload:
    """48 requests of 19 to 251 tokens that emit 20 to 183, on a random model of 6 layers."""
    described = _described()
    requests = described["requests"]
    return Workload(
        "W1",
        random_model("w1", described["model"]["config"]),
        tuple(tuple(request["prompt_token_ids"]) for request in requests),
        tuple(request["max_tokens"] for request in requests),
    )


def w2() -> Workload:
    """Eight conversations of one message, 64 tokens each, on SmolLM2-135M in float32.

    Raises:
        ConfigError: It was not fetched; `python -m refinfer fetch smollm2` does.
    """
    folder = resolve_model("smollm2")
    tokenizer = Tokenizer.from_folder(folder)
    prompts = tuple(tuple(tokenizer.encode_chat([{"role": "user", "content": text}])) for text in _CHATS)
    return Workload("W2", folder, prompts, (64,) * len(prompts))


def w3() -> Workload:
    """W1 with the same 256 tokens before every prompt."""
    work = w1()
    prefix = tuple(json.loads(_PREFIX_FILE.read_text(encoding="utf-8")))
    return replace(work, name="W3", prompts=tuple(prefix + prompt for prompt in work.prompts))


def uneven(spread: str, num_requests: int = 48, folder: Path | None = None) -> Workload:
    """Requests of one short prompt length whose answers differ in length as far as the spread says.

    All spreads ask for about as many tokens: the lengths are log-normal, scaled to one mean.

    Args:
        spread: One of `SPREADS`.
        num_requests: How many requests.
        folder: The checkpoint; W1's where it is left out.
    """
    chosen = random.Random(7)
    drawn = [math.exp(SPREADS[spread] * chosen.gauss(0, 1)) for _ in range(num_requests)]
    scale = _MEAN_ANSWER * num_requests / sum(drawn)
    max_tokens = tuple(min(_LONGEST_ANSWER, max(1, round(scale * length))) for length in drawn)
    prompts = tuple(tuple(chosen.randrange(1, 4096) for _ in range(32)) for _ in range(num_requests))
    return Workload(spread, w1().folder if folder is None else folder, prompts, max_tokens)


def random_model(name: str, config: dict[str, Any]) -> Path:
    """Gives the folder of a random model, which is written once; the last move puts it in place whole.

    Raises:
        InvariantError: Another model lies there.
    """
    folder = cache_folder() / "benchmarks" / name
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        written = Path(tempfile.mkdtemp(dir=folder.parent))
        write_model(written, config)
        try:
            os.replace(written, folder)  # noqa: PTH105 (a folder that somebody else wrote meanwhile is kept)
        except OSError:
            shutil.rmtree(written)
    if json.loads((folder / "config.json").read_text(encoding="utf-8")) != config:
        message = f"{folder} holds another model than {name}; remove it"
        raise InvariantError(message, folder=folder)
    return folder


@cache
def _described() -> dict[str, Any]:
    described: dict[str, Any] = json.loads(WORKLOAD.read_text(encoding="utf-8"))
    return described
