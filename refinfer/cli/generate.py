"""`python -m refinfer generate`."""

import argparse
import re
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

from rich.console import Console

from refinfer.cli.terminal import say, write
from refinfer.config.engine_config import CACHES, DTYPES
from refinfer.engine.llm import LLM
from refinfer.engine.output import RequestOutput
from refinfer.errors import ConfigError, RequestError
from refinfer.sampling import SamplingParams

_MAX_TOKENS = 256
_STANDARD_INPUT = "-"


def add_generate(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command and its options."""
    parser = commands.add_parser(
        "generate",
        help="answer a prompt, token by token",
        description="Writes the answer to standard output as it comes.",
    )
    parser.add_argument("--model", required=True, help="a checkpoint folder, a fetched model's name, or a hub id")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--chat", action="store_true", help="put the prompt through the checkpoint's chat template")
    how.add_argument("--ids", action="store_true", help="the prompt is token ids, and so is the answer")
    parser.add_argument("--max-tokens", type=int, default=_MAX_TOKENS, metavar="N", help="default: %(default)s")
    parser.add_argument("--cache", choices=CACHES, default="continuous", help="default: %(default)s")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="default: %(default)s")
    parser.add_argument(
        "prompt", metavar="PROMPT", help="the prompt; - reads standard input and drops one line break at its end"
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    prompt = _read_prompt() if arguments.prompt == _STANDARD_INPUT else arguments.prompt
    params = SamplingParams(max_tokens=arguments.max_tokens)
    with _status(f"loading {arguments.model}"):
        llm = LLM(arguments.model, cache=arguments.cache, dtype=arguments.dtype)
    token_ids_or_text = _prepared(llm, prompt, as_chat=arguments.chat, as_ids=arguments.ids)
    _write_answer(llm.stream([token_ids_or_text], params), as_ids=arguments.ids)


def _read_prompt() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        message = f"standard input is not UTF-8 at byte {error.start}; convert it first"
        raise RequestError(message, position=error.start) from error


def _prepared(llm: LLM, prompt: str, *, as_chat: bool, as_ids: bool) -> str | list[int]:
    if as_ids:
        words = re.findall(r"[^\s,]+", prompt)
        if not all(word.isascii() and word.isdigit() for word in words):
            message = f"the prompt {prompt!r} is not token ids; give whole numbers with blanks or commas between them"
            raise RequestError(message, prompt=prompt)
        return [int(word) for word in words]
    if not as_chat:
        return prompt
    if llm.tokenizer is None:
        message = "this checkpoint has no tokenizer, so there is no chat; give token ids with --ids"
        raise ConfigError(message)
    return llm.tokenizer.encode_chat([{"role": "user", "content": prompt}])


def _status(text: str) -> AbstractContextManager[object]:
    console = Console(stderr=True)
    return console.status(text) if console.is_terminal else nullcontext()


def _write_answer(outputs: Iterator[RequestOutput], *, as_ids: bool) -> None:
    started = time.perf_counter()
    first_at = started
    num_written = 0
    completion = None
    try:
        for output in outputs:
            completion = output.outputs[0]
            if len(completion.token_ids) == 1:
                first_at = time.perf_counter()
            answer = " ".join(map(str, completion.token_ids)) if as_ids else completion.text or ""
            write(answer[num_written:])
            num_written = len(answer)
    finally:
        write("\n")
    if completion is not None and sys.stderr.isatty():
        say(
            _summary(
                len(completion.token_ids), completion.finish_reason, first_at - started, time.perf_counter() - first_at
            )
        )


def _summary(num_tokens: int, finish_reason: str | None, seconds_to_first: float, seconds_after: float) -> str:
    speed = f", then {(num_tokens - 1) / seconds_after:.1f} tokens/s" if num_tokens > 1 else ""
    return f"[{num_tokens} tokens, the first after {seconds_to_first:.2f} s{speed}; ended by {finish_reason}]"
