"""Drives vLLM: run as a file by the Python of the environment that holds it, with no other package than vLLM.

It reads one JSON object from standard input: `folder`, `prompts`, `max_tokens` and `settings`, which are those of
`vllm.LLM`. It answers with a line once the model is loaded, and then each line of input is a further run, answered by
one line: the fields of `tests.benchmarks.drivers.Run`.
"""

import json
import os
import sys
import time
from typing import Any


def main() -> None:
    """Serves runs until standard input ends."""
    # What vLLM prints goes to standard error; standard output is for answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    work = json.loads(sys.stdin.readline())
    engine, make_params = _load(work)
    _say(answers, {"is_ready": True})
    for _ in sys.stdin:
        _say(answers, _run(engine, work, make_params))


def _load(work: dict[str, Any]) -> tuple[Any, Any]:
    from vllm import LLM, SamplingParams  # noqa: PLC0415 (only after standard output has been turned away)

    llm = LLM(model=work["folder"], **work["settings"])
    return llm.llm_engine, SamplingParams


def _run(engine: Any, work: dict[str, Any], make_params: Any) -> dict[str, Any]:
    """Runs all requests, and notes after each step whose answer has grown."""
    token_ids: list[list[int]] = [[] for _ in work["prompts"]]
    times: list[list[float]] = [[] for _ in work["prompts"]]
    num_passes = 0
    start, processor_start = time.perf_counter(), time.process_time()
    for index, (prompt, most) in enumerate(zip(work["prompts"], work["max_tokens"], strict=True)):
        params = make_params(temperature=0.0, max_tokens=most, ignore_eos=True, detokenize=False)
        engine.add_request(str(index), {"prompt_token_ids": prompt}, params)
    while engine.has_unfinished_requests():
        outputs = engine.step()
        num_passes += 1
        now = time.perf_counter() - start
        for output in outputs:
            index = int(output.request_id)
            token_ids[index] = list(output.outputs[0].token_ids)
            times[index] += [now] * (len(token_ids[index]) - len(times[index]))
    seconds, processor_seconds = time.perf_counter() - start, time.process_time() - processor_start
    return {
        "seconds": seconds,
        "processor_seconds": processor_seconds,
        "token_ids": token_ids,
        "times": times,
        "num_passes": num_passes,
    }


def _say(answers: Any, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
