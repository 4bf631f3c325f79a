"""Records of correct results with their medians, and experiments of them, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gemmetry.domain.errors import Outcome, Verification
from gemmetry.domain.record import Environment, Measurement, Record, ResultSet, Verdict
from gemmetry.verification.protocol import CHECKS

STANDARD = dict.fromkeys(("form", *(one.name for one in CHECKS)), "passed")


def record(
    operation: str, provider: str, configuration: str, ns: float | None, **changes: Any
) -> Record:
    """A verified result of a CPU; without `ns` one that was not measured."""
    measured = None if ns is None else Measurement(
        median_ns=ns, ci_low_ns=ns - ns / 1000, ci_high_ns=ns + ns / 1000, min_ns=ns * 0.99,
        p95_ns=ns * 1.01, sample_count=60, rounds=12, method="graph",
    )  # fmt: skip
    found = Record(
        dispatch=f"{operation}_{configuration}", provider=provider, target="cpu", device="cpu",
        operation=operation, configuration=configuration, outcome=Outcome.OK, distribution="normal",
        seed=1, flops=1, bytes=1, measurement=measured,
        verdict=Verdict(status=Verification.PASSED, checks=STANDARD),
    )  # fmt: skip
    return replace(found, **changes)


def rounds(one: Record, count: int = 12) -> dict[int, list[float]]:
    """Rounds of five samples with 0.1 % of noise around the median."""
    assert one.measurement is not None
    noise = np.random.default_rng(len(one.dispatch + one.provider)).normal(1, 1e-3, count)
    return {turn: [one.measurement.median_ns * noise[turn]] * 5 for turn in range(count)}


def results(
    *records: Record, environment: Environment | None = None, count: int = 12, **fields: Any
) -> ResultSet:
    """An experiment of these records, each with `count` rounds."""
    values: dict[str, Any] = {
        "title": "tuning", "rounds": lambda one: rounds(one, count),
        "samples": lambda one: [ns for each in rounds(one, count).values() for ns in each],
    }  # fmt: skip
    known = environment or Environment()
    environments = {records[0].environment_id if records else known.id: known}
    return ResultSet(records=list(records), **{"environments": environments, **values, **fields})
