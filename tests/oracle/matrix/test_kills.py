import json
from dataclasses import replace

import pytest

from oracle.errors import ScenarioError
from oracle.matrix.kills import FaultRow, Kill, KillMatrix, Location
from oracle.scenario import RequestSpec, Scenario

KILL = Kill("cases", 3, 1.5, "request 0 differs")
CASE = Scenario((RequestSpec((1, 2, 3), max_tokens=2), RequestSpec((4,), max_tokens=1)))
ROW = FaultRow(
    "norm_epsilon",
    "model",
    ("refinfer/numerics/plain.py", "refinfer/model/norm.py"),
    ("batch",),
    ("greedy",),
    KILL,
    {"greedy": KILL},
    {"1e-3": KILL},
    {"cases": 20},
    CASE,
    Location(("refinfer/model/llama.py", "refinfer/model/norm.py"), "model: norm", 0.2),
)


def test_size_counts_requests_and_all_tokens():
    assert ROW.size == (2, 7)
    assert FaultRow("norm_epsilon", "model").size is None


def test_place_is_that_of_the_first_right_file():
    assert ROW.place == 1
    assert replace(ROW, sources=("refinfer/model/mlp.py",)).place is None
    assert replace(ROW, location=None).place is None


@pytest.mark.parametrize("row", [ROW, FaultRow("norm_epsilon", "model")], ids=["full", "empty"])
def test_row_survives_being_written(row):
    assert FaultRow.from_data(json.loads(json.dumps(row.to_data()))) == row


def test_matrix_survives_being_saved(tmp_path):
    matrix = KillMatrix((ROW,), {"seed": 0}, {"threads": 1})
    matrix.save(tmp_path / "matrix.json")
    assert KillMatrix.load(tmp_path / "matrix.json") == matrix


def test_matrix_of_another_format_is_refused(tmp_path):
    path = tmp_path / "matrix.json"
    path.write_text('{"format_version": 99}', encoding="utf-8")
    with pytest.raises(ScenarioError, match="format version 99"):
        KillMatrix.load(path)
