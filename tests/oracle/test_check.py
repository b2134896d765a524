"""The checker fills every cell, whatever happens in one of them."""

from dataclasses import replace
from pathlib import Path

import pytest

from oracle.check import Checker, CheckSettings
from oracle.errors import InsensitiveModelError, InvariantViolation, LogitsMismatch, ReferenceUnavailable
from oracle.observation import Observation
from oracle.properties import Property
from oracle.strategies import model_scenarios
from oracle.verdicts import Failure, Verdict
from refinfer.errors import RefinferError

pytestmark = pytest.mark.without_shape_checks

MODES = ("none", "static", "continuous")
NUM_EXAMPLES = 25


def holds(case, mode):
    """A property that always holds and is always witnessed."""
    del case, mode
    return Observation()


def says_nothing(case, mode):
    """A property that is never witnessed."""
    del case, mode
    return Observation(witnessed=False)


def fails_on_three_tokens(case, mode):
    """A property that fails on requests of three tokens or more."""
    for request in case.scenario.requests:
        if len(request.prompt_token_ids) >= 3:
            message = f"{mode}: {len(request.prompt_token_ids)} tokens"
            raise LogitsMismatch(message)
    return Observation()


def raising(error):
    """A property that raises an error on every case but the simplest."""

    def check(case, mode):
        del mode
        if len(case.scenario.requests) > 1:
            raise error
        return Observation()

    return check


def prop(name, check, **settings):
    """A property for a test."""
    return Property(name, "Does it hold?", check, **settings)


def settings_of(*properties, **changes):
    """What a check of some properties runs, on cases that need no checkpoint."""
    settings = CheckSettings(
        modes=MODES,
        strategy=model_scenarios(vocab_size=50),
        folder=Path("nowhere"),
        num_examples=NUM_EXAMPLES,
        seed=0,
        properties=properties,
    )
    return replace(settings, **changes)


def run(*properties, **changes):
    """The cells of a check, by property and mode, and the checker."""
    checker = Checker(settings_of(*properties, **changes))
    return {(cell.property_name, cell.mode): cell for cell in checker.run()}, checker


def test_every_property_has_a_cell_for_each_of_its_modes():
    cells, checker = run(prop("all", holds), prop("one", holds, modes=("static",)), modes=("none", "static"))
    assert list(cells) == [("all", "none"), ("all", "static"), ("one", "static")]
    assert {cell.verdict for cell in cells.values()} == {Verdict.PASS}
    assert {cell.num_examples for cell in cells.values()} == {NUM_EXAMPLES}
    assert checker.num_cases == NUM_EXAMPLES


def test_failing_property_stops_no_other_cell():
    cells, _ = run(prop("bad", fails_on_three_tokens, modes=("static",)), prop("good", holds))
    assert cells["bad", "static"].verdict is Verdict.FAIL
    for mode in MODES:
        assert cells["good", mode].verdict is Verdict.PASS
        assert cells["good", mode].num_examples == NUM_EXAMPLES


def test_failing_property_is_shrunk_in_each_of_its_cells():
    cells, _ = run(prop("bad", fails_on_three_tokens))
    for (_, mode), cell in cells.items():
        assert cell.failure is not None
        assert cell.failure.message == f"{mode}: 3 tokens"
        assert cell.failure.scenario is not None
        (request,) = cell.failure.scenario.requests
        assert request.prompt_token_ids == (0, 0, 0)


def test_failing_property_keeps_its_first_case_when_nothing_is_shrunk():
    cells, _ = run(prop("bad", fails_on_three_tokens), shrink=False)
    for cell in cells.values():
        assert cell.failure is not None
        assert cell.failure.scenario is not None
        assert len(cell.failure.scenario.requests) >= 1


def test_property_that_is_never_witnessed_is_vacuous():
    cells, _ = run(prop("empty", says_nothing), prop("good", holds))
    assert {mode: cells["empty", mode].verdict for mode in MODES} == dict.fromkeys(MODES, Verdict.VACUOUS)
    assert cells["good", "none"].verdict is Verdict.PASS


def test_property_of_another_dtype_is_vacuous():
    cells, _ = run(prop("half", holds, dtypes=("float16",)))
    assert {cell.verdict for cell in cells.values()} == {Verdict.VACUOUS}
    assert {cell.num_examples for cell in cells.values()} == {0}


def test_property_that_changes_checkpoints_is_left_out_when_one_is_given():
    cells, _ = run(prop("breaks", holds, is_generated_only=True), prop("good", holds))
    assert ("breaks", "none") not in cells


@pytest.mark.parametrize(
    "error",
    [
        RefinferError("of ours"),
        InvariantViolation("of the harness"),
        AssertionError("in the subject"),
        AttributeError("no such thing"),
        ValueError("of a kind"),
        OSError("no file"),
        RuntimeError("of torch"),
        StopIteration(),
        MemoryError("too much"),
        ExceptionGroup("several", [ValueError("inner")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_any_error_of_a_subject_is_a_failure_that_names_its_type(error):
    cells, _ = run(prop("bad", raising(error), modes=("static",)), prop("good", holds))
    failure = cells["bad", "static"].failure
    assert failure is not None
    assert failure.message.startswith(f"{type(error).__name__}: ")
    assert failure.scenario is not None
    assert len(failure.scenario.requests) == 2
    assert cells["good", "static"].num_examples == NUM_EXAMPLES


@pytest.mark.parametrize("error", [ReferenceUnavailable("no model"), InsensitiveModelError("flat")])
def test_an_oracle_that_cannot_judge_ends_the_run(error):
    """That is no verdict about the subject, neither pass nor fail."""
    with pytest.raises(type(error), match=str(error)):
        run(prop("bad", raising(error)))


def test_failure_that_comes_and_goes_does_not_end_the_run():
    calls = []

    def fails_every_other_time(case, mode):
        calls.append(mode)
        if len(case.scenario.requests) > 1 and len(calls) % 2:
            message = "sometimes"
            raise LogitsMismatch(message)
        return Observation()

    cells, _ = run(prop("flaky", fails_every_other_time, modes=("none",)), prop("good", holds))
    failure = cells["flaky", "none"].failure
    assert failure is not None
    assert failure.message.startswith("sometimes (not every time")
    assert cells["good", "continuous"].verdict is Verdict.PASS


@pytest.mark.parametrize("stop_at_failure", [True, False])
def test_check_stops_at_the_first_failure_when_told_to(stop_at_failure):
    cells, checker = run(
        prop("bad", fails_on_three_tokens, modes=("none",)), prop("good", holds), stop_at_failure=stop_at_failure
    )
    assert cells["bad", "none"].verdict is Verdict.FAIL
    assert (checker.num_cases < NUM_EXAMPLES) is stop_at_failure


def test_no_case_is_checked_once_time_is_up():
    cells, checker = run(prop("good", holds), time_budget=0.0)
    assert checker.num_cases == 0
    assert {cell.verdict for cell in cells.values()} == {Verdict.VACUOUS}


def test_time_budget_ends_a_run_between_cases(monkeypatch):
    """The clock moves only when a case is checked, so the machine's speed decides nothing."""
    seconds = [0.0]
    monkeypatch.setattr("oracle.check.time.monotonic", lambda: seconds[0])

    def takes_its_time(case, mode):
        del case, mode
        seconds[0] += 2.0
        return Observation()

    _, checker = run(prop("slow", takes_its_time, modes=("none",)), time_budget=7.0)
    assert checker.num_cases == 4


def interrupting(at_call):
    """A property during whose nth check somebody presses Ctrl-C."""
    calls: list[object] = []

    def check(case, mode):
        del case, mode
        calls.append(None)
        if len(calls) == at_call:
            raise KeyboardInterrupt
        return Observation()

    return check


def test_interrupted_run_reports_what_it_has_seen():
    cells, checker = run(prop("good", holds), prop("interrupted", interrupting(10), modes=("none",)))
    assert checker.interrupted
    assert cells["good", "none"].num_examples == 9
    assert cells["good", "none"].verdict is Verdict.PASS
    assert cells["interrupted", "none"].num_examples == 9


def test_interrupted_run_shrinks_nothing():
    """Whoever interrupts wants an end."""
    checked = []

    def fails_and_counts(case, mode):
        checked.append(case.scenario)
        return fails_on_three_tokens(case, mode)

    cells, checker = run(
        prop("bad", fails_and_counts, modes=("none",)), prop("interrupted", interrupting(20), modes=("none",))
    )
    assert checker.interrupted
    failure = cells["bad", "none"].failure
    assert failure is not None
    assert failure.scenario == checked[-1]


def test_run_interrupted_while_shrinking_keeps_every_failure():
    """The first case that fails is seen a second time only when shrinking starts from it."""
    failed = []

    def fails_then_interrupts(case, mode):
        if case.scenario in failed:
            raise KeyboardInterrupt
        if len(case.scenario.requests) > 1 and mode == "static":
            failed.append(case.scenario)
            message = "two requests or more"
            raise LogitsMismatch(message)
        return Observation()

    cells, checker = run(prop("bad", fails_then_interrupts, modes=("static",)), modes=("none", "static"))
    assert checker.interrupted
    assert cells["bad", "static"].failure == Failure("two requests or more", failed[0])


def test_same_seed_gives_the_same_cells():
    first, _ = run(prop("bad", fails_on_three_tokens, modes=("none",)), prop("good", holds), seed=5)
    second, _ = run(prop("bad", fails_on_three_tokens, modes=("none",)), prop("good", holds), seed=5)
    assert first == second


def test_progress_is_told_after_every_case():
    counts: list[int] = []
    Checker(settings_of(prop("good", holds)), lambda report: counts.append(report.task.index)).run()
    assert counts == list(range(NUM_EXAMPLES))


def test_every_mode_sees_the_same_cases():
    seen: dict[str, list[object]] = {mode: [] for mode in MODES}

    def remembers(case, mode):
        seen[mode].append(case.scenario)
        return Observation()

    run(prop("good", remembers))
    assert seen["none"] == seen["static"] == seen["continuous"]
    assert len(seen["none"]) == NUM_EXAMPLES


def test_run_is_judged_as_a_whole():
    """Each case has one near tie in two tokens, which no single case may be failed for."""

    def half_tied(case, mode):
        del case, mode
        return Observation(num_positions=2, num_near_ties=1)

    cells, _ = run(prop("tied", half_tied, modes=("none",)))
    failure = cells["tied", "none"].failure
    assert failure is not None
    assert failure.scenario is None
    assert "near ties" in failure.message


def test_no_case_is_checked_twice():
    scenarios = []

    def remember(case, mode):
        del mode
        scenarios.append(case.scenario)
        return Observation()

    checker = Checker(settings_of(prop("remembers", remember, modes=("none",)), num_examples=60))
    checker.run()
    assert len(scenarios) == checker.num_cases == len(set(scenarios))
