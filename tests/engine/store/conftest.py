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
    def make(**changes: Any) -> Record:
        measurement = Measurement(
            median_ns=2.0, ci_low_ns=1.0, ci_high_ns=3.0, min_ns=1.0, p95_ns=3.0, sample_count=9
        )
        values: dict[str, Any] = {
            "dispatch": f"{OPERATIONS[0]}_default",
            "provider": "null",
            "target": "null",
            "device": "null:0",
            "operation": OPERATIONS[0],
            "configuration": "default",
            "outcome": Outcome.OK,
            "distribution": "offset_uniform",
            "seed": 42,
            "flops": 1024,
            "bytes": 768,
            "measurement": measurement,
            "environment_id": ENVIRONMENT.id,
        }
        values.update(changes)
        return Record(**values)

    return make


@pytest.fixture
def make_round() -> Callable[..., StoredRound]:
    def make(dispatch: int, number: int, *samples: float) -> StoredRound:
        return StoredRound(
            dispatch, number, Round(samples_ns=samples, method="simulated", seconds=0.5)
        )

    return make


@pytest.fixture
def open_experiment(make_plan: Callable[..., Plan]) -> Callable[..., Experiment]:
    """Creates or opens an experiment of two operations × two configurations."""

    def enumerate_plan() -> tuple[list[Lane], list[PlanBatch]]:
        lane = Lane(1, "null", {"threads": 1}, Target(TargetKind.NULL))
        rows = [(1, 1, 1, 1), (2, 1, 1, 2), (3, 2, 1, 1), (4, 2, 1, 2)]
        names = list(enumerate(OPERATIONS, 1))
        return [lane], [
            PlanBatch(names[:1], [(1, "default"), (2, "fast")], rows[:2]),
            PlanBatch(names[1:], [], rows[2:]),
        ]

    def make(path: Path, **arguments: Any) -> Experiment:
        options: dict[str, Any] = {
            "environment": ENVIRONMENT,
            "command": "gemmetry profile",
            "enumerate_plan": enumerate_plan,
        }
        plan = arguments.pop("plan", None) or make_plan(a=1)
        return Experiment.create_or_open(path, plan, **{**options, **arguments})

    return make
