"""Drawn tokens that have their law pass, at a stated error rate; a biased or silent engine is found."""

import numpy as np
import pytest
from scipy import stats

from oracle.contract.drawing import Limits, is_legal
from oracle.contract.findings import Findings, Kind
from oracle.contract.law_check import NUM_DRAWS, check_law, first_law, g_test, law_prompt, law_requests
from oracle.contract.referee import Judgement
from oracle.engines.declaration import EngineDeclaration
from oracle.engines.messages import EngineOutput, EngineRun, EngineSample

pytestmark = pytest.mark.without_shape_checks  # thousands of draws

EOS = (4, 5)
LIMITS = Limits(24, 128, EOS)
SHARES = np.array([0.35, 0.25, 0.15, 0.05, 0.12, 0.062, *np.full(18, 0.001)])
ROW = np.log(SHARES)
ALL = EngineDeclaration("all", parameters=("temperature", "seed", "top_k", "top_p", "min_p", "repetition_penalty"))
PLAIN = EngineDeclaration("plain", parameters=("temperature",))


class FixedReferee:
    """Says that one row of logits follows whatever is asked."""

    name = "fixed"

    def __init__(self, bound=1e-3):
        self._bound = bound

    def judge(self, token_ids):
        return Judgement(np.tile(ROW, (len(token_ids), 1)), self._bound)


class Sampler:
    """Draws first tokens from the law of a row, each with a fresh seed, until what it draws is spoiled."""

    def __init__(self, declaration, row=ROW, spoil=lambda token_id: token_id):
        self._declaration = declaration
        self._row = row
        self._spoil = spoil
        self._draws = np.random.Generator(np.random.Philox(key=5))
        self.num_together: set[int] = set()
        self._shares_by_setting: dict[object, np.ndarray] = {}

    def declare(self):
        return self._declaration

    def open(self, folder, knobs):
        del folder, knobs

    def close(self):
        pass

    def run(self, requests):
        self.num_together.add(len(requests))
        outputs = []
        for request in requests:
            setting = {name: value for name, value in request.parameters.items() if name != "seed"}
            token_id = int(self._draws.choice(24, p=self._shares_of(setting)))
            outputs.append(self._output(request, self._spoil(token_id)))
        return EngineRun(tuple(outputs))

    def _shares_of(self, setting):
        key = tuple(setting.items())
        if key not in self._shares_by_setting:
            law = first_law(Judgement(self._row[np.newaxis], 0.0), setting, PLAIN, LIMITS)
            self._shares_by_setting[key] = law.shares
        return self._shares_by_setting[key]

    def _output(self, request, token_id):
        if token_id is None:
            return EngineOutput(request.request_id, refused="no")
        is_hidden = token_id in EOS and not self._declaration.shows_stop_token
        return EngineOutput(request.request_id, (EngineSample(() if is_hidden else (token_id,)),))


def found(declaration, bound=1e-3, **fields):
    """Gives the settings whose law does not hold, and what was counted."""
    findings = Findings()
    results = check_law(Sampler(declaration, **fields), declaration, FixedReferee(bound), LIMITS, findings)
    assert all((finding.check, finding.kind, finding.place) == ("law", Kind.WRONG, 0) for finding, _ in results)
    assert all(request.max_tokens == 1 for _, request in results)
    return [finding.blame for finding, _ in results], findings.num_seen["law"], [one.message for one, _ in results]


def test_right_sampler_passes_in_every_setting():
    assert found(ALL)[:2] == ([], 7)


@pytest.mark.parametrize("bias", [0.8, -1.2])
def test_biased_sampler_is_found(bias):
    blames, _, messages = found(PLAIN, row=ROW + bias * (np.arange(24) == 0))
    assert blames == [("temperature",)] * 2
    assert "G-test p" in messages[0]


def test_temperature_that_is_not_applied_is_found():
    """Only settings of temperature 1 pass, where it makes no difference."""

    class Cold(Sampler):
        def _shares_of(self, setting):
            return super()._shares_of({**setting, "temperature": 1.0})

    results = check_law(Cold(PLAIN), PLAIN, FixedReferee(), LIMITS, Findings())
    assert ["{'temperature': 0.6}" in finding.message for finding, _ in results] == [True]


def test_engine_without_randomness_is_found():
    assert found(PLAIN, spoil=lambda _: 0)[0] == [("temperature",)] * 2


@pytest.mark.parametrize(("token_id", "words"), [(None, "gave no token"), (99, "gave no token"), (-1, "gave no token")])
def test_regression_draws_that_give_nothing_are_found(token_id, words):
    """Where every request was refused nothing was left to test, and that passed; a strange token ended the run."""
    blames, num_seen, messages = found(PLAIN, spoil=lambda _: token_id)
    assert blames == [("temperature",)] * 2
    assert num_seen == 2
    assert f"400 draws with {{'temperature': 1.0}}: 400 {words}" in messages[0]


def test_single_draw_that_gives_nothing_is_found():
    drawn = iter([None, *range(10**6)])
    assert found(PLAIN, spoil=lambda token_id: token_id if next(drawn) is not None else None)[0] == [("temperature",)]


def test_token_that_may_not_come_need_come_only_once():
    numbers = iter(range(10**6))
    blames, _, messages = found(
        EngineDeclaration("top_k", parameters=("temperature", "top_k")),
        spoil=lambda token_id: 3 if next(numbers) == 2 * NUM_DRAWS + 7 else token_id,
    )
    assert blames == [("temperature", "top_k")]
    assert "[3] came, and may not" in messages[0]


@pytest.mark.parametrize("shows_stop_token", [True, False])
def test_ends_that_are_left_out_count_as_well(shows_stop_token):
    """A fifth of all draws ends the request; without them the others' law would not hold."""
    declaration = EngineDeclaration("ends", parameters=("temperature",), shows_stop_token=shows_stop_token)
    assert found(declaration)[0] == []
    assert found(declaration, spoil=lambda token_id: 0 if token_id in EOS else token_id)[0] != []


def test_nothing_follows_of_tokens_whose_drawing_rounding_decides():
    """With so wide a bound, top_k 2 may keep either of three; of those for certain only one is left."""
    declaration = EngineDeclaration("top_k", parameters=("temperature", "top_k"), parameter_values={"top_k": [2]})
    near = ROW.copy()
    near[1], near[2] = ROW[2], ROW[1]
    assert ("temperature", "top_k") in found(declaration, row=near)[0]
    assert ("temperature", "top_k") not in found(declaration, row=near, bound=0.3)[0]


def test_draws_come_in_runs_that_the_engine_takes():
    sampler = Sampler(EngineDeclaration("few", parameters=("temperature",), max_num_requests=7))
    check_law(sampler, sampler.declare(), FixedReferee(), LIMITS, Findings())
    assert sampler.num_together == {7, NUM_DRAWS % 7}


def settings_of(declaration):
    return [dict(setting) for setting, _ in law_requests(declaration)]


def test_settings_are_those_that_the_engine_takes():
    assert len(settings_of(ALL)) == 7
    assert settings_of(PLAIN) == [{"temperature": 1.0}, {"temperature": 0.6}]
    assert settings_of(EngineDeclaration("greedy")) == []


def test_regression_settings_keep_to_values_and_exclusions():
    declaration = EngineDeclaration(
        "strict",
        parameters=("temperature", "seed", "top_k", "top_p", "min_p"),
        parameter_values={"temperature": [0.0, 0.7], "top_k": [4, 30]},
        excluded_parameters=(("top_k", "top_p"), ("min_p", "seed")),
        needed_parameters={"top_p": "top_k"},
    )
    assert settings_of(declaration) == [
        {"temperature": 0.7},
        {"temperature": 0.7, "top_k": 4},
        {"temperature": 0.7, "min_p": 0.1},
    ]
    for _, requests in law_requests(declaration):
        assert all(is_legal(declaration, request.parameters) for request in requests)


def test_each_draw_has_a_seed_of_its_own_where_requests_may_differ():
    (_, requests), *_ = law_requests(ALL)
    assert len({request.parameters["seed"] for request in requests}) == len(requests) == NUM_DRAWS
    assert len({request.request_id for request in requests}) == NUM_DRAWS


def test_draws_of_one_run_share_their_seed_where_the_engine_demands_it():
    declaration = EngineDeclaration("batch", parameters=("temperature", "seed"), shares_parameters=True)
    (_, requests), *_ = law_requests(declaration)
    runs = [requests[start : start + 8] for start in range(0, NUM_DRAWS, 8)]
    assert all(len({request.parameters["seed"] for request in run}) == 1 for run in runs)
    assert len({run[0].parameters["seed"] for run in runs}) == len(runs)


def test_prompt_is_as_long_as_the_engine_needs():
    assert len(law_prompt(ALL)) == 6
    assert len(law_prompt(EngineDeclaration("long", min_prompt_tokens=9))) == 9


def test_law_is_that_of_the_requests_parameters():
    judgement = Judgement(ROW[np.newaxis], 0.0)
    law = first_law(judgement, {"temperature": 0.5}, PLAIN, LIMITS)
    assert law.shares == pytest.approx(SHARES**2 / (SHARES**2).sum())
    law = first_law(judgement, {"temperature": 1.0, "top_k": 2}, PLAIN, LIMITS)
    assert law.shares[:3] == pytest.approx([0.35 / 0.6, 0.25 / 0.6, 0])
    assert np.flatnonzero(law.may_come).tolist() == [0, 1]
    penalised = first_law(judgement, {"temperature": 1.0, "repetition_penalty": 2.0}, PLAIN, LIMITS)
    in_prompt = np.isin(np.arange(24), law_prompt(PLAIN))
    expected = np.where(in_prompt, SHARES**2, SHARES)  # logits are negative, so that the prompt's double
    assert penalised.shares == pytest.approx(expected / expected.sum())


def test_law_of_left_out_ends_has_them_at_the_first():
    declaration = EngineDeclaration("hides", parameters=("temperature",), shows_stop_token=False)
    law = first_law(Judgement(ROW[np.newaxis], 0.0), {"temperature": 1.0}, declaration, LIMITS)
    assert law.shares[:7] == pytest.approx([0.35, 0.25, 0.15, 0.05, 0.182, 0.0, 0.001])
    assert np.flatnonzero(~law.may_come).tolist() == [5]
    endless = first_law(Judgement(ROW[np.newaxis], 0.0), {"temperature": 1.0}, declaration, Limits(24, 128))
    assert endless.shares == pytest.approx(SHARES)


@pytest.mark.parametrize("counts", [(40, 30, 30), (60, 25, 15), (10, 50, 40), (100, 0, 0)])
def test_g_test_is_that_of_scipy(counts):
    law = np.array([0.5, 0.3, 0.2])
    expected = stats.power_divergence(counts, law * 100, lambda_="log-likelihood").pvalue
    assert g_test(dict(enumerate(counts)), law) == pytest.approx(expected, rel=1e-9)


def test_g_test_takes_rare_tokens_together():
    law = np.array([0.5, 0.45, 0.02, 0.02, 0.01])
    counts = {0: 60, 1: 30, 2: 4, 3: 3, 4: 3}
    expected = stats.power_divergence([60, 30, 10], [50, 45, 5], lambda_="log-likelihood").pvalue
    assert g_test(counts, law) == pytest.approx(expected)


def test_g_test_takes_what_is_too_rare_together_with_the_least_of_the_others():
    law = np.array([0.5, 0.4, 0.09, 0.01])
    expected = stats.power_divergence([50, 30, 20], [50, 40, 10], lambda_="log-likelihood").pvalue
    assert g_test({0: 50, 1: 30, 2: 10, 3: 10}, law) == pytest.approx(expected)


def test_g_test_knows_what_cannot_be():
    law = np.array([0.5, 0.5, 0.0])
    assert g_test({0: 50, 1: 49, 2: 1}, law) == 0.0
    assert g_test({0: 50, 1: 50, 2: 0}, law) == 1.0
    assert g_test({}, law) == 1.0
    assert g_test({0: 100}, np.array([1.0, 0.0])) == 1.0


def test_g_test_rejects_no_more_often_than_it_says():
    """Laws with a long tail are where the limit law of the statistic is furthest off."""
    draws = np.random.Generator(np.random.Philox(key=3))
    law = np.append([0.5, 0.3, 0.15], np.full(40, 0.05 / 40))
    num_tests = 1000
    counts = draws.multinomial(NUM_DRAWS, law, size=num_tests)
    p_values = np.array([g_test(dict(enumerate(each.tolist())), law) for each in counts])
    assert (p_values < 0.01).mean() < 0.025
    assert (p_values < 0.5).mean() == pytest.approx(0.5, abs=0.05)
