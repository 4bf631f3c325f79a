from __future__ import annotations

import threading

import pytest

from gemmetry.domain.dispatch import Configuration, Target, TargetKind
from gemmetry.domain.errors import Outcome, Verification
from gemmetry.domain.names import parse_operation
from gemmetry.domain.record import Verdict
from gemmetry.domain.settings import RunSettings
from gemmetry.engine import device as results
from gemmetry.engine.candidates import Candidate, RecordMaker
from gemmetry.engine.failures import Ending
from gemmetry.engine.jobs import job_of
from gemmetry.engine.store.rows import Lane
from gemmetry.engine.workers.protocol import Closed
from gemmetry.measurement.stopping import StopPolicy
from gemmetry.verification.checks import CheckOutcome, CheckResult

NAME = "matmul_8x8x8_f32t_f32t_f32t"
TARGET = Target(TargetKind.NULL)
PASSED = Verdict(status=Verification.PASSED)


class MemoryJournal:
    """Remembers what is stored, in order."""

    def __init__(self):
        self.experiment, self.stored = self, []
        self.completing = threading.Lock()

    def add_rounds(self, rounds, verdicts):
        self.stored.append((list(rounds), dict(verdicts)))

    def finish(self, records):
        self.stored[-1] += ({key: record.outcome for key, record in records.items()},)


@pytest.fixture
def journal():
    return MemoryJournal()


@pytest.fixture
def collected(journal, tmp_path):
    settings = RunSettings()
    maker = RecordMaker(settings, "env", tmp_path)
    return results.PendingResults(job_of(settings), StopPolicy(settings, TARGET), journal, maker)


def candidate(number):
    lane = Lane(0, "null", {}, TARGET)
    return Candidate(number, lane, parse_operation(NAME), NAME, Configuration("default"))


def test_results_are_stored_together_and_once(collected, journal):
    ended, going_on = candidate(1), candidate(2)
    for one in (ended, going_on):
        collected.add_verdict(one, PASSED)
    collected.add_round("a round")
    collected.end(ended, Ending(Outcome.CRASH, "it died"))
    assert collected.has_ended(ended)
    assert not collected.has_ended(going_on)
    collected.store()
    collected.store()
    assert journal.stored == [
        (["a round"], {2: PASSED}, {1: Outcome.CRASH}), ([], {}, {})
    ]  # fmt: skip
    assert not collected.has_ended(ended), "it is stored"


def test_quick_results_share_a_transaction(collected, journal, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(results.time, "monotonic", lambda: now[0])
    for wait in (1.0, results.STORE_EVERY_S / 2, results.STORE_EVERY_S):
        now[0] += wait
        collected.store_if_due()
    assert len(journal.stored) == 2


@pytest.mark.parametrize("outcome", [CheckOutcome.PASSED, CheckOutcome.FAILED])
def test_outputs_after_timing_decide(collected, journal, outcome):
    one = candidate(1)
    one.verdict = PASSED
    closed = Closed(1, CheckResult("after_timing", outcome, "element 3"), None, "evidence")
    is_wrong = outcome is CheckOutcome.FAILED
    assert collected.is_wrong_after_timing(one, closed, "tail") is is_wrong
    assert one.verdict.evidence_path == "evidence"
    assert collected.has_ended(one) is is_wrong


def test_devices_compute_their_results_one_after_another(collected, journal):
    """So that they are out of step from then on."""
    waiting = threading.Thread(target=collected.complete_all, args=([candidate(1)],))
    with journal.completing:
        waiting.start()
        waiting.join(0.05)
        assert waiting.is_alive() and not collected.has_ended(candidate(1))
    waiting.join()
    assert collected.has_ended(candidate(1))
