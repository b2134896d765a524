"""Each engine has a turn in every round, the shortest run counts, and other tokens are seen."""

import json
from contextlib import contextmanager

from tests.benchmarks.comparison import compare, report_of
from tests.benchmarks.drivers import Run


def opener_of(seconds, token_ids, turns, name):
    """An engine whose runs take the given seconds, one after the other."""

    @contextmanager
    def opened(work):
        assert work.name == "tiny"
        left = iter(seconds)

        def run():
            turns.append(name)
            return Run(next(left), 0.5, token_ids, [[0.1] for _ in token_ids], 1)

        yield run

    return opened


def test_engines_take_turns_and_the_warm_up_is_not_counted(tiny):
    turns: list[str] = []
    told: list[str] = []
    openers = {
        "a": opener_of([1, 5, 3, 4], [[1], [2]], turns, "a"),
        "b": opener_of([1, 2, 9, 7], [[1], [3]], turns, "b"),
    }
    first, second = compare(tiny, openers, 3, told.append)
    assert turns == told == ["a", "b"] * 4
    assert [run.seconds for run in first.runs] == [5, 3, 4]
    assert (first.best.seconds, second.best.seconds) == (3, 2)
    assert (first.num_equal, second.num_equal) == (2, 1)
    assert len(first.loads) == 3


def test_tokens_that_differ_in_one_round_alone_are_seen(tiny):
    @contextmanager
    def fickle(_work):
        answers = iter([[[1]], [[1]], [[2]]])
        yield lambda: Run(1.0, 1.0, next(answers))

    (entry,) = compare(tiny, {"fickle": fickle}, 2)
    assert entry.num_equal == 0


def test_report_is_plain_data_with_what_it_depends_on(tiny):
    entries = compare(tiny, {"a": opener_of([1, 2], [[1, 2], [2]], [], "a")}, 1)
    report = report_of(tiny, entries)
    assert json.loads(json.dumps(report)) == report
    assert report["num_prompt_tokens"] == 10
    assert report["num_output_tokens"] == tiny.num_output_tokens
    assert {"torch", "threads", "cores"} <= set(report["environment"])
    (engine,) = report["engines"]
    assert engine["throughput"] == 1.5
    assert (engine["seconds"], engine["mean_ttft"], engine["num_passes"]) == ([2], 0.1, 1)
