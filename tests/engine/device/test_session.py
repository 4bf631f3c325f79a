from __future__ import annotations

import random
import threading
from types import SimpleNamespace

import msgspec
import pytest
from tests.engine import memory_workers

from gemmetry.domain.dispatch import Target
from gemmetry.domain.errors import DeviceLostError, Outcome, Stage, StorageError, Verification
from gemmetry.domain.record import StageProgress
from gemmetry.domain.settings import RunSettings, TraceSchedule
from gemmetry.engine import device as device_session
from gemmetry.engine.device import DeviceSession
from gemmetry.engine.process import WorkerProcess, start_worker
from gemmetry.engine.protocol import (
    Answered,
    BadFrame,
    ChannelClosed,
    Close,
    Closed,
    Entered,
    Failure,
    Open,
    Opened,
    Ready,
    Sample,
    Sampled,
)
from gemmetry.measurement.stopping import StopPolicy
from gemmetry.verification.checks import CheckOutcome, CheckResult


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_worker_lost_while_it_closes_costs_the_first_unanswered(measure, place):
    class DiesClosing(memory_workers.MemoryChannel):
        def send(self, message):
            super().send(message)
            if isinstance(message, Close):
                while len(self.queue) > place:
                    self.queue.pop()
                self.close()

    executor = memory_workers.MemoryExecutor(lambda: DiesClosing(memory_workers.healthy_answers))
    records = measure(["default", "fast", "factor_2"], start=executor.start).records
    outcomes = [records[number].outcome for number in range(3)]
    assert outcomes == [Outcome.CRASH if n == place else Outcome.OK for n in range(3)]
    checked = [records[number].verdict.checks.get("after_timing") for number in range(3)]
    assert checked[:place] == ["passed"] * place
    assert all(text.startswith("not applicable") for text in checked[place + 1 :])


@pytest.fixture
def failing():
    """An executor whose workers refuse a dispatch, by default once they have begun to verify it."""

    def make(failure, number=1, *, verifies=True):
        def replies(wire):
            yield Entered(wire.id, Stage.BUILD)
            entered, opened = memory_workers.opened(wire)
            if wire.id != number or verifies:
                yield entered
            is_refused = wire.id == number
            yield Opened(wire.id, opened.facts, None, failure, "", 0) if is_refused else opened

        def answer(request):
            if not isinstance(request, Open):
                return memory_workers.healthy_answers(request)
            return [*(reply for wire in request.dispatches for reply in replies(wire)), Answered()]

        return memory_workers.MemoryExecutor(lambda: memory_workers.MemoryChannel(answer))

    return make


@pytest.mark.parametrize(("is_spoiled", "workers_started"), [(False, 1), (True, 2)])
def test_one_that_fails_ends_in_its_stage(measure, failing, is_spoiled, workers_started):
    """A worker that it spoiled is ended."""
    executor = failing(Failure("LaunchError", "not here", worker_is_unusable=is_spoiled))
    journal = measure(["default", "fast", "factor_2"], start=executor.start)
    assert journal.outcomes == {"default": "ok", "fast": "launch_error", "factor_2": "ok"}
    assert (journal.records[1].stage, journal.records[1].reason) == (Stage.VERIFY, "not here")
    assert len(executor.channels) == workers_started


def test_progress_counts_what_is_verified(measure, failing):
    """What ends before it is verified does not count."""
    no = Failure("CompileError", "no")
    for broken, expected in ((9, [(1, 2), (2, 2)]), (1, [(1, 2), (1, 1)]), (0, [(1, 1)])):
        start = failing(no, broken, verifies=False).start
        progress = measure(["default", "fast"], start=start).progress(Stage.VERIFY)
        assert [(one.done, one.total) for one in progress] == expected


def test_progress_moves_while_further_processes_open_a_group(measure):
    progress = measure(["default", "fast"], processes=3).progress(Stage.BUILD)
    moved = [(one.done, one.total, one.current.partition(" in ")[2]) for one in progress]
    assert moved == [(done, 2, f"process {number}") for number in (2, 3) for done in (0, 1)]


def test_traces_are_recorded_one_dispatch_at_a_time_and_nothing_is_sampled(measure, sent, tmp_path):
    """A job decides how dispatches are grouped, what follows, and what progress counts."""
    tracing = {"trace_folder": tmp_path / "t", "trace": TraceSchedule()}
    journal = measure(["default", "fast"], measure=False, **tracing)
    opened = [len(message.dispatches) for _, message in sent if isinstance(message, Open)]
    assert opened == [0, 1, 1]  # the first loads what dispatches need, and opens none
    assert not any(isinstance(message, Sample) for _, message in sent)
    assert not any(isinstance(event, StageProgress) for event in journal.events)
    found = [(record.trace.folder, record.measurement) for record in journal.records.values()]
    assert found == [("t", None)] * 2


def test_a_device_that_is_lost_twice_is_blamed_on_the_dispatch(measure, failing, memory_journal):
    start = failing(Failure("DeviceLostError", "it is gone")).start
    for losses, expected in ((1, []), (2, [(1, Outcome.CRASH, Stage.VERIFY)])):
        with pytest.raises(DeviceLostError):
            measure(["default", "fast"], start=start, journal=memory_journal)
        assert memory_journal.losses == losses
        found = [(key, r.outcome, r.stage) for key, r in memory_journal.records.items()]
        assert found == expected


def test_a_full_disk_in_a_worker_is_no_fault_of_the_dispatch(measure, failing, memory_journal):
    """It has no row, so that it is measured when the run resumes."""
    start = failing(Failure("StorageError", "full", "Free some space.")).start
    with pytest.raises(StorageError) as raised:
        measure(["default", "fast"], start=start, journal=memory_journal)
    assert raised.value.hint == "Free some space."
    assert memory_journal.records == {}


@pytest.mark.parametrize(("every_s", "rounds"), [(0.0, 1), (99.0, 3)])
def test_quick_results_share_a_transaction(measure, monkeypatch, every_s, rounds):
    monkeypatch.setattr("gemmetry.engine.device.STORE_EVERY_S", every_s)
    journal = measure(["default", "fast", "factor_2"], min_samples=5, max_samples=5)
    assert {len(transaction) for transaction in journal.transactions} == {rounds}


def test_devices_compute_their_results_one_after_another(measure, memory_journal):
    """So that they are out of step from then on."""
    waiting = threading.Thread(target=lambda: measure(["default"], journal=memory_journal))
    with memory_journal.completing:
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive() and not memory_journal.records
    waiting.join()
    assert memory_journal.records


def test_rounds_are_interleaved_and_differ_in_order(measure):
    names = ["factor_1p5", "factor_2", "factor_3", "factor_4", "factor_5", "factor_6"]
    journal = measure(names, lanes=2, interval_width=1e-9, min_samples=10, max_samples=40)
    # Rounds of 10, 20 and 10 samples; each pass over all six is stored before the next begins.
    passes = [(one.dispatch, one.number) for one in journal.stored]
    orders = [[d for d, number in passes if number == n] for n in range(3)]
    assert all(sorted(order) == list(range(6)) for order in orders)
    assert len({tuple(order) for order in orders}) > 1
    expected = list(range(6))
    random.Random("42:0:0").shuffle(expected)
    assert orders[0] == expected, "the order is seeded"
    turns = {(one.number, one.taken.turn) for one in journal.stored}
    assert len(turns) == len({turn for _, turn in turns}) == 3, "one turn for all of a pass"


@pytest.mark.parametrize(("sample_s", "loaded"), [(1e-4, False), (0.02, True)])
def test_leads_are_short_in_long_turns(measure, change, sent, monkeypatch, sample_s, loaded):
    """Two candidates, of which samples of 0.1 ms leave turns of about 50 ms, too short for it."""
    monkeypatch.setattr(device_session, "LOADED_S", 60.0)
    for worker in range(2):
        change(worker, Opened, sample_s=sample_s)
    measure(["default", "fast"], lanes=2, interval_width=1e-9, min_samples=10, max_samples=20)
    first, *later = [message.is_loaded for _, message in sent if isinstance(message, Sample)]
    assert first is False, "nothing has run before"
    assert len(later) > 1 and set(later) == {loaded}


def test_out_of_memory_among_others_gets_a_second_chance_alone(measure):
    journal = measure(["default", "out_of_memory", "fast"], start=start_worker)
    assert journal.outcomes == {"default": "ok", "fast": "ok", "out_of_memory": "out_of_memory"}
    assert list(journal.records) == [0, 2, 1], "it was tried again after the others"


@pytest.mark.parametrize(("is_gpu", "processes", "most_open"), [
    (False, 2, None), (True, 2, None), (False, 2, 3), (True, 5, 3),
])  # fmt: skip
def test_opening_ahead_changes_no_outcome(measure, sent, monkeypatch, is_gpu, processes, most_open):
    """On a GPU the lanes are verified at the same time, and several groups before the first is
    measured; also where a worker is lost, and where some verify nothing."""
    monkeypatch.setattr(Target, "is_gpu", property(lambda _self: is_gpu))
    right = ["default", "fast", "factor_2", "factor_3"]
    bad = ["wrong", "out_of_memory", "crash", "launch_error"]
    names = [*right[:2], *bad[:3], right[2], bad[3], right[3]]
    journal = measure(
        names, lanes=2, processes=processes, start=start_worker, race=False, most_open=most_open,
        memory_budget_bytes=1 << 40,
    )  # fmt: skip
    assert journal.outcomes == dict.fromkeys(right, "ok") | {name: name for name in bad}
    messages = [message for _, message in sent]
    first_sample = next(n for n, message in enumerate(messages) if isinstance(message, Sample))
    requests = [
        (message.ahead > 0, sum(one.verify for one in message.dispatches), place < first_sample)
        for place, message in enumerate(messages)
        if isinstance(message, Open) and message.dispatches
    ]
    verifies_all_first = is_gpu or most_open is None
    verified_first = sum(count for _, count, is_first in requests if is_first)
    assert (verified_first >= len(names)) is verifies_all_first
    assert any(ahead for ahead, *_ in requests) is is_gpu
    assert sum(count for ahead, count, _ in requests if ahead is is_gpu) >= len(names)
    if is_gpu:  # verified again: what ran out of memory, and what crashed after others failed
        assert sum(count for ahead, count, _ in requests if not ahead) <= 2
        opened = sum(ahead and not count for ahead, count, _ in requests)
        assert opened >= processes, "each worker of a lane opens what another one verified"


def test_workers_share_verification_by_its_size(measure, sent, monkeypatch):
    """The largest two of ten dispatches keep a worker each busy as long as the others the third;
    a configuration alone does not keep its shapes together."""
    monkeypatch.setattr(Target, "is_gpu", property(lambda _self: True))
    monkeypatch.setattr(device_session, "SETUP_BYTES", 1000)
    names = [f"matmul_{size}x{size}x{size}_f32t_f32t_f32t" for size in (8, 16, 32, 64, 128)]
    budget = {"memory_budget_bytes": 1 << 40, "race": False}
    measure(["default", "fast"] * 5, processes=3, operations=names, **budget)
    verified = [
        [one.operation for one in message.dispatches if one.verify]
        for _, message in sent
        if isinstance(message, Open) and message.ahead
    ]
    large, small = names[-1], names[:-1]
    shares = sorted(filter(None, verified), key=len)
    assert [set(share) for share in shares] == [{large}, {large}, set(small)]
    assert len(shares[2]) == 8


@pytest.mark.parametrize(("budget", "most_bytes", "together"), [
    (1 << 40, 4e9, [6]), (0, 4e9, [4]), (1 << 40, 2.5, []), (3000, 4e9, []),
])  # fmt: skip
def test_groups_are_verified_together_as_far_as_time_and_memory_allow(
    measure, sent, monkeypatch, budget, most_bytes, together
):
    """The first group finds out how much memory there is, on which the size of others depends."""
    monkeypatch.setattr(Target, "is_gpu", property(lambda _self: True))
    if most_bytes < 4e9:
        monkeypatch.setattr(device_session, "SETUP_BYTES", 1.0)
        monkeypatch.setattr(device_session, "MOST_VERIFIED_BYTES", 768 * 2 + most_bytes)
    settings = {"memory_budget_bytes": budget, "race": False, "cold_cache": False}
    measure(["default", "fast"] * 3, processes=2, most_open=2, **settings)
    counts = [0]
    for _, message in sent:
        if isinstance(message, Open) and message.only_verifies:
            counts[-1] += len(message.dispatches)
        elif isinstance(message, Sample):
            counts.append(0)
    assert [count for count in counts if count] == together


def test_a_worker_that_cannot_start_ends_its_dispatches_only_once(measure, monkeypatch):
    monkeypatch.setattr("gemmetry.engine.process.sys.executable", "/bin/false")
    journal = measure(["default", "fast"], start=start_worker)
    assert journal.outcomes == {"default": "crash", "fast": "crash"}
    assert "status 1" in journal.records[0].reason


@pytest.fixture
def change(workers, monkeypatch):
    """Changes replies of `kind` from a worker, about all dispatches or one; all such replies, of
    whichever worker they were requested."""
    seen = []

    def go(number, kind, dispatch=None, **changes):
        original = WorkerProcess.receive

        def receive(self):
            reply = original(self)
            if isinstance(reply, kind) and workers.index(self) == number:
                seen.append(reply)
                is_meant = dispatch is None or reply.id == dispatch
                return msgspec.structs.replace(reply, **changes) if is_meant else reply
            return reply

        monkeypatch.setattr(WorkerProcess, "receive", receive)
        return seen

    return go


MANY = {"processes": 3, "interval_width": 1e-9, "min_samples": 5, "max_samples": 120}


def test_processes_share_the_rounds_in_turn(measure, workers):
    journal = measure(["default", "fast"], **MANY)
    assert [record.measurement.processes for record in journal.records.values()] == [3, 3]
    started = [worker.started_ns for worker in workers]
    assert len(set(started)) == 3
    for dispatch in (0, 1):
        mine = [one for one in journal.stored if one.dispatch == dispatch]
        taken = [one.taken.process for one in sorted(mine, key=lambda one: one.number)]
        assert taken == (started * len(taken))[: len(taken)]


def test_only_the_first_process_verifies_and_the_others_know_its_result(measure, change, sent):
    """Judging bit-identical results twice would cost each process as much as verifying."""
    *_, opened = (change(number, Opened) for number in range(3))
    measure(["default"], start=start_worker, **MANY)
    assert [reply.verdict is None for reply in opened] == [False, True, True]
    wires = [wire for _, one in sent if isinstance(one, Open) for wire in one.dispatches]
    first, *further = (wire.right_output for wire in wires)
    assert first == ""
    assert len(further) == 2 and len(set(further)) == 1 and len(further[0]) == 64


REFUSED = Failure("LaunchError", "not here")
LEFT_WRONG = CheckResult("after_timing", CheckOutcome.FAILED, "left wrong")


@pytest.mark.parametrize(("number", "kind", "changes", "outcome"), [
    (1, Opened, {"failure": REFUSED}, "launch_error"),
    (2, Sampled, {"round": None, "failure": REFUSED}, "launch_error"),
    (2, Closed, {"check": LEFT_WRONG}, "wrong"),
])  # fmt: skip
def test_what_one_process_finds_counts(measure, workers, change, number, kind, changes, outcome):
    change(number, kind, 0, **changes)
    journal = measure(["default", "fast"], **MANY)
    assert journal.outcomes == {"default": outcome, "fast": "ok"}
    assert "not here" in journal.records[0].reason or outcome == "wrong"
    assert (journal.records[0].verdict.status is Verification.FAILED) is (outcome == "wrong")
    assert journal.records[1].measurement.processes == 3
    assert len(workers) == 3, "nobody was lost"


def test_what_does_not_fit_a_second_time_is_sampled_by_the_others(measure, workers, change):
    change(1, Opened, failure=Failure("OutOfMemoryError", "full"))
    journal = measure(["default", "fast"], **MANY)
    assert journal.outcomes == {"default": "ok", "fast": "ok"}
    taken_by = {one.taken.process for one in journal.stored}
    assert taken_by == {workers[0].started_ns, workers[2].started_ns}


@pytest.fixture
def kill(workers, monkeypatch):
    """Ends a worker when a dispatch has so many rounds, once."""

    def at(rounds_stored, worker):
        killed = []
        next_count = StopPolicy.next_count

        def killing(self, rounds, seconds_spent, sample_s):
            if len(rounds) == rounds_stored and not killed:
                killed.append(worker)
                workers[worker]._process.end()
            return next_count(self, rounds, seconds_spent, sample_s)

        monkeypatch.setattr(StopPolicy, "next_count", killing)
        return killed

    return at


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_lost_process_costs_what_it_sampled(measure, workers, kill, monkeypatch, number):
    monkeypatch.setattr(device_session, "STORE_EVERY_S", 0.0)
    killed = kill(number, number)
    journal = measure(["default", "fast", "factor_2"], **MANY)
    assert killed
    assert sorted(journal.outcomes.values()) == ["crash", "ok", "ok"]
    assert len(workers) == 6, "the others of the lane are replaced with it"
    ok = [r for r in journal.records.values() if r.outcome is Outcome.OK]
    assert all(r.measurement.sample_count == 120 for r in ok)
    rounds = [(one.dispatch, one.number) for one in journal.stored]
    assert len(set(rounds)) == len(rounds)


def test_a_process_lost_at_the_end_leaves_the_others_unlooked_at(measure, workers, monkeypatch):
    original = WorkerProcess.send

    def send(self, message):
        if isinstance(message, Close) and workers.index(self) == 1:
            self._process.end()
        original(self, message)

    monkeypatch.setattr(WorkerProcess, "send", send)
    journal = measure(["default", "fast"], **MANY)
    assert sorted(journal.outcomes.values()) == ["crash", "ok"]
    (ok,) = [r for r in journal.records.values() if r.outcome is Outcome.OK]
    assert "after_timing" in ok.verdict.checks, "the first process had looked at it"


def test_one_that_has_ended_is_not_opened_again_after_a_loss(measure, workers, kill, change):
    change(1, Opened, 0, failure=REFUSED)
    *_, opened = (change(number, Opened) for number in range(3, 9))
    kill(2, 2)
    journal = measure(["default", "fast", "factor_2"], **MANY)
    assert journal.records[0].reason == "not here"
    assert sorted(journal.outcomes.values()) == ["launch_error", "ok", "ok"]
    by_process = [reply.id for reply in opened[3:]]  # after three by the first
    assert by_process in ([1] * 3 + [2] * 3, [2] * 3 + [1] * 3), "the lost one last, alone"
    assert len(workers) == 9


@pytest.mark.parametrize("seed", range(60))
def test_whatever_workers_answer_every_dispatch_gets_its_record(
    measure, some_replies, seed, monkeypatch
):
    """Each answer is the right one or, with some probability, an arbitrary one."""
    monkeypatch.setattr(device_session, "STORE_EVERY_S", 0.2 * (seed % 2))
    chance = random.Random(seed)
    senseless = some_replies(random.Random(f"replies {seed}"))

    class Unreliable(memory_workers.MemoryChannel):
        def receive(self, timeout_s=None):
            assert not self.is_closed
            first = self.queue[0]
            if isinstance(first, Ready):
                return self.queue.popleft()
            match chance.randrange(60):
                case 0:
                    raise BadFrame("noise")
                case 1:
                    raise ChannelClosed
                case 2 | 3 | 4 | 5:
                    return next(senseless)
                case 6:
                    return first
            return self.queue.popleft()

        def is_idle(self):
            return chance.randrange(30) != 0

    executor = memory_workers.MemoryExecutor(lambda: Unreliable(memory_workers.healthy_answers))
    names = ["default", "fast", "factor_2", "factor_3", "factor_4"]
    journal = measure(names, lanes=2, start=executor.start, min_samples=5, max_samples=20)
    assert sorted(journal.records) == [0, 1, 2, 3, 4]
    for record in journal.records.values():
        assert record.outcome is Outcome.OK or record.reason
        msgspec.json.encode(record)
    assert all(process.status is not None for process in executor.processes)


def test_a_reply_out_of_turn_is_the_crash_of_whoever_ran(measure, change):
    """Alongside others, another dispatch may have caused it, so the one to blame gets a turn
    alone."""
    *_, ran = (change(number, Opened, 1, id=77) for number in range(4))
    journal = measure(["default", "factor_2", "fast"])
    assert journal.outcomes == {"default": "ok", "factor_2": "crash", "fast": "ok"}
    assert "an unexpected reply (Opened)" in journal.records[1].reason
    assert [reply.id for reply in ran] == [0, 1, 2, 0, 1], "its second chance came last"


@pytest.mark.parametrize("kind", [Opened, Sampled])
def test_a_worker_that_answers_twice_costs_the_last_answered(measure, workers, monkeypatch, kind):
    """The copy of a worker that a kernel forked sends again what the worker sends."""
    original = WorkerProcess.receive
    twice = []

    def receive(self):
        reply = twice.pop() if twice else original(self)
        if isinstance(reply, kind) and reply.id == 1 and not self._copied:
            self._copied = True
            twice.append(reply)
        return reply

    monkeypatch.setattr(WorkerProcess, "_copied", False, raising=False)
    monkeypatch.setattr(WorkerProcess, "receive", receive)
    enough = {"interval_width": 1e-9, "min_samples": 5, "max_samples": 20}
    journal = measure(["default", "factor_2"], lanes=2, **enough)
    assert journal.outcomes == {"default": "ok", "factor_2": "crash"}


def test_what_a_sample_takes_sizes_the_first_round(measure, change, monkeypatch):
    next_count, counts = StopPolicy.next_count, []

    def counted(self, rounds, seconds_spent, sample_s):
        counts.append((len(rounds), sample_s))
        return next_count(self, rounds, seconds_spent, sample_s)

    change(0, Opened, sample_s=0.25)
    monkeypatch.setattr(StopPolicy, "next_count", counted)
    measure(["default"])
    assert counts[0] == (0, 0.25)


def test_candidates_return_to_the_race_when_what_beat_them_is_beaten():
    """In half of the first rounds another program takes the processors of the fastest one."""
    opened = {
        number: SimpleNamespace(id=number, operation_name="x", outclassed_by=None, rounds=[])
        for number in range(3)
    }
    disturbed, quick, slow = opened.values()
    session = SimpleNamespace(_settings=RunSettings(), _open=opened)

    def take_turn(*, disturbed_us):
        turn = len(disturbed.rounds)
        for one, us in ((disturbed, disturbed_us), (quick, 81), (slow, 204)):
            if one.outclassed_by is None:
                samples = [1e3 * us * (1 + place / 1000) for place in range(8)]
                one.rounds.append(SimpleNamespace(turn=turn, samples_ns=samples))
        DeviceSession._race(session)
        return slow.outclassed_by

    for us in (47, 1079, 46, 1050, 556, 43, 1078, 308):
        take_turn(disturbed_us=us)
    assert (slow.outclassed_by, disturbed.outclassed_by) == (quick.id, None)
    left_at = len(slow.rounds)
    beaten_by = [take_turn(disturbed_us=45) for _ in range(80)]
    assert quick.outclassed_by == disturbed.id
    assert beaten_by[:2] == [quick.id] * 2, "what beat it is in the race"
    assert None in beaten_by and len(slow.rounds) > left_at, "the fastest has not beaten it yet"
    assert slow.outclassed_by == disturbed.id
    quick.rounds = [SimpleNamespace(turn=-1, samples_ns=[1e3])]
    DeviceSession._race(session)
    assert quick.outclassed_by is None, "the fastest is in the race"
