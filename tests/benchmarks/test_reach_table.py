"""The table of our kernels next to libraries, with providers that run on any machine."""

from __future__ import annotations

from contextlib import closing

import pytest
import reach_table

from gemmetry.cli.main import run
from gemmetry.engine.experiment import Experiment


def test_ratios_are_over_the_fastest_of_the_library(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(reach_table, "LIBRARIES", ("numpy",))
    folder, kernel = tmp_path / "experiment", tmp_path / "mine.py"
    kernel.write_text("def matmul(a, b):\n    return a @ b\n")
    status = run(
        ["profile", "--shapes", "64x64x64,64x96x32", "--dtypes", "f32", "--providers", "numpy",
         "--kernel", f"{kernel}:matmul", "--time-budget", "20ms", "--processes", "1",
         "--verification-level", "quick", "--experiment", str(folder)]
    )  # fmt: skip
    assert status == 0
    with closing(Experiment.open(folder)) as opened:
        found = list(reach_table.products(opened.result_set(), "user"))
    assert [product.shape for product in found] == [(64, 64, 64), (64, 96, 32)]
    lines = reach_table.table(found).splitlines()
    assert lines[0].startswith("| M×N×K | ours µs | numpy µs | × numpy |")
    for line, product in zip(lines[2:4], found, strict=True):
        cells = [cell.strip() for cell in line.split("|")]
        library = product.evidence["numpy"].before.measurement
        ratio = library.median_ns / product.ours.measurement.median_ns
        assert float(cells[4].split()[0]) == pytest.approx(ratio, rel=0.5)
    assert lines[-1].startswith("Geometric mean of 2 products: ")
