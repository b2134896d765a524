"""A check does what its options say, ends with the status of its worst verdict, and leaves what it found."""

import json

import pytest

from oracle.checkpoints import CheckpointSpec, cached_checkpoint
from oracle.commands import check
from oracle.commands.shared import EXIT_FAIL, EXIT_INTERRUPTED, EXIT_PASS, EXIT_USAGE, EXIT_VACUOUS
from oracle.errors import LogitsMismatch
from oracle.observation import Observation
from oracle.properties import PROPERTIES
from oracle.scenario import DTYPES
from oracle.subjects import MODES, RefinferSubject

pytestmark = pytest.mark.without_shape_checks


@pytest.fixture
def report_of(run, tmp_path):
    """Runs a check; gives its status and its report."""

    def checked(*arguments):
        path = tmp_path / "report.json"
        status, _, errors = run("check", *arguments, "--json", path)
        assert errors == ""
        return status, json.loads(path.read_text(encoding="utf-8"))

    return checked


def says_nothing(case, mode):
    """A property that is never witnessed."""
    del case, mode
    return Observation(witnessed=False)


def fails_on_two_requests(case, mode):
    """A property that fails on requests of three tokens or more."""
    if len(case.scenario.requests) > 1:
        message = f"{mode}: [bold]{len(case.scenario.requests)}[/] requests"
        raise LogitsMismatch(message)
    return Observation()


def test_check_passes_on_every_real_property(run, tmp_path):
    report = tmp_path / "report.json"
    status, output, _ = run("check", "--examples", 4, "--json", report)
    cells = json.loads(report.read_text(encoding="utf-8"))["cells"]
    assert {cell["failure"] for cell in cells} == {None}
    assert status in (EXIT_PASS, EXIT_VACUOUS)  # four cases need not witness everything
    assert "4 cases in" in output
    assert "0 fail" in output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json"]


@pytest.mark.parametrize(
    ("checks", "status"),
    [
        ((), EXIT_PASS),
        ((fails_on_two_requests,), EXIT_FAIL),
        ((fails_on_two_requests, says_nothing), EXIT_FAIL),
        ((says_nothing,), EXIT_VACUOUS),
    ],
    ids=["all pass", "one fails", "one fails and one is vacuous", "one is vacuous"],
)
def test_check_ends_with_the_status_of_its_worst_verdict(run, only, prop, checks, status):
    only(prop("good"), *(prop(f"property_{index}", check) for index, check in enumerate(checks)))
    assert run("check", "--examples", 10, "--modes", "static")[0] == status


def test_check_writes_failures_that_replay(run, only, prop, tmp_path):
    only(prop("bad", fails_on_two_requests))
    status, output, _ = run("check", "--examples", 10, "--modes", "static", "--failures", "kept")
    path = tmp_path / "kept" / "bad-static.json"
    assert status == EXIT_FAIL
    assert "FAIL bad × static: static: [bold]2[/] requests" in output
    assert f"run it again: python -m oracle replay {path.relative_to(tmp_path)}" in output
    status, output, _ = run("replay", path)
    assert status == EXIT_FAIL
    assert "bad × static: static: [bold]2[/] requests" in output


def test_check_runs_the_modes_it_is_given(report_of, only, prop):
    only(prop("good"))
    _, report = report_of("--examples", 2, "--modes", "static, none")
    assert [cell["mode"] for cell in report["cells"]] == ["static", "none"]


def test_check_holds_to_the_properties_it_is_given(report_of, only, prop):
    only(prop("left_away", fails_on_two_requests), prop("second"), prop("first"))
    status, report = report_of("--examples", 10, "--modes", "none", "--properties", "first, second")
    assert status == EXIT_PASS
    assert [cell["property"] for cell in report["cells"]] == ["first", "second"]


@pytest.mark.parametrize(("text", "dtypes"), [("float16", {"float16"}), ("bfloat16,float64", {"bfloat16", "float64"})])
def test_every_case_of_a_check_has_a_dtype_it_is_given(run, only, prop, text, dtypes):
    seen = set()

    def remembers(case, mode):
        del mode
        seen.add(case.scenario.dtype)
        return Observation()

    only(prop("remembers", remembers))
    # Draws vary with what else is imported, and follow each other by copies: few of them may have one dtype alone.
    asked = ("--examples", 40, "--modes", "none", "--dtypes", text, "--processes", 1)
    assert run("check", *asked)[0] == EXIT_PASS
    assert seen == dtypes


@pytest.mark.parametrize(("option", "num_threads"), [((), 1), (("--threads", 2), 2)], ids=["default", "two"])
def test_report_names_the_number_of_threads(report_of, only, prop, monkeypatch, option, num_threads):
    monkeypatch.setattr(check, "_require_sensitive_checkpoints", lambda: None)  # two threads would take half a minute
    only(prop("good"))
    assert report_of("--examples", 1, "--modes", "none", *option)[1]["environment"]["threads"] == num_threads


@pytest.mark.parametrize(
    ("option", "choices"),
    [("properties", [prop.name for prop in PROPERTIES]), ("dtypes", DTYPES), ("modes", MODES)],
    ids=["properties", "dtypes", "modes"],
)
def test_check_refuses_a_name_and_says_which_there_are(run, option, choices):
    status, output, errors = run("check", f"--{option}", f"{choices[0]},no_such")
    assert status == EXIT_USAGE
    assert output == ""
    assert f"'no_such' is unknown; choose among {', '.join(choices)}" in errors


def test_check_stops_when_time_is_up(run, only, prop):
    only(prop("good"))
    status, output, _ = run("check", "--examples", 5, "--time-budget", 0)
    assert status == EXIT_VACUOUS
    assert "0 cases in" in output


def test_interrupted_check_still_reports(run, only, prop):
    calls: list[None] = []

    def interrupted(case, mode):
        del case, mode
        calls.append(None)
        if len(calls) > 3:
            raise KeyboardInterrupt
        return Observation()

    only(prop("good", interrupted, modes=("none",)))
    status, output, _ = run("check", "--examples", 10)
    assert "3 cases in" in output
    assert "(interrupted)" in output
    assert status == EXIT_INTERRUPTED


def test_same_seed_prints_the_same_figures(run, tmp_path):
    tables = []
    for name in ("first", "second"):
        report = tmp_path / f"{name}.json"
        run("check", "--examples", 3, "--seed", 4, "--modes", "none", "--json", report)
        tables.append(json.loads(report.read_text(encoding="utf-8"))["cells"])
    assert tables[0] == tables[1]


def test_number_of_processes_changes_neither_figures_nor_digests(run, tmp_path):
    seen = []
    for num_processes in (1, 2):
        report, digests = tmp_path / "report.json", tmp_path / "digests.txt"
        options = ("--examples", 12, "--modes", "none,paged", "--properties", "greedy_tokens,bits")
        run("check", *options, "--processes", num_processes, "--json", report, "--digests", digests)
        cells = json.loads(report.read_text(encoding="utf-8"))["cells"]
        seen.append((cells, digests.read_text(encoding="utf-8")))
    assert seen[0] == seen[1]


def test_check_on_a_given_checkpoint_changes_nothing_in_it(run, tmp_path):
    folder = cached_checkpoint(CheckpointSpec(seed=1))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    report = tmp_path / "report.json"
    status, output, _ = run("check", "--model", folder, "--examples", 2, "--json", report)
    cells = json.loads(report.read_text(encoding="utf-8"))["cells"]
    assert status in (EXIT_PASS, EXIT_VACUOUS)
    assert "0 fail" in output
    assert "broken_checkpoints" not in {cell["property"] for cell in cells}
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_check_refuses_a_report_that_cannot_be_written(run, only, prop, tmp_path):
    only(prop("good"))
    status, _, errors = run("check", "--examples", 1, "--json", tmp_path / "no folder" / "report.json")
    assert status == EXIT_USAGE
    assert "report.json" in errors


def test_digests_have_a_line_for_each_emitted_token_of_each_mode(run, only, prop, tmp_path):
    runs = []

    def remembers(case, mode):
        manner = "invariant" if case.scenario.batch_invariant else "plain"
        nums_tokens = [len(record.output_token_ids) for record in case.records(mode)]
        runs.append((f"{case.scenario.dtype} {manner} {mode}", nums_tokens))
        return Observation()

    only(prop("remembers", remembers))
    path = tmp_path / "digests.txt"
    run("check", "--examples", 4, "--modes", "static,none", "--seed", 5, "--digests", path)
    lines = path.read_text(encoding="utf-8").splitlines()
    head = [line for line in lines if line.startswith("# ")]
    assert head[:2] == ["# refinfer digests 1", "# seed 5"]
    assert "# threads 1" in head
    assert len(runs) == 8
    assert [line.rpartition(" ")[0] for line in lines[len(head) :]] == [
        f"case {place // 2} {name} request {index} row {row}"
        for place, (name, nums_tokens) in enumerate(runs)
        for index, num_tokens in enumerate(nums_tokens)
        for row in range(num_tokens)
    ]


def test_digests_follow_from_the_seed(run, only, prop, tmp_path):
    only(prop("good"))
    texts = []
    for seed in (3, 3, 4):
        path = tmp_path / "digests.txt"
        run("check", "--examples", 3, "--modes", "static", "--seed", seed, "--digests", path)
        texts.append(path.read_text(encoding="utf-8"))
    assert texts[0] == texts[1]
    assert texts[0].splitlines()[-1] != texts[2].splitlines()[-1]


def test_digests_say_where_a_subject_raised(run, only, prop, monkeypatch, tmp_path):
    """Its line stands among those of the modes that ran, and the search for the smallest case adds none."""
    original = RefinferSubject.run

    def raises(subject, requests):
        if subject.name == "static":
            raise IndexError
        return original(subject, requests)

    monkeypatch.setattr(RefinferSubject, "run", raises)
    only(prop("runs", lambda case, mode: Observation(witnessed=bool(case.records(mode)))))
    path = tmp_path / "digests.txt"
    arguments = ("--examples", 2, "--modes", "none,static", "--dtypes", "float64", "--digests", path)
    assert run("check", *arguments)[0] == EXIT_FAIL
    lines = path.read_text(encoding="utf-8").splitlines()
    raised = [line for line in lines if "raised" in line]
    assert [line.replace("invariant", "plain") for line in raised] == [
        "case 0 float64 plain static raised IndexError",
        "case 1 float64 plain static raised IndexError",
    ]
    assert {line.split()[4] for line in lines if line.startswith("case") and line not in raised} == {"none"}


def test_check_sees_a_bug_that_it_is_told_to_plant(run):
    arguments = ("check", "--properties", "reference_logits", "--modes", "none", "--examples", 8, "--dtypes", "float32")
    status, output, _ = run(*arguments, "--fault", "norm_epsilon")
    assert status == EXIT_FAIL
    assert "run it again: python -m oracle replay" in output
    assert run(*arguments)[0] == EXIT_PASS, "the bug is gone"


@pytest.mark.parametrize("options", [("--processes", 2), ("--engine", "mlx-lm"), ("--command", "true")])
def test_check_plants_a_bug_in_this_process_only(run, options):
    status, _, errors = run("check", "--fault", "norm_epsilon", *options)
    assert status == EXIT_USAGE
    assert "leave engines and --processes away" in errors


def test_check_refuses_an_unknown_bug(run):
    status, _, errors = run("check", "--fault", "none_such")
    assert status == EXIT_USAGE
    assert "faults --list" in errors
