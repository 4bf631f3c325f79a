from __future__ import annotations

import threading

import pytest

from gemmetry.domain.errors import DeviceLostError, Outcome, Stage, StorageError
from gemmetry.domain.record import StageProgress
from gemmetry.domain.settings import TraceSchedule
from gemmetry.engine.protocol import Answered, Entered, Failure, LeftBehind, Open, Opened, Sample


def opening(memory_workers, reply_to):
    """An executor whose workers answer a request to open `wire` with ``reply_to(wire)``."""

    def answer(request):
        if not isinstance(request, Open):
            return memory_workers.healthy_answers(request)
        return [*(reply for wire in request.dispatches for reply in reply_to(wire)), Answered()]

    return memory_workers.MemoryExecutor(lambda: memory_workers.MemoryChannel(answer))


def test_a_dispatch_that_fails_ends_in_the_stage_that_it_had_entered(measure, memory_workers):
    def reply_to(wire):
        entered, opened = memory_workers.opened(wire)
        if wire.id == 1:
            failure = Failure("LaunchError", "not here")
            opened = Opened(wire.id, opened.facts, None, failure, "", 0)
        return [Entered(wire.id, Stage.BUILD), entered, opened]

    journal = measure(["default", "fast"], executor=opening(memory_workers, reply_to))
    assert journal.records[0].outcome is Outcome.OK
    failed = journal.records[1]
    assert (failed.outcome, failed.stage) == (Outcome.LAUNCH_ERROR, Stage.VERIFY)
    assert failed.reason == "not here"


def test_a_dispatch_that_is_too_slow_is_skipped(measure, memory_workers):
    def reply_to(wire):
        *_, opened = memory_workers.opened(wire)
        return [Opened(wire.id, opened.facts, None, None, "one launch took 99 s", 0)]

    (record,) = measure(["default"], executor=opening(memory_workers, reply_to)).records.values()
    assert (record.outcome, record.reason) == (Outcome.SKIPPED, "one launch took 99 s")
    assert record.measurement is None


def test_processes_left_running_are_in_the_record(measure, memory_workers):
    def reply_to(wire):
        return [LeftBehind(wire.id, ("sleep (process 7)",)), *memory_workers.opened(wire)]

    (record,) = measure(["default"], executor=opening(memory_workers, reply_to)).records.values()
    assert any("sleep (process 7)" in mark for mark in record.measurement.marks)


@pytest.mark.parametrize(("broken", "expected"), [(9, [(1, 2), (2, 2)]), (1, [(1, 2), (1, 1)]),
                                                  (0, [(1, 1)])])  # fmt: skip
def test_progress_counts_what_is_verified(measure, memory_workers, broken, expected):
    """What ends before it is verified does not count."""

    def reply_to(wire):
        entered, opened = memory_workers.opened(wire)
        if wire.id != broken:
            return [entered, opened]
        return [Opened(wire.id, opened.facts, None, Failure("CompileError", "no"), "", 0)]

    journal = measure(["default", "fast"], executor=opening(memory_workers, reply_to))
    counted = [
        (one.done, one.total)
        for one in journal.events
        if isinstance(one, StageProgress) and one.stage is Stage.VERIFY
    ]
    assert counted == expected


def test_progress_moves_while_further_processes_open_a_group(measure):
    journal = measure(["default", "fast"], processes=3)
    moved = [
        (one.done, one.total, one.current.partition(" in ")[2])
        for one in journal.events
        if isinstance(one, StageProgress) and one.stage is Stage.BUILD
    ]
    expected = [(done, 2, f"process {number}") for number in (2, 3) for done in (0, 1)]
    assert moved == expected


def test_traces_are_recorded_one_dispatch_at_a_time_and_nothing_is_sampled(
    measure, memory_workers, tmp_path
):
    """A job decides how dispatches are grouped, what follows, and what progress counts."""
    executor = memory_workers.MemoryExecutor()
    journal = measure(
        ["default", "fast"], executor=executor, trace_folder=tmp_path / "t",
        measure=False, trace=TraceSchedule(),
    )  # fmt: skip
    (channel,) = executor.channels
    opened = [len(message.dispatches) for message in channel.sent if isinstance(message, Open)]
    assert opened == [0, 1, 1]  # the first loads what dispatches need, and opens none
    assert not any(isinstance(message, Sample) for message in channel.sent)
    assert not any(isinstance(event, StageProgress) for event in journal.events)
    assert all(record.trace.folder == "t" for record in journal.records.values())
    assert [record.measurement for record in journal.records.values()] == [None, None]


def failing(memory_workers, failure, broken=1):
    def reply_to(wire):
        entered, opened = memory_workers.opened(wire)
        if wire.id == broken:
            opened = Opened(wire.id, opened.facts, None, failure, "", 0)
        return [entered, opened]

    return opening(memory_workers, reply_to)


def test_a_device_that_is_lost_twice_is_blamed_on_the_dispatch(
    measure, memory_workers, memory_journal
):
    executor = failing(memory_workers, Failure("DeviceLostError", "it is gone"))
    for losses, expected in ((1, []), (2, [(1, Outcome.CRASH, Stage.VERIFY)])):
        with pytest.raises(DeviceLostError):
            measure(["default", "fast"], executor=executor, journal=memory_journal)
        assert memory_journal.losses == losses
        found = [(key, r.outcome, r.stage) for key, r in memory_journal.records.items()]
        assert found == expected


def test_a_full_disk_in_a_worker_is_no_fault_of_the_dispatch(
    measure, memory_workers, memory_journal
):
    """It has no row, so that it is measured when the run resumes."""
    full = Failure("StorageError", "No space left on device", "Free some space.")
    with pytest.raises(StorageError) as raised:
        measure(["default", "fast"], executor=failing(memory_workers, full), journal=memory_journal)
    assert raised.value.hint == "Free some space."
    assert memory_journal.records == {}


def test_a_spoiled_worker_is_ended_and_the_others_continue(measure, memory_workers):
    failure = Failure("LaunchError", "x", worker_is_spoiled=True)
    executor = failing(memory_workers, failure)
    records = measure(["default", "fast", "factor_2"], executor=executor).records
    assert [records[number].outcome for number in range(3)] == [
        Outcome.OK, Outcome.LAUNCH_ERROR, Outcome.OK
    ]  # fmt: skip
    assert len(executor.channels) == 2


@pytest.mark.parametrize(("every_s", "rounds"), [(0.0, 1), (99.0, 3)])
def test_quick_results_share_a_transaction(measure, monkeypatch, every_s, rounds):
    monkeypatch.setattr("gemmetry.engine.device.STORE_EVERY_S", every_s)
    journal = measure(["default", "fast", "factor_2"], min_samples=5, max_samples=5)
    assert {len(transaction) for transaction in journal.transactions} == {rounds}


def test_devices_compute_their_results_one_after_another(measure, memory_journal):
    """So that they are out of step from then on."""
    waiting = threading.Thread(
        target=measure, args=(["default"],), kwargs={"journal": memory_journal}
    )
    with memory_journal.completing:
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive() and not memory_journal.records
    waiting.join()
    assert memory_journal.records
