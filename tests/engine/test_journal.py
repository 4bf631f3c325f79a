from __future__ import annotations

from types import SimpleNamespace

from gemmetry.domain.errors import Verification
from gemmetry.domain.record import Message, Verdict
from gemmetry.engine.journal import Journal

RECORD = SimpleNamespace(verdict=Verdict(status=Verification.PASSED))


class Recorder:
    def __init__(self) -> None:
        self.calls = []

    def finish(self, records):
        self.calls.append(("finish", dict(records)))

    def add_rounds(self, rounds, verdicts):
        self.calls.append(("rounds", list(rounds)))

    def __call__(self, event):
        self.calls.append(("event", event))


def test_a_record_is_durable_before_it_is_reported():
    recorder = Recorder()
    Journal(recorder, recorder).finish({1: RECORD})
    (first, stored), (second, event) = recorder.calls
    assert (first, stored) == ("finish", {1: RECORD})
    assert (second, event.record) == ("event", RECORD)


def test_no_rounds_need_no_transaction():
    recorder = Recorder()
    journal = Journal(recorder, recorder)
    journal.add_rounds([], {})
    assert recorder.calls == []
    journal.warn("careful")
    assert recorder.calls == [("event", Message("careful", "warning"))]
