"""Spreads the traces of a sweep over worker processes.

Each worker reads one trace at a time and returns a message of some 50 KB, so that the memory of
this process depends on the facts and not on the traces. A worker that dies costs the trace that it
was reading.
"""

from __future__ import annotations

import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from gemmetry.hardware.host import usable_cores
from gemmetry.sweeps.rank_worker import (
    RankAnalysis,
    RankFailure,
    RankTask,
    RocprofTask,
    answer,
    hook_of,
    read_frame,
    read_rocprof,
    unpacked,
    write_frame,
)
from gemmetry.sweeps.rocprof import PointRocprof
from gemmetry.traces.collectives.summary import Group

SMALL_BYTES = 1 << 20
"""Traces with fewer bytes together are read in this process: a worker takes a third of a second to
start, in which it could have read several MB."""

SMALL_TABLE_BYTES = 8 << 20
"""The same for rocprofv3's files, which are mostly CSV: 20 MB of it take a second."""

WORKER = [sys.executable, "-m", "gemmetry.sweeps.rank_worker"]
"""The command of a worker."""

_INTERNAL = "gemmetry failed while it read this: its worker ended with status"
"""The fault is neither the trace's nor the training's, unless memory was short."""

_ROCPROF = msgspec.msgpack.Decoder(PointRocprof)

Progress = Callable[[int, int, str], None]
"""Is called with the number of traces that are done, that of all, and the path of the latest."""


def analyse_ranks(
    tasks: Sequence[RankTask],
    *,
    hook: str = "",
    processes: int | None = None,
    progress: Progress | None = None,
) -> list[RankAnalysis | RankFailure]:
    """What each trace shows, in the order of `tasks`.

    Args:
        hook: ``module:function`` of a :data:`~gemmetry.sweeps.rank_worker.Hook`.
        processes: number of workers; by default one for each processor that this process may use,
            or none where the traces are small.
    """
    known: dict[Group, Group] = {}
    if processes is None:
        processes = 1 if _bytes_of(tasks) < SMALL_BYTES else usable_cores()
    processes = min(processes, len(tasks))
    results: list[RankAnalysis | RankFailure] = [RankFailure("it was not read")] * len(tasks)
    done = 0

    def note(index: int, message: bytes | str) -> None:
        nonlocal done
        if isinstance(message, str):
            results[index] = RankFailure(message, is_internal=True)
        else:
            results[index] = unpacked(message, known)
        done += 1
        if progress is not None:
            progress(done, len(tasks), tasks[index].path)

    if processes <= 1:
        function = hook_of(hook)
        for index, task in enumerate(tasks):
            # Packed like those of workers, so that repeated groups are one object.
            note(index, answer(task, function))
        return results
    _Crew(tasks, [_bytes_of([task]) for task in tasks], hook, processes).run(note)
    return results


def read_rocprofs(
    tasks: Sequence[RocprofTask], *, processes: int | None = None
) -> list[PointRocprof]:
    """What the files of rocprofv3 show of each point, in the order of `tasks`.

    Args:
        processes: like that of :func:`analyse_ranks`.
    """
    sizes = [
        sum(file.stat().st_size for folder in task.folders for file in Path(folder).rglob("*")
            if file.is_file())
        for task in tasks
    ]  # fmt: skip
    if processes is None:
        processes = 1 if sum(sizes) < SMALL_TABLE_BYTES else usable_cores()
    if min(processes, sum(map(bool, sizes))) <= 1:
        return [read_rocprof(task) for task in tasks]
    results = [PointRocprof()] * len(tasks)

    def note(index: int, message: bytes | str) -> None:
        if isinstance(message, str):
            results[index] = PointRocprof(problems=(f"rocprofv3's files: {message}",))
        else:
            results[index] = _ROCPROF.decode(message)

    _Crew(tasks, sizes, "", min(processes, len(tasks))).run(note)
    return results


def _bytes_of(tasks: Sequence[RankTask]) -> int:
    total = 0
    for task in tasks:
        path = Path(task.path)
        total += path.stat().st_size if path.is_file() else 0
    return total


class _Crew:
    """Workers, each with a thread that hands it tasks and waits for its answers."""

    def __init__(
        self,
        tasks: Sequence[RankTask] | Sequence[RocprofTask],
        sizes: Sequence[int],
        hook: str,
        processes: int,
    ) -> None:
        self._tasks = tasks
        self._command = [*WORKER, hook]
        self._waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[int, bytes | str]] = queue.SimpleQueue()
        self._workers: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self._is_stopped = False
        # Largest first, so that no worker begins a large trace when the others are done.
        for index in sorted(range(len(tasks)), key=lambda index: (-sizes[index], index)):
            self._waiting.put(index)
        self._threads = [threading.Thread(target=self._serve) for _ in range(processes)]

    def run(self, done: Callable[[int, bytes | str], None]) -> None:
        """Have all tasks done; `done` gets the index of each and its message, or why there is none,
        in this thread."""
        for thread in self._threads:
            thread.start()
        try:
            for _ in self._tasks:
                done(*self._answers.get())
        finally:
            with self._lock:
                self._is_stopped = True
                for worker in self._workers:
                    worker.kill()
            for thread in self._threads:
                thread.join()

    def _serve(self) -> None:
        """Hand tasks to a worker until none is left; a worker that died is replaced."""
        worker: subprocess.Popen[bytes] | None = None
        with tempfile.TemporaryFile() as errors:
            while (index := self._next()) is not None:
                if worker is None:
                    worker = self._start(errors.fileno())
                    if worker is None:
                        return
                message: bytes | str | None = _answer(worker, self._tasks[index])
                if message is None:
                    status = worker.wait()
                    errors.seek(0)
                    last = errors.read().decode(errors="replace").strip().splitlines()[-1:]
                    message = ": ".join([f"{_INTERNAL} {status}", *last])
                    _close(worker)
                    worker = None
                self._answers.put((index, message))
        if worker is not None:
            _close(worker)

    def _next(self) -> int | None:
        try:
            return self._waiting.get_nowait()
        except queue.Empty:
            return None

    def _start(self, errors: int) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._is_stopped:
                return None
            worker = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
            self._workers.append(worker)
            return worker


def _answer(worker: subprocess.Popen[bytes], task: RankTask | RocprofTask) -> bytes | None:
    """The worker's message; None where it died."""
    assert worker.stdin is not None and worker.stdout is not None
    try:
        write_frame(worker.stdin, msgspec.msgpack.encode(task))  # type: ignore[arg-type]
        return read_frame(worker.stdout)  # type: ignore[arg-type]
    except OSError:
        return None


def _close(worker: subprocess.Popen[bytes]) -> None:
    """Let it end, which it does when its input ends."""
    assert worker.stdin is not None and worker.stdout is not None
    try:
        worker.stdin.close()
    except OSError:
        pass
    worker.stdout.close()
    worker.wait()
