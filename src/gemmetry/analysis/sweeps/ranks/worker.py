"""What is computed of one trace, where it is read: in this process, or in one of several.

``python -m gemmetry.analysis.sweeps.ranks.worker [HOOK]`` takes tasks from its standard input and
answers them on its standard output, in frames of a length (8 bytes, little-endian) and a message.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

import msgspec

from gemmetry.analysis.sweeps.model import RankFacts, RankFile
from gemmetry.analysis.sweeps.ranks.extraction import read_facts
from gemmetry.analysis.sweeps.ranks.gemms import GemmStatistics, gemm_statistics
from gemmetry.analysis.sweeps.ranks.recordings import merged
from gemmetry.analysis.sweeps.ranks.sheets import packed_sheet
from gemmetry.domain.errors import GemmetryError
from gemmetry.traces.collectives.summary import Group
from gemmetry.traces.model import Trace
from gemmetry.traces.tracelens.tables import gemm_sheet

if TYPE_CHECKING:
    from gemmetry.analysis.sweeps.rocprof import PointRocprof

LENGTH_BYTES = 8

Hook: TypeAlias = Callable[[Trace, RankFacts, str], Path]
"""Writes the workbook of one trace, while it is in memory, to a path that begins with the text and
that it returns."""


class RankTask(msgspec.Struct, frozen=True, tag=True):
    """The trace of one rank."""

    path: str
    rank: int | None
    rank_source: str
    workbook: str = ""
    """Beginning of the path of the workbook that the hook writes; "": it is not called."""
    more: tuple[str, ...] = ()
    """Further recordings of the rank."""


class RocprofTask(msgspec.Struct, frozen=True, tag=True):
    """The folders of rocprofv3's files of one point, and the processes whose ranks are known."""

    folders: tuple[str, ...]
    traces: tuple[tuple[int, str, int], ...] = ()
    """The fields of each :class:`~gemmetry.analysis.sweeps.rocprof.TraceProcess`."""


class RankAnalysis(msgspec.Struct, frozen=True):
    """What is computed of one trace alone."""

    facts: RankFacts
    gemms: tuple[GemmStatistics, ...]
    """Those with the most time first."""
    problems: tuple[str, ...] = ()
    """What could not be written of it."""
    workbook: str = ""
    """What the hook wrote."""
    gemm_sheet: bytes = b""
    """The sheet ``GEMM`` of TraceLens' workbook (:mod:`.sheets`)."""


class RankFailure(msgspec.Struct, frozen=True, tag=True):
    """Why a trace could not be read."""

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


_PACKED = msgspec.msgpack.Decoder(_Packed | RankFailure)
TASK = msgspec.msgpack.Decoder(RankTask | RocprofTask)


def hook_of(name: str) -> Hook | None:
    """The function ``module:name``; None for ""."""
    if not name:
        return None
    module, _, function = name.partition(":")
    found: Hook = getattr(import_module(module), function)
    return found


def analyse_rank(task: RankTask, hook: Hook | None = None) -> RankAnalysis | RankFailure:
    """Read a trace and compute what it shows alone; of several recordings, workbook and sheet are
    those of the first."""
    try:
        trace, facts = read_facts(RankFile(Path(task.path), task.rank, task.rank_source))
    except (GemmetryError, OSError) as error:
        return RankFailure(str(getattr(error, "message", error)))
    problems: tuple[str, ...] = ()
    workbook = ""
    if hook is not None and task.workbook:
        try:
            workbook = str(hook(trace, facts, task.workbook))
        except (GemmetryError, OSError) as error:
            what = getattr(error, "message", error)
            problems = (f"the workbook of {task.path} is not written: {what}",)
    facts, unread = _with_more(facts, task)
    problems += unread
    return RankAnalysis(
        facts, gemm_statistics(facts), problems, workbook, packed_sheet(gemm_sheet(trace))
    )


def _with_more(facts: RankFacts, task: RankTask) -> tuple[RankFacts, tuple[str, ...]]:
    """`facts` with those of the rank's further recordings, and why some could not be read."""
    recordings, problems = [facts], []
    for path in task.more:
        try:
            found = read_facts(RankFile(Path(path), task.rank, task.rank_source))[1]
        except (GemmetryError, OSError) as error:
            problems.append(str(getattr(error, "message", error)))
            continue
        if found.rank == facts.rank:
            recordings.append(found)
        else:
            problems.append(f"{path} is left out: it is of rank {found.rank}")
    return merged(recordings) if len(recordings) > 1 else facts, tuple(problems)


def read_rocprof(task: RocprofTask) -> PointRocprof:
    """What the files of rocprofv3 show."""
    from gemmetry.analysis.sweeps.rocprof import TraceProcess, read_point_rocprof

    traces = [TraceProcess(pid=pid, host=host, rank=rank) for pid, host, rank in task.traces]
    return read_point_rocprof(map(Path, task.folders), traces)


def answer(task: RankTask | RocprofTask, hook: Hook | None = None) -> bytes:
    """The message that answers a task."""
    if isinstance(task, RocprofTask):
        return msgspec.msgpack.encode(read_rocprof(task))
    return packed(analyse_rank(task, hook))


def packed(found: RankAnalysis | RankFailure) -> bytes:
    """The message of an analysis."""
    if isinstance(found, RankFailure):
        return msgspec.msgpack.encode(found)
    groups: dict[Group, int] = {}
    group_of = []
    bare = []
    for one in found.facts.communication:
        group = one.collective.group
        group_of.append(-1 if group is None else groups.setdefault(group, len(groups)))
        bare.append(msgspec.structs.replace(one, collective=replace(one.collective, group=None)))
    facts = msgspec.structs.replace(found.facts, communication=tuple(bare))
    analysis = msgspec.structs.replace(found, facts=facts)
    return msgspec.msgpack.encode(_Packed(analysis, tuple(groups), tuple(group_of)))


def unpacked(message: bytes, known: dict[Group, Group]) -> RankAnalysis | RankFailure:
    """The analysis in a message; equal groups of all messages become one object of `known`."""
    found = _PACKED.decode(message)
    if isinstance(found, RankFailure):
        return found
    groups = [known.setdefault(group, group) for group in found.groups]
    communication = tuple(
        one
        if index < 0
        else msgspec.structs.replace(one, collective=replace(one.collective, group=groups[index]))
        for one, index in zip(found.analysis.facts.communication, found.group_of, strict=True)
    )
    facts = msgspec.structs.replace(found.analysis.facts, communication=communication)
    result: RankAnalysis = msgspec.structs.replace(found.analysis, facts=facts)
    return result


def write_frame(file: BinaryIO, message: bytes) -> None:
    """Write one message."""
    file.write(len(message).to_bytes(LENGTH_BYTES, "little"))
    file.write(message)
    file.flush()


def read_frame(file: BinaryIO) -> bytes | None:
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
        hook = hook_of(sys.argv[1] if len(sys.argv) > 1 else "")
        while (message := read_frame(sys.stdin.buffer)) is not None:
            write_frame(answers, answer(TASK.decode(message), hook))


if __name__ == "__main__":
    main()
