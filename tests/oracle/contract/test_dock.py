"""An engine in the dock is opened in many ways, judged in each, and what it gives is told whatever happens."""

from itertools import pairwise

import pytest

from oracle.contract.check_engine import check_engine
from oracle.contract.dock import Dock
from oracle.contract.judging import CHECKS
from oracle.contract.known import KnownDeviation
from oracle.contract.outcome import CheckVerdict
from oracle.contract.settings import DockSettings
from oracle.engines.messages import EngineRun
from oracle.errors import EngineCrashed, EngineHung, OracleError

pytestmark = pytest.mark.without_shape_checks

QUICK_CHECKS = tuple(check for check in CHECKS if check != "law")
"""The law takes hundreds of draws for each setting, and has tests of its own."""

KNOBS = {"block_size": [16, 4], "budget": [64, 8], "cache": [True, False]}


@pytest.fixture
def dock_of(scripted_referee, scripted_folder):
    """Puts an engine in the dock with a scripted referee; gives the dock."""

    def make(engine, on_progress=lambda _share, _words: None, **options):
        settings = DockSettings(
            **{
                "folder": scripted_folder,
                "open_referee": lambda _folder, _dtype: scripted_referee(),
                "num_constructions": 4,
                "num_runs": 3,
                "checks": QUICK_CHECKS,
                **options,
            }
        )
        return Dock(engine, settings, on_progress)

    return make


def test_right_engine_keeps_everything_over_every_pair_of_settings(dock_of, scripted_engine, declare):
    engine = scripted_engine(declare(contract="bitwise", knobs=KNOBS))
    report = dock_of(engine, num_runs=6).run()
    assert [row.check for row in report.rows() if row.verdict is CheckVerdict.FAIL] == []
    assert (report.failures, report.num_runs, len(report.opened)) == ([], 24, 4)
    assert {knobs["block_size"] for _, knobs in engine.opened} == {16, 4}
    assert engine.num_closed == 1
    assert report.witnesses["runs"] == len(engine.ran)
    assert 0 < report.engine_seconds <= report.seconds


def test_same_seed_asks_the_same_and_another_something_else(dock_of, scripted_engine):
    engines = [scripted_engine() for _ in range(3)]
    for engine, seed in zip(engines, (1, 1, 2), strict=True):
        dock_of(engine, seed=seed, num_constructions=1).run()
    assert engines[0].ran == engines[1].ran != engines[2].ran


def test_failure_is_kept_once_made_small_and_the_run_goes_on(dock_of, scripted_engine):
    def spoil(requests, run):
        is_long = [len(request.prompt_token_ids) > 4 for request in requests]
        return EngineRun(tuple(out for out, bad in zip(run.outputs, is_long, strict=True) if not bad), run.witnesses)

    report = dock_of(scripted_engine(spoil=spoil)).run()
    (failure,) = [own for own in report.failures if own.finding.check == "form"]
    assert failure.number > 1
    assert failure.is_repeatable
    assert [len(request.prompt_token_ids) for request in failure.scenario.requests] == [5]
    assert report.num_runs > 1
    assert report.verdict is CheckVerdict.FAIL


def test_checks_that_are_not_wanted_fail_nothing(dock_of, scripted_engine):
    engine = scripted_engine(spoil=lambda _, run: EngineRun((), run.witnesses))
    assert dock_of(engine, checks=("scores",)).run().failures == []


def test_way_of_opening_that_is_refused_is_told_and_the_next_one_tried(dock_of, scripted_engine, declare, refused):
    class Choosy(scripted_engine):  # type: ignore[valid-type, misc]
        def open(self, folder, knobs):
            if knobs["block_size"] == 4:
                message = "blocks of 4 are too small"
                raise refused(message)
            super().open(folder, knobs)

    report = dock_of(Choosy(declare(knobs=KNOBS))).run()
    assert {words for _, words in report.refused} == {"blocks of 4 are too small"}
    assert {way.knobs["block_size"] for way in report.opened} == {16}
    assert report.verdict is not CheckVerdict.FAIL


def test_regression_refusals_are_tried_on_the_first_way_of_opening_that_is_taken(
    dock_of, scripted_engine, declare, refused
):
    """They were tried on the first of all, and on none where that was refused."""

    class Choosy(scripted_engine):  # type: ignore[valid-type, misc]
        def open(self, folder, knobs):
            if knobs["block_size"] == 16:
                message = "blocks of 16 are too large"
                raise refused(message)
            super().open(folder, knobs)

    report = dock_of(Choosy(declare(knobs=KNOBS))).run()
    assert report.findings.num_seen["refusals"] > 0
    assert report.verdict is not CheckVerdict.FAIL


def test_engine_that_cannot_be_closed_is_a_failure_and_the_rest_is_told(dock_of, scripted_engine):
    class Stuck(scripted_engine):  # type: ignore[valid-type, misc]
        def close(self):
            message = "workers still run"
            raise RuntimeError(message)

    report = dock_of(Stuck(), num_constructions=1).run()
    assert [failure.finding.message for failure in report.failures] == ["EngineRaised: RuntimeError: workers still run"]
    assert report.num_runs == 3


def test_engine_that_crashes_on_something_illegal_fails_the_check_of_refusals(dock_of, scripted_engine):
    class Brittle(scripted_engine):  # type: ignore[valid-type, misc]
        def run(self, requests):
            if not requests[0].prompt_token_ids:
                message = "it ended with status 139"
                raise EngineCrashed(message)
            return super().run(requests)

    report = dock_of(Brittle(), num_constructions=1).run()
    assert [(failure.finding.check, failure.finding.blame) for failure in report.failures] == [
        ("refusals", ("an empty prompt",))
    ]
    assert [request.prompt_token_ids for request in report.failures[0].scenario.requests] == [()]


def test_known_failure_of_one_setting_does_not_hide_that_of_another(dock_of, scripted_engine, declare):
    def spoil(_, run):
        return EngineRun(run.outputs[:-1], run.witnesses)

    known = KnownDeviation("form", "waits", blame="missing", knobs=(("block_size", 16),))
    engine = scripted_engine(declare(knobs={"block_size": [16, 4]}), spoil=spoil)
    report = dock_of(engine, known=(known,), shrink_seconds=0.0, checks=("form",)).run()
    assert [failure.known for failure in report.failures] == [known, None]
    assert report.unmet == []
    assert report.verdict is CheckVerdict.FAIL


def test_engine_that_hangs_is_a_failure_and_the_run_goes_on(dock_of, scripted_engine, declare):
    class Hanging(scripted_engine):  # type: ignore[valid-type, misc]
        def run(self, requests):
            if len(requests) > 2:
                message = "the engine did not answer 'run' within 1 s"
                raise EngineHung(message)
            return super().run(requests)

    report = dock_of(Hanging(declare(knobs=KNOBS))).run()
    assert [failure.finding.blame for failure in report.failures if failure.finding.check == "alive"] == [
        ("EngineHung",)
    ]
    assert len(report.opened) == 4


def test_setting_is_held_to_a_value(dock_of, scripted_engine, declare):
    report = dock_of(scripted_engine(declare(knobs=KNOBS)), knobs={"block_size": 7}).run()
    assert {construction.knobs["block_size"] for construction in report.opened} == {7}
    assert len({repr(construction.knobs) for construction in report.opened}) > 1


def test_setting_that_the_engine_does_not_have_is_refused(dock_of, scripted_engine, declare):
    with pytest.raises(OracleError, match="no setting 'size'; it has"):
        dock_of(scripted_engine(declare(knobs=KNOBS)), knobs={"size": 7})


def test_requests_ask_for_nothing_but_what_is_named(dock_of, scripted_engine, declare):
    engine = scripted_engine(declare(parameters=("temperature", "top_k", "ignore_eos", "min_tokens")))
    dock_of(engine, parameters={"ignore_eos": None, "min_tokens": 1}, checks=("tokens",)).run()
    asked = [request.parameters for requests in engine.ran for request in requests]
    assert {name for parameters in asked for name in parameters} == {"ignore_eos", "min_tokens"}
    assert {parameters.get("min_tokens") for parameters in asked} == {None, 1}


def test_parameter_that_the_engine_does_not_take_is_refused(dock_of, scripted_engine, declare):
    with pytest.raises(OracleError, match="no parameter 'top_k'; it takes ignore_eos"):
        dock_of(scripted_engine(declare(parameters=("ignore_eos",))), parameters={"top_k": 3})


def test_time_budget_ends_the_drawing(dock_of, scripted_engine):
    report = dock_of(scripted_engine(), time_budget=0.0).run()
    assert (report.num_runs, report.interrupted) == (0, False)


def test_interrupted_run_tells_what_it_has_seen(dock_of, scripted_engine):
    class Interrupted(scripted_engine):  # type: ignore[valid-type, misc]
        def run(self, requests):
            if len(self.ran) > 20:
                raise KeyboardInterrupt
            return super().run(requests)

    engine = Interrupted()
    report = dock_of(engine).run()
    assert report.interrupted
    assert report.num_runs > 0
    assert engine.num_closed == 1


def test_progress_goes_from_nothing_to_everything(dock_of, scripted_engine):
    shares = []
    dock_of(scripted_engine(), lambda share, _: shares.append(share)).run()
    assert shares[0] == 0.0
    assert all(one <= other for one, other in pairwise(shares))
    assert shares[-1] < 1.0 + 1e-9


def test_function_for_scripts_runs_the_same(scripted_engine, scripted_referee, scripted_folder):
    engine = scripted_engine()
    report = check_engine(
        engine,
        model=scripted_folder,
        num_constructions=1,
        num_runs=2,
        checks=QUICK_CHECKS,
        open_referee=lambda _folder, _dtype: scripted_referee(),
    )
    assert report.num_runs == 2
    with pytest.raises(TypeError, match="luck"):
        check_engine(engine, luck=1)
