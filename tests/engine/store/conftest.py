"""Plans, records and experiments for tests of the store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gemmetry.domain.dispatch import Plan, Target, TargetKind
from gemmetry.domain.errors import Outcome
from gemmetry.domain.record import Environment, Measurement, Record
from gemmetry.engine.experiment import Experiment
from gemmetry.engine.schema import Lane, PlanBatch, StoredRound
from gemmetry.measurement.stopping import Round

ENVIRONMENT = Environment(hostname="here")
OPERATIONS = ("matmul_8x8x8_f32t_f32t_f32t", "matmul_16x8x8_f32t_f32t_f32t")


@pytest.fixture
def make_plan() -> Callable[..., Plan]:
    def make(**document: Any) -> Plan:
        return Plan(name="store", operations=(), providers=(), targets=(), document=document)

    return make


@pytest.fixture
def make_record() -> Callable[..., Record]:
    """Makes a record; one whose outcome is not ok has a reason and no measurement."""
    interval = {"ci_low_ns": 1.0, "ci_high_ns": 3.0}
    measurement = Measurement(median_ns=2.0, min_ns=1.0, p95_ns=3.0, sample_count=9, **interval)
    usual: dict[str, Any] = {
        "dispatch": f"{OPERATIONS[0]}_default", "provider": "null", "target": "null",
        "device": "null:0", "operation": OPERATIONS[0], "configuration": "default",
        "distribution": "offset_uniform", "seed": 42, "flops": 1024, "bytes": 768,
        "environment_id": ENVIRONMENT.id,
    }  # fmt: skip

    def make(outcome: Outcome = Outcome.OK, **changes: Any) -> Record:
        is_ok = outcome is Outcome.OK
        ending = {"measurement": measurement} if is_ok else {"reason": "x"}
        return Record(outcome=outcome, **{**usual, **ending, **changes})

    return make


@pytest.fixture
def make_round() -> Callable[..., StoredRound]:
    def make(dispatch: int, number: int, *samples: float, **more: Any) -> StoredRound:
        taken = Round(samples_ns=samples, method="simulated", seconds=0.5, **more)
        return StoredRound(dispatch, number, taken)

    return make


@pytest.fixture
def open_experiment(tmp_path: Path, make_plan: Callable[..., Plan]) -> Callable[..., Experiment]:
    """Creates or opens an experiment of two operations × two configurations, in ``tmp_path`` if no
    folder is given."""

    def enumerate_plan() -> tuple[list[Lane], list[PlanBatch]]:
        lane = Lane(1, "null", {"threads": 1}, Target(TargetKind.NULL))
        rows = [(1, 1, 1, 1), (2, 1, 1, 2), (3, 2, 1, 1), (4, 2, 1, 2)]
        names = list(enumerate(OPERATIONS, 1))
        return [lane], [
            PlanBatch(names[:1], [(1, "default"), (2, "fast")], rows[:2]),
            PlanBatch(names[1:], [], rows[2:]),
        ]

    def make(folder: Path | str = "", *, hostname: str = "here", **arguments: Any) -> Experiment:
        plan = arguments.pop("plan", None) or make_plan(a=1)
        options = {"command": "gemmetry profile", "enumerate_plan": enumerate_plan, **arguments}
        options["environment"] = Environment(hostname=hostname)
        return Experiment.create_or_open(tmp_path / folder, plan, **options)

    return make
