"""The scripts of ``benchmarks/`` import each other by their plain names, as they do when one is
run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gemmetry.domain.errors import Outcome
from gemmetry.domain.record import Measurement, Record

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), *(str(BENCHMARKS / one) for one in ("audit", "bottlenecks"))]


OPERATION = "matmul_8x8x8_f32t_f32t_f32t"


def _record(median: float, configuration: str = "default", copy: int = 0, **facts: Any) -> Record:
    measurement = Measurement(
        median_ns=median, ci_low_ns=median * 0.99, ci_high_ns=median * 1.01, min_ns=median,
        p95_ns=median, sample_count=9, **facts,
    )  # fmt: skip
    return Record(
        dispatch=f"{OPERATION}_{configuration}", provider="torch", target="cpu", device="cpu",
        operation=OPERATION, configuration=configuration, configuration_parameters={"copy": copy},
        outcome=Outcome.OK, distribution="normal", seed=1, flops=1024, bytes=768,
        measurement=measurement,
    )  # fmt: skip


@pytest.fixture(scope="session")
def record() -> Callable[..., Record]:
    """Called with a median: a record whose interval is 1 % to either side."""
    return _record
