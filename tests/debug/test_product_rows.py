"""The script counts rows whose bits move, and says which instruction sets this processor lacks."""

import json

import pytest
import torch

from debug import product_rows
from debug.product_rows import ATEN_LEVELS, main
from oracle.inspection.script import EXIT_FOUND, EXIT_SHOWN
from refinfer.numerics.products import TiledProduct

FEW = ["--checkpoints", "1", "--rows", "40"]


def test_no_row_of_any_product_has_other_bits(capsys):
    assert main([*FEW, "--as-json"]) == EXIT_SHOWN
    counts = json.loads(capsys.readouterr().out)
    assert list(counts) == ["float32", "float64", "bfloat16", "float16"]
    assert all(products and changed == 0 and tried == 40 * products for products, changed, tried in counts.values())


@pytest.mark.parametrize(("size", "num_changed"), [(1, 320), (5, 40)])
def test_rows_with_other_bits_in_one_size_of_batch_are_counted(monkeypatch, capsys, size, num_changed):
    """The check at load does not see it, since its pass is remembered by shape."""
    call = TiledProduct.__call__

    def faulty(self, inputs):
        return call(self, inputs) * (1 + 1e-15 * (len(inputs) == size))

    monkeypatch.setattr("refinfer.numerics.self_check.depends_on_company", lambda *_: None)
    monkeypatch.setattr(TiledProduct, "__call__", faulty)
    assert main([*FEW, "--dtypes", "float64"]) == EXIT_FOUND
    assert f"│ {num_changed}/320" in capsys.readouterr().out


def test_every_instruction_set_is_tried_or_said_to_be_lacking(monkeypatch, capsys):
    held_sets = []

    def counted(_, held):
        held_sets.append(held)
        return {"float32": [1, 0, 40]}

    monkeypatch.setattr(product_rows, "_counts_elsewhere", counted)
    monkeypatch.setattr(product_rows, "_onednn_isa", lambda held: held["ONEDNN_MAX_CPU_ISA"][:4])
    assert main([*FEW, "--dtypes", "float32", "--every-isa"]) == EXIT_SHOWN
    lines = [line for line in capsys.readouterr().out.splitlines() if "CPU" in line]
    num_lacking = sum("lacks it" in line for line in lines)
    assert len(lines) - num_lacking + 1 == len(held_sets)
    # SSE4, AVX, AVX2, AVX5 and AVX1 are five different ones; torch goes up to what it found here
    usable = ATEN_LEVELS[: ATEN_LEVELS.index(torch.backends.cpu.get_cpu_capability().lower()) + 1]
    assert len(held_sets) == 1 + len(usable) + 5
