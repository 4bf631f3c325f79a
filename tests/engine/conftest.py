"""Plans for the null provider and a way to run them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gemmetry.domain.dtypes import F32
from gemmetry.domain.events import Event
from gemmetry.domain.operation import MatmulShape, Operation, OperationKind, Signature
from gemmetry.domain.outcome import Stage
from gemmetry.domain.plan import Plan, ProviderRequest
from gemmetry.domain.record import Record
from gemmetry.domain.settings import RunSettings
from gemmetry.domain.target import Target, TargetKind
from gemmetry.engine import RunSummary, run
from gemmetry.store.experiment import Experiment

SIGNATURE = Signature(OperationKind.MATMUL, F32, F32, F32)
DEADLINES = dict.fromkeys(Stage, 20.0)


class Ran:
    """A finished run: summary, events, records by configuration (of the last operation)."""

    def __init__(self, summary: RunSummary, events: list[Event], records: list[Record]) -> None:
        self.summary = summary
        self.events = events
        self.records = records

    def __getitem__(self, configuration: str) -> Record:
        (record,) = [r for r in self.records if r.configuration == configuration]
        return record

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def make_plan() -> Callable[..., Plan]:
    """A plan of `sizes` (M of an Mx8x8 matmul) for the null provider's `configurations`."""

    def make(
        configurations: Sequence[str] = (),
        *,
        sizes: Sequence[int] = (8,),
        options: dict[str, Any] | None = None,
        targets: Sequence[Target] = (Target(TargetKind.NULL),),
        providers: Sequence[ProviderRequest] | None = None,
        deadlines_s: dict[Stage, float] | None = None,
        plan: dict[str, Any] | None = None,
        **settings: Any,
    ) -> Plan:
        options = {"configurations": list(configurations), **(options or {})}
        values: dict[str, Any] = {
            "verification_level": "quick",
            "deadlines_s": {**DEADLINES, **(deadlines_s or {})},
            "jobs": 2,
        }
        values.update(settings)
        return Plan(
            name="engine",
            operations=tuple(Operation(SIGNATURE, MatmulShape(size, 8, 8)) for size in sizes),
            providers=tuple(providers or (ProviderRequest(name="null", options=options),)),
            targets=tuple(targets),
            settings=RunSettings(**values),
            document={"configurations": list(configurations), "sizes": list(sizes)},
            **(plan or {}),
        )

    return make


@pytest.fixture
def run_plan(tmp_path: Path) -> Callable[..., Ran]:
    """Runs a plan in ``tmp_path/experiment``."""

    def go(plan: Plan, **arguments: Any) -> Ran:
        events: list[Event] = []
        folder = arguments.pop("folder", tmp_path / "experiment")
        summary = run(plan, folder, listener=events.append, **arguments)
        with Experiment.open(folder) as experiment:
            return Ran(summary, events, list(experiment.records()))

    return go
