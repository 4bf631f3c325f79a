"""The kernels with planted bottlenecks compute on a GPU what the host's formulas give."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gemmetry.domain.dispatch import Target

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks/bottlenecks"))

import run
from planted_kernels import KERNELS, Planted

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("planted", KERNELS, ids=lambda planted: planted.name)
def test_both_variants_compute_what_the_formula_gives(gpu: Target, planted: Planted) -> None:
    with run.first_gpu() as architecture:
        for variant in ("mild", "severe"):
            row = run.measure(planted, variant, architecture, 1)
            assert row.blocks > 0
            assert row.microseconds > 0
