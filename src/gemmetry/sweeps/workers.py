"""Reads the traces of a sweep, each once, in this process or in several.

``python -m gemmetry.sweeps.workers`` takes tasks from its standard input and answers them on
its standard output, in frames of a length (8 bytes, little-endian) and a message. An answer has
some 50 KB, so that the memory of the process that asks depends on the facts and not on the traces.
A worker that dies costs the trace that it was reading.

Several recordings of one rank, which a profiler's schedule with ``repeat`` writes, become one.
"""

from __future__ import annotations

import dataclasses
import os
import queue
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
from msgspec.structs import astuple, replace

from gemmetry.documents.operator_tables import gemm_sheet
from gemmetry.domain.errors import GemmetryError
from gemmetry.domain.tables import Table
from gemmetry.hardware.host import usable_cores
from gemmetry.sweeps.folder import RankFile
from gemmetry.sweeps.gemms import gemm_statistics
from gemmetry.sweeps.ranks import (
    CommunicationKernel,
    GemmInstances,
    KernelTimes,
    RankFacts,
    plain,
    read_facts,
    typed,
)
from gemmetry.sweeps.rocprof import PointRocprof, TraceProcess, read_point_rocprof
from gemmetry.sweeps.rows import GemmKind, GemmStatistics
from gemmetry.traces.collectives.summary import Group

SMALL_BYTES = 1 << 20
"""Traces with fewer bytes together are read in this process: a worker takes a third of a second to
start, in which it could have read several MB."""

SMALL_TABLE_BYTES = 8 << 20
"""Threshold for rocprofv3's files, which are mostly CSV: 20 MB of it take a second."""

WORKER = [sys.executable, "-m", "gemmetry.sweeps.workers"]

LENGTH_BYTES = 8

Progress = Callable[[int, int, str], None]
"""Called with the number of finished traces, the total, and the path of the latest."""


class RankTask(msgspec.Struct, frozen=True, tag=True):
    """The trace of one rank."""

    file: RankFile
    workbook: str = ""
    """Beginning of the path of the trace's workbook; "": none is written."""


class RocprofTask(msgspec.Struct, frozen=True, tag=True):
    """The folders of rocprofv3's files of one point, and the processes whose ranks are known."""

    folders: tuple[Path, ...]
    traces: tuple[TraceProcess, ...] = ()


class RankAnalysis(msgspec.Struct, frozen=True):
    """Analysis of one trace alone."""

    facts: RankFacts
    gemms: tuple[GemmStatistics, ...]
    """GEMMs, those with the most time first."""
    problems: tuple[str, ...] = ()
    """Files that could not be written."""
    workbook: str = ""
    """Workbook that was written; "" without one."""
    gemm_sheet: bytes = b""
    """The sheet ``GEMM`` of TraceLens' workbook (:func:`packed_sheet`)."""


class RankFailure(msgspec.Struct, frozen=True, tag=True):
    """Reason why a trace could not be read."""

    reason: str
    is_internal: bool = False
    """Whether reading it failed by a fault of gemmetry or of this machine, not of the trace."""


class _Packed(msgspec.Struct, frozen=True, tag=True):
    """An analysis whose groups, which repeat, stand once: of a thousand ranks, a group takes more
    bytes than everything else about its collective."""

    analysis: RankAnalysis
    groups: tuple[Group, ...]
    group_of: tuple[int, ...]
    """One a communication kernel; -1: none."""


_encode = msgspec.msgpack.Encoder(enc_hook=plain).encode
_PACKED = msgspec.msgpack.Decoder(_Packed | RankFailure, dec_hook=typed)
TASK = msgspec.msgpack.Decoder(RankTask | RocprofTask, dec_hook=typed)
_ROCPROF = msgspec.msgpack.Decoder(PointRocprof)


def analyse_rank(task: RankTask) -> RankAnalysis | RankFailure:
    """Read a trace, write its workbook while it is in memory, and compute what it shows alone. Of
    several recordings, the first gives workbook and sheet."""
    try:
        trace, facts = read_facts(task.file)
    except (GemmetryError, OSError) as error:
        return RankFailure(str(getattr(error, "message", error)))
    problems: list[str] = []
    workbook = ""
    if task.workbook:
        from gemmetry.documents import sweep_workbooks

        try:
            workbook = str(sweep_workbooks.write_rank_workbook(trace, facts, task.workbook))
        except (GemmetryError, OSError) as error:
            what = getattr(error, "message", error)
            problems.append(f"the workbook of {task.file.path} is not written: {what}")
    recordings = [facts]
    for path in task.file.more:
        try:
            found = read_facts(dataclasses.replace(task.file, path=path))[1]
        except (GemmetryError, OSError) as error:
            problems.append(str(getattr(error, "message", error)))
            continue
        if found.rank == facts.rank:
            recordings.append(found)
        else:
            problems.append(f"{path} is left out: it is of rank {found.rank}")
    facts = merged(recordings)
    sheet = packed_sheet(gemm_sheet(trace))
    return RankAnalysis(facts, gemm_statistics(facts), tuple(problems), workbook, sheet)


def answer(task: RankTask | RocprofTask) -> bytes:
    """The message that answers a task."""
    if isinstance(task, RocprofTask):
        return _encode(read_point_rocprof(task.folders, task.traces))
    return packed(analyse_rank(task))


def packed(found: RankAnalysis | RankFailure) -> bytes:
    """The message of an analysis."""
    if isinstance(found, RankFailure):
        return _encode(found)
    groups: dict[Group, int] = {}
    group_of = [
        -1 if one.collective.group is None
        else groups.setdefault(one.collective.group, len(groups))
        for one in found.facts.communication
    ]  # fmt: skip
    bare = _with_groups(found, [None] * len(group_of))
    return _encode(_Packed(bare, tuple(groups), tuple(group_of)))


def _with_groups(found: RankAnalysis, groups: Sequence[Group | None]) -> RankAnalysis:
    """The analysis with another group of each communication kernel."""
    communication = tuple(
        replace(one, collective=dataclasses.replace(one.collective, group=group))
        for one, group in zip(found.facts.communication, groups, strict=True)
    )
    result: RankAnalysis = replace(found, facts=replace(found.facts, communication=communication))
    return result


def unpacked(message: bytes, known: dict[Group, Group]) -> RankAnalysis | RankFailure:
    """The analysis in a message; equal groups of all messages become one object of `known`."""
    found = _PACKED.decode(message)
    if isinstance(found, RankFailure):
        return found
    groups = [*(known.setdefault(group, group) for group in found.groups), None]
    return _with_groups(found.analysis, [groups[index] for index in found.group_of])


def packed_sheet(table: Table | None) -> bytes:
    """The rows of a table; b"" if there is none. Lists of kernels shrink to about a tenth."""
    if table is None or not table.rows:
        return b""
    return zlib.compress(msgspec.msgpack.encode((table.names, table.rows)), 1)


def gemm_rows(packed: bytes) -> list[dict[str, Any]]:
    """The rows, as dictionaries by the names of the columns."""
    if not packed:
        return []
    names, rows = msgspec.msgpack.decode(zlib.decompress(packed))
    return [dict(zip(names, row, strict=True)) for row in rows]


def merged(recordings: Sequence[RankFacts]) -> RankFacts:
    """The facts of all `recordings` of one rank (at least one), in the order of their times.

    A recording that overlaps an earlier one in time, such as a copy of it, is left out and named in
    the problems. Steps whose numbers occur again are numbered on. Times of whole traces add up.
    """
    ordered = sorted(recordings, key=_extent)
    kept, problems = [ordered[0]], list(ordered[0].problems)
    for one in ordered[1:]:
        if _extent(one)[0] < _extent(kept[-1])[1]:
            problems.append(f"{one.file} is left out: it overlaps {kept[-1].file} in time")
        else:
            kept.append(one)
            problems += one.problems
    if len(kept) == 1:
        return replace(kept[0], problems=tuple(problems))
    kept = _numbered_on(kept)
    distinct = dict.fromkeys(kind for one in kept for kind in one.gemm_kinds)
    kinds = {kind: number for number, kind in enumerate(distinct)}
    return replace(
        kept[0],
        span=(kept[0].span[0], kept[-1].span[1]),
        partial=any(one.partial for one in kept),
        problems=tuple(problems),
        times={name: sum(one.times.get(name, 0) for one in kept)
               for name in {**kept[0].times, **kept[-1].times}},
        steps=tuple(step for one in kept for step in one.steps),
        gemm_kinds=tuple(kinds),
        gemms=_gemms(kept, kinds),
        communication=tuple(_communication(kept)),
        kernel_times=_kernel_times(kept),
    )  # fmt: skip


def _extent(facts: RankFacts) -> tuple[int, int]:
    """First and last moment of a recording."""
    gemms = facts.gemms
    found = [(step.start_ns, step.end_ns) for step in facts.steps]
    found += [facts.span] if facts.span != (0, 0) else []
    if len(gemms):
        found.append((int(gemms.start_ns[0]), int((gemms.start_ns + gemms.duration_ns).max())))
    return min((start for start, _ in found), default=0), max((end for _, end in found), default=0)


def _numbered_on(recordings: Sequence[RankFacts]) -> list[RankFacts]:
    """Recordings without a number of a step that an earlier one has."""
    result: list[RankFacts] = []
    used: set[int] = set()
    for one in recordings:
        numbers = {step.number for step in one.steps}
        shift = max(used) + 1 - min(numbers) if numbers & used else 0
        result.append(_shifted(one, shift) if shift else one)
        used |= {number + shift for number in numbers}
    return result


def _shifted(facts: RankFacts, shift: int) -> RankFacts:
    def number(step: int) -> int:
        return step + shift if step >= 0 else step

    of_gemms = facts.gemms.step
    return replace(
        facts,
        steps=tuple(replace(step, number=number(step.number)) for step in facts.steps),
        gemms=replace(facts.gemms, step=np.where(of_gemms >= 0, of_gemms + shift, of_gemms)),
        communication=tuple(replace(one, step=number(one.step)) for one in facts.communication),
    )


def _gemms(recordings: Sequence[RankFacts], kinds: dict[GemmKind, int]) -> GemmInstances:
    parts = []
    instances = kernels = 0
    for one in recordings:
        number = np.array([kinds[kind] for kind in one.gemm_kinds] or [0], np.int64)
        pairs = one.gemms.overlapping + np.array([instances, kernels, 0])
        parts.append(replace(one.gemms, kind=number[one.gemms.kind], pairs=pairs.reshape(-1)))
        instances += len(one.gemms)
        kernels += len(one.communication)
    return GemmInstances(*map(np.concatenate, zip(*map(astuple, parts), strict=True)))


def _communication(recordings: Sequence[RankFacts]) -> Iterator[CommunicationKernel]:
    """The kernels of all recordings; their rows count on, as rows identify them."""
    rows = 0
    for one in recordings:
        for kernel in one.communication:
            found = dataclasses.replace(kernel.collective, row=kernel.collective.row + rows)
            yield replace(kernel, collective=found)
        rows += 1 + max((kernel.collective.row for kernel in one.communication), default=-1)


def _kernel_times(recordings: Sequence[RankFacts]) -> KernelTimes:
    tables = [one.kernel_times for one in recordings]
    names = tuple(dict.fromkeys(name for table in tables for name in table.names))
    found = np.zeros((sum(len(one.steps) for one in recordings), len(names)), np.int64)
    begin = 0
    for one, table in zip(recordings, tables, strict=True):
        end = begin + len(one.steps)
        if columns := [names.index(name) for name in table.names]:
            found[begin:end, columns] = table.per_step
        begin = end
    return KernelTimes(names, found)


def analyse_ranks(
    tasks: Sequence[RankTask],
    *,
    processes: int | None = None,
    progress: Progress | None = None,
) -> list[RankAnalysis | RankFailure]:
    """Analyse each trace, in the order of `tasks`.

    Args:
        processes: number of workers; by default one for each processor that this process may use,
            or none where the traces are small.
    """
    known: dict[Group, Group] = {}
    results: list[RankAnalysis | RankFailure] = [RankFailure("it was not read")] * len(tasks)
    sizes = [_bytes_of(task.file.path) for task in tasks]
    with closing(_answers(tasks, sizes, processes, SMALL_BYTES)) as found:
        for done, (index, message) in enumerate(found, 1):
            if isinstance(message, str):
                results[index] = RankFailure(message, is_internal=True)
            else:
                results[index] = unpacked(message, known)
            if progress is not None:
                progress(done, len(tasks), str(tasks[index].file.path))
    return results


def read_rocprofs(
    tasks: Sequence[RocprofTask], *, processes: int | None = None
) -> list[PointRocprof]:
    """What the files of rocprofv3 show of each point, in the order of `tasks`; `processes` as for
    :func:`analyse_ranks`."""
    sizes = [
        sum(_bytes_of(file) for folder in task.folders for file in folder.rglob("*"))
        for task in tasks
    ]
    results = [PointRocprof()] * len(tasks)
    for index, message in _answers(tasks, sizes, processes, SMALL_TABLE_BYTES):
        if isinstance(message, str):
            results[index] = PointRocprof(problems=(f"rocprofv3's files: {message}",))
        else:
            results[index] = _ROCPROF.decode(message)
    return results


def _bytes_of(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _answers(
    tasks: Sequence[RankTask | RocprofTask],
    sizes: Sequence[int],
    processes: int | None,
    small: int,
) -> Generator[tuple[int, bytes | str], None, None]:
    """The index of each task with its message, or why there is none, as they come. Closing it ends
    the workers. Tasks with fewer than `small` bytes together take none by default."""
    if processes is None:
        processes = 1 if sum(sizes) < small else usable_cores()
    processes = min(processes, sum(map(bool, sizes)))
    if processes <= 1:
        # Packed like those of workers, so that repeated groups are one object.
        yield from ((index, answer(task)) for index, task in enumerate(tasks))
        return
    # Largest first, so that no worker begins a large trace when the others are done.
    order = sorted(range(len(tasks)), key=lambda index: (-sizes[index], index))
    workers: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
    every = [_Worker() for _ in range(processes)]
    for one in every:
        workers.put(one)

    def ask(task: RankTask | RocprofTask) -> bytes | str:
        worker = workers.get()
        try:
            return worker.ask(_encode(task))
        finally:
            workers.put(worker)

    threads = ThreadPoolExecutor(processes)
    try:
        indices = {threads.submit(ask, tasks[index]): index for index in order}
        for future in as_completed(indices):
            yield indices[future], future.result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        for one in every:
            one.kill()
        threads.shutdown()
        for one in every:
            one.close()


class _Worker:
    """A process that answers one task at a time; one that died is replaced for the next task."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - close() closes it

    def ask(self, task: bytes) -> bytes | str:
        """The message of the worker, or why there is none: the fault is neither the trace's nor the
        training's, unless memory was short."""
        if self._process is None:
            self._process = subprocess.Popen(
                WORKER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            write_frame(process.stdin, task)
            if (message := read_frame(process.stdout)) is not None:
                return message
        except (OSError, ValueError):
            pass
        process.communicate()
        status, self._process = process.returncode, None
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").strip().splitlines()[-1:]
        text = f"gemmetry failed while it read this: its worker ended with status {status}"
        return ": ".join([text, *last])

    def kill(self) -> None:
        """End the process, also within a task."""
        if (process := self._process) is not None:
            process.kill()

    def close(self) -> None:
        """Release what the process, which has ended, used."""
        self._errors.close()
        if self._process is not None:
            self._process.communicate()


def write_frame(file: IO[bytes], message: bytes) -> None:
    """Write one message."""
    file.write(len(message).to_bytes(LENGTH_BYTES, "little") + message)
    file.flush()


def read_frame(file: IO[bytes]) -> bytes | None:
    """The next message; None at the end of the stream, also within a message."""
    length = file.read(LENGTH_BYTES)
    if len(length) < LENGTH_BYTES:
        return None
    size = int.from_bytes(length, "little")
    message = file.read(size)
    return message if len(message) == size else None


def main() -> None:
    """Answer tasks until the standard input ends."""
    # What a library prints must not come between the frames.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        while (message := read_frame(sys.stdin.buffer)) is not None:
            write_frame(answers, answer(TASK.decode(message)))


if __name__ == "__main__":
    main()
