from __future__ import annotations

import dataclasses
import os
import signal
import threading
from pathlib import Path

import pytest
from tests.engine import memory_workers

from gemmetry.domain.dispatch import Configuration, Target, TargetKind
from gemmetry.domain.errors import Outcome, Stage
from gemmetry.domain.settings import TraceSchedule
from gemmetry.engine import process as local
from gemmetry.engine import process as worker_process
from gemmetry.engine import protocol
from gemmetry.engine.process import RunStopped, WorkerProcess
from gemmetry.engine.protocol import Answered, Open, WireDispatch, WorkerLost, timeout_reason
from gemmetry.engine.schema import Lane

OPERATION = "matmul_8x8x8_f32t_f32t_f32t"


@pytest.fixture
def context(make_context):
    return make_context(verification_level="quick", threads=1)


@pytest.fixture
def start(context):
    """Starts a worker, which is ready unless its provider does not work."""
    started = []

    def go(provider="null", ready=True, **options):
        worker = WorkerProcess(Lane(1, provider, options, Target(TargetKind.NULL)), context)
        started.append(worker)
        if ready:
            assert worker.wait_ready() is None
        return worker

    yield go
    for worker in started:
        worker.kill()


def opening(configuration):
    return Open((WireDispatch(1, OPERATION, Configuration(configuration)),))


def wait_for_answer(worker):
    while not isinstance(worker.receive(), Answered):
        pass


def test_a_provider_that_does_not_work_here_says_so(start):
    failure = start(ready=False, unavailable="not today").wait_ready()
    assert (failure.kind, failure.message) == ("UnsupportedError", "not today")
    assert start("missing", ready=False).wait_ready().kind == "UnknownNameError"


def test_a_death_is_reported_with_its_signal(start):
    worker = start()
    os.kill(worker.pid, signal.SIGABRT)
    with pytest.raises(WorkerLost) as caught:
        worker.receive()
    assert caught.value.ending.outcome is Outcome.CRASH
    assert "SIGABRT" in caught.value.ending.reason
    with pytest.raises(WorkerLost):
        worker.send(opening("default"))


@pytest.mark.parametrize(("whole_s", "expected_s"), [(0.3, None), (1.2, 1e-3), (0.3, 1e-3 * 300)])
def test_a_passed_deadline_kills(start, is_running, whole_s, expected_s):
    """It is a quarter of the stage's where a reply is expected soon."""
    worker = start()
    worker.send(opening("hang"))
    deadline_s = worker._context.settings.deadlines_s[Stage.VERIFY]
    worker.set_deadline(Stage.VERIFY, "verifying", whole_s / deadline_s, expected_s)
    with pytest.raises(WorkerLost) as caught:
        wait_for_answer(worker)  # which never comes: only the deadline ends this
    assert caught.value.ending.outcome is Outcome.TIMEOUT
    assert caught.value.ending.reason == timeout_reason(Stage.VERIFY, "verifying", 0.3, whole_s)
    assert not is_running(worker.pid)


def test_the_stop_flag_ends_waiting(start, context, is_running):
    worker = start()
    worker.set_deadline(Stage.BUILD, "nothing")
    threading.Timer(0.1, context.stop.set).start()
    with pytest.raises(RunStopped):
        worker.receive()
    assert not is_running(worker.pid)


def test_a_worker_that_exhausts_the_machines_memory_is_ended(start, monkeypatch):
    monkeypatch.setattr(local, "MIN_FREE_SHARE", 1.0)
    monkeypatch.setattr(local, "LARGE_SHARE", 0.0)
    worker = start(ready=False)
    worker.set_deadline(Stage.BUILD, "nothing")
    with pytest.raises(WorkerLost) as caught:
        while True:
            worker.receive()
    assert caught.value.ending.outcome is Outcome.OUT_OF_MEMORY


def test_output_is_kept_apart_and_bounded(start, monkeypatch):
    worker = start()
    worker.send(opening("chatty"))
    wait_for_answer(worker)
    assert "launch 1" in worker.output_tail()
    worker.mark_output()
    assert worker.output_tail() == ""
    monkeypatch.setattr(worker_process, "MAX_OUTPUT_BYTES", 10)
    worker._trim_output()
    assert "launch" in worker.output_tail()
    log = next(Path(worker._context.folder, "artifacts", "logs").glob("null-*.log"))
    assert log.stat().st_size <= protocol.TAIL_BYTES + 1


@pytest.mark.parametrize(("kind", "cores", "threads", "expected"), [
    (TargetKind.CPU, 16, 0, 16), (TargetKind.CUDA, 16, 0, 2), (TargetKind.CUDA, 4, 0, 1),
    (TargetKind.CUDA, 16, 5, 5),
])  # fmt: skip
def test_workers_of_a_gpu_share_the_processors(make_context, kind, cores, threads, expected):
    context = dataclasses.replace(make_context(threads=threads), cores=cores)
    assert context.threads(Target(kind)) == expected


def test_temporary_files_end_with_their_worker(start, fresh_workers, is_running):
    worker = start()
    lines = Path(f"/proc/{worker.pid}/environ").read_bytes().decode().split("\0")
    environment = dict(line.split("=", 1) for line in lines if line)
    assert environment["OMP_NUM_THREADS"] == environment["OPENBLAS_NUM_THREADS"] == "1"
    place = Path(environment["TMPDIR"])
    assert place.parent == worker._context.temporary
    (place / "cc1.s").write_text("left by a compiler")
    cache = Path(environment["TORCHINDUCTOR_CACHE_DIR"])
    assert not cache.is_relative_to(place), "what lasts is kept elsewhere"
    worker.stop()
    assert not is_running(worker.pid)
    assert not place.exists()


@pytest.mark.parametrize("schedule", [None, TraceSchedule()])
def test_a_worker_has_its_folders_and_variables(context, monkeypatch, schedule):
    """Torch's profiler is quiet while traces are recorded."""
    monkeypatch.setenv("KMP_BLOCKTIME", "77")
    monkeypatch.setenv("TMPDIR", "/elsewhere")
    executor = memory_workers.MemoryExecutor()
    settings = dataclasses.replace(context.settings, measure=False, trace=schedule)
    context = dataclasses.replace(context, settings=settings, start=executor.start)
    lane = Lane(1, "null", {}, Target(TargetKind.NULL))
    worker = WorkerProcess(lane, context)
    assert worker.wait_ready() is None
    ((log, temporary, environment),) = executor.starts
    assert temporary.parent == context.temporary
    assert log.parent == context.folder / "artifacts" / "logs"
    assert environment["TMPDIR"] == str(temporary), "it is required"
    assert ("TORCH_CPP_LOG_LEVEL" in environment) is (schedule is not None)
    assert environment["KMP_BLOCKTIME"] == "77", "the user's own has precedence"
    assert executor.channels[0].sent == [context.hello(lane, jobs=1)]
    worker.kill()
    assert executor.channels[0].is_closed
    assert not temporary.exists()
