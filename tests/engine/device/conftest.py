"""One device's session, without a store and, unless a test needs them, without processes."""

from __future__ import annotations

import threading

import pytest
from tests.engine import memory_workers

from gemmetry.domain.dispatch import Configuration, Target, TargetKind, parse_operation
from gemmetry.domain.record import DispatchFinished, StageProgress
from gemmetry.engine.candidates import Candidate, RecordMaker, job_of
from gemmetry.engine.device import DeviceSession
from gemmetry.engine.schema import Lane
from gemmetry.engine.slots import Budget, Slot, groups

NAME = "matmul_8x8x8_f32t_f32t_f32t"
TARGET = Target(TargetKind.NULL)


class MemoryJournal:
    """Stands in for the journal; remembers rounds by transaction, in order."""

    def __init__(self) -> None:
        self.completing = threading.Lock()
        self.experiment = self
        self.transactions = []
        self.alike = ["env"]
        self.records = {}
        self.events = []
        self.losses = 0

    @property
    def stored(self):
        """All rounds in order."""
        return [one for transaction in self.transactions for one in transaction]

    @property
    def outcomes(self):
        """Outcomes by configuration."""
        return {r.configuration: str(r.outcome) for r in self.records.values()}

    def progress(self, stage):
        """What was reported of a stage."""
        reported = [one for one in self.events if isinstance(one, StageProgress)]
        return [one for one in reported if one.stage is stage]

    def rounds(self, ids):
        return {}

    def verdicts(self, ids):
        return {}

    def add_rounds(self, rounds, verdicts):
        if rounds:
            self.transactions.append(list(rounds))

    def count_device_loss(self, number):
        self.losses += 1
        return self.losses

    def finish(self, records):
        assert not self.records.keys() & records.keys(), "a dispatch ends once"
        self.records.update(records)
        for record in records.values():
            self.publish(DispatchFinished(record))

    def publish(self, event):
        self.events.append(event)


@pytest.fixture
def memory_journal():
    return MemoryJournal()


@pytest.fixture
def measure(tmp_path, make_context):
    """Measures configurations of the null provider in one session; the journal. Its workers find
    everything right, unless an executor's `start` is given."""

    def go(
        configurations, lanes=1, start=None, trace_folder="", journal=None, most_open=None,
        operations=(NAME,), **settings,
    ):  # fmt: skip
        start = start or memory_workers.MemoryExecutor().start
        context = make_context(start, **{"verification_level": "quick", **settings})
        journal = journal or MemoryJournal()
        records = RecordMaker(context.settings, "env", tmp_path)
        budget = Budget(TARGET, job_of(context.settings))
        budget.most_open = most_open or budget.most_open
        session = DeviceSession(Slot(TARGET, "device", context), budget, journal, records)
        candidates = []
        for number, name in enumerate(configurations):
            lane = Lane(number % lanes, "null", {}, TARGET)
            operation = operations[number * len(operations) // len(configurations)]
            made = parse_operation(operation), operation, Configuration(name)
            candidates.append(Candidate(number, lane, *made))
            candidates[-1].trace_folder = str(trace_folder)
        try:
            session.measure(groups(candidates, budget))
        finally:
            session.pool.stop()
        return journal

    return go
