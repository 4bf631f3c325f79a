from __future__ import annotations

import random

import msgspec
import pytest

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.errors import StorageError
from gemmetry.domain.events import DispatchFinished
from gemmetry.domain.names import parse_operation
from gemmetry.domain.outcome import Outcome
from gemmetry.domain.settings import RunSettings
from gemmetry.domain.target import Target, TargetKind
from gemmetry.engine import device as device_module
from gemmetry.engine.candidate import Candidate, RecordMaker
from gemmetry.engine.device import DeviceSession
from gemmetry.engine.protocol import Failure, Opened
from gemmetry.engine.worker_process import WorkerContext, WorkerProcess
from gemmetry.store.rows import Lane

NAME = "matmul_8x8x8_f32t_f32t_f32t"
TARGET = Target(TargetKind.NULL)


class MemoryJournal:
    """Stands in for the journal; remembers transactions in order."""

    def __init__(self) -> None:
        self.experiment = self
        self.transactions = []
        self.turns = []
        self.records = {}
        self.events = []

    def rounds(self, ids):
        return {}

    def verdicts(self, ids):
        return {}

    def add_rounds(self, rounds, verdicts):
        if rounds:
            self.transactions.append([(one.dispatch, one.round) for one in rounds])
            self.turns += [(one.document["turn"], one.round, one.dispatch) for one in rounds]

    def finish(self, records):
        self.records.update(records)
        for record in records.values():
            self.tell(DispatchFinished(record))

    def tell(self, event):
        self.events.append(event)


@pytest.fixture
def measure(tmp_path):
    """Measures configurations of the null provider in one session; the journal."""

    def go(configurations, lanes=1, **settings):
        values = {"verification_level": "quick", **settings}
        context = WorkerContext(
            settings=RunSettings(**values),
            generated=tmp_path / "generated",
            references=tmp_path / "references",
            failures=tmp_path / "failures",
            logs=tmp_path / "logs",
        )
        journal = MemoryJournal()
        records = RecordMaker(context.settings, "env", tmp_path)
        session = DeviceSession(TARGET, context, journal, records)
        candidates = [
            Candidate(
                number,
                Lane(number % lanes, "null", {}, TARGET),
                parse_operation(NAME),
                NAME,
                Configuration(configuration),
            )
            for number, configuration in enumerate(configurations)
        ]
        try:
            session.measure(candidates)
        finally:
            session.close()
        return journal

    return go


def outcomes(journal):
    return {r.configuration: str(r.outcome) for r in journal.records.values()}


def test_rounds_are_interleaved_and_differ_in_order(measure):
    names = ["factor_1p5", "factor_2", "factor_3", "factor_4", "factor_5", "factor_6"]
    journal = measure(names, lanes=2, interval_width=1e-9, min_samples=10, max_samples=40)
    # Rounds of 10, 20 and 10 samples; each pass over all six is stored before the next begins.
    passes = [one for transaction in journal.transactions for one in transaction]
    assert [number for _, number in passes] == [0] * 6 + [1] * 6 + [2] * 6
    orders = [[d for d, number in passes if number == n] for n in range(3)]
    assert all(sorted(order) == list(range(6)) for order in orders)
    assert len({tuple(order) for order in orders}) > 1
    expected = list(range(6))
    random.Random("42:0:0").shuffle(expected)
    assert orders[0] == expected, "the order is seeded"
    turns = {number: {t for t, n, _ in journal.turns if n == number} for number in range(3)}
    assert all(len(found) == 1 for found in turns.values()), "one turn for all of a pass"
    assert len(set.union(*turns.values())) == 3


def test_survivors_of_a_lost_worker_are_opened_again(measure, monkeypatch):
    """A worker dies while sampling: whoever it sampled is blamed, the others go on."""
    started = []
    original = WorkerProcess.__init__

    def remember(self, *arguments):
        started.append(self)
        original(self, *arguments)

    monkeypatch.setattr(WorkerProcess, "__init__", remember)
    monkeypatch.setattr(device_module, "STORE_EVERY_S", 0.0)
    killed = []

    class Killing(device_module.StopPolicy):
        def next_count(self, rounds, seconds_spent):
            if len(rounds) == 1 and not killed:
                killed.append(started[0].pid)
                started[0]._process.kill()
                started[0]._process.wait()
            return super().next_count(rounds, seconds_spent)

    monkeypatch.setattr(device_module, "StopPolicy", Killing)
    journal = measure(
        ["default", "fast", "factor_2"], interval_width=1e-9, min_samples=5, max_samples=20
    )
    assert killed
    assert sorted(outcomes(journal).values()) == ["crash", "ok", "ok"]
    assert len(started) == 2
    ok = [r for r in journal.records.values() if r.outcome is Outcome.OK]
    assert all(r.measurement.sample_count == 20 for r in ok)
    rounds = [one for transaction in journal.transactions for one in transaction]
    assert len(set(rounds)) == len(rounds)


def test_out_of_memory_beside_others_gets_a_second_chance_alone(measure):
    journal = measure(["default", "out_of_memory", "fast"])
    assert outcomes(journal) == {"default": "ok", "fast": "ok", "out_of_memory": "out_of_memory"}
    assert list(journal.records) == [0, 2, 1], "it was tried again after the others"


def test_a_worker_that_cannot_start_ends_its_dispatches_only_once(measure, monkeypatch):
    monkeypatch.setattr("gemmetry.engine.worker_process.sys.executable", "/bin/false")
    journal = measure(["default", "fast"])
    assert outcomes(journal) == {"default": "crash", "fast": "crash"}
    assert "status 1" in journal.records[0].reason


def test_a_crash_while_closing_is_told(measure):
    journal = measure(["default", "late"])
    assert outcomes(journal) == {"default": "ok", "late": "wrong"}
    assert journal.records[1].measurement is None


def test_a_full_disk_in_a_worker_is_no_fault_of_the_dispatch(measure, monkeypatch):
    """The run ends, and what was being measured has no row: it has its turn again."""
    original = WorkerProcess.receive

    def receive(self):
        reply = original(self)
        if isinstance(reply, Opened):
            full = Failure("StorageError", "No space left on device", "Free some space.")
            return msgspec.structs.replace(reply, failure=full)
        return reply

    monkeypatch.setattr(WorkerProcess, "receive", receive)
    with pytest.raises(StorageError, match="No space left") as raised:
        measure(["default"])
    assert raised.value.hint == "Free some space."
