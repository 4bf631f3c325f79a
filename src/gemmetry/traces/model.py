"""A trace with the data that its tables use: which kernels are GEMMs, which communicate, and when.

Everything is computed once, when it is first needed.

Profilers lose work: buffers overflow, kernels of graphs are not recorded, times stay 0. Rates,
windows and idle times computed from the rest would be wrong without a word, so each loss is counted
in ``TraceRows.problems``, and times that no work can have are removed.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from gemmetry.domain.files import short_name
from gemmetry.domain.units import plural
from gemmetry.formats.events import (
    MISSING,
    Bools,
    GpuKind,
    GpuRows,
    Int64,
    ProblemKind,
    TracePart,
    TraceProblem,
    TraceRows,
    among,
    chosen,
    is_launch,
    release_pages,
)
from gemmetry.traces.joins import NONE, Intervals, JoinedLaunches, calls_of, join_launches, union
from gemmetry.traces.names import KernelName, classify, is_communication, is_gemm
from gemmetry.traces.operators.gemms import is_convolution_operator, launched_by_convolution

APART_NS = 3600 * 10**9
"""Gap between pieces of work, and time between a launch and its work, above which they are assumed
to have different time bases. This is a judgement: in the public traces gaps are up to 10 s and
delays up to 3 s."""


BEFORE_NS = 10**9
"""Work cannot begin before its launch; clocks of host and GPU differ by far less than this."""


_TIMES_LONGER = 10
"""Factor above the median of the same kernel from which a duration that also contradicts the times
of other work is treated as impossible."""


_ROUNDED_NS = 10_000
"""Median of a kernel's durations above which 0 is no rounded duration: tools of 2021 wrote whole
µs."""


_MOST_GROUPS = 5
"""Number of groups of work with another time base that are reported."""


_MOST_SHOWN = 5
"""Maximum number of problems of a file to list; documents and sheets have all."""


def split(rows: TraceRows) -> list[tuple[str, TraceRows]]:
    """The name and the rows of each part; ("", `rows`) where there is only one.

    A part's rank is that of its label, and its problems are its own and those of the whole file.
    """
    if not rows.parts:
        return [("", rows)]
    world = max(rows.world_size or 0, len(rows.parts), *(1 + (p.rank or 0) for p in rows.parts))
    ranked = all(part.rank is not None for part in rows.parts)
    return [
        (part.name, dataclasses.replace(
            _part(rows, index, part), rank=part.rank, world_size=world if ranked else None,
            problems=tuple(one for one in rows.problems if one.part in (None, index)),
        ))
        for index, part in enumerate(rows.parts)
    ]  # fmt: skip


def checked(rows: TraceRows) -> TraceRows:
    """`rows` without work on GPUs that has no time or an impossible one; ``problems`` has what was
    left out and what else is missing."""
    kept = np.ones(len(rows.gpu.start_ns), bool)
    problems: list[TraceProblem] = []
    for index, part in enumerate(rows.parts or [None]):
        check = _Check(_part(rows, index, part) if part else rows)
        kept[rows.gpu.part == index if part else slice(None)] &= check.run()
        own = index if part else None
        problems += [dataclasses.replace(one, part=own) for one in check.problems]
    if not problems:
        return rows
    gpu = rows.gpu if kept.all() else chosen(rows.gpu, kept)
    return dataclasses.replace(rows, gpu=gpu, problems=(*rows.problems, *problems))


def _part(rows: TraceRows, index: int, part: TracePart) -> TraceRows:
    """The rows of a part."""
    of_thread = np.zeros(len(rows.threads), bool)
    of_thread[list(part.threads)] = True
    gpu = chosen(rows.gpu, rows.gpu.part == index)
    calls = chosen(rows.calls, of_thread[rows.calls.thread])
    operators = chosen(rows.operators, of_thread[rows.operators.thread])
    annotations = chosen(rows.annotations, of_thread[rows.annotations.thread])
    return dataclasses.replace(
        rows, gpu=gpu, calls=calls, operators=operators, annotations=annotations, parts=(),
        events=sum(len(one.start_ns) for one in (gpu, calls, operators, annotations)),
    )  # fmt: skip


def problem_texts(file: Path, partial: bool, problems: Sequence[TraceProblem]) -> list[str]:
    """Sentences about a file that could be read: whether it is partial, and its first problems."""
    found = [f"{file} is partial: events are missing"] if partial else []
    found += [f"{file}: {problem}" for problem in problems[:_MOST_SHOWN]]
    more = sum(
        one.count if one.kind is ProblemKind.DAMAGED else 1 for one in problems[_MOST_SHOWN:]
    )
    return [*found, f"{file}: and {plural(more, 'more problem')}"] if more else found


def launches_without_work(rows: TraceRows, call: Int64) -> Int64:
    """Rows of ``rows.calls``: launches of kernels and graphs whose work is not in the file.

    A launch that was only captured into a graph has none, and neither has one of a kind whose work
    the tool does not link to its launches at all.

    Args:
        call: of each row of ``rows.gpu``, as :func:`~gemmetry.traces.joins.calls_of`.
    """
    calls, gpu = rows.calls, rows.gpu
    launching = np.array([is_launch(name) for name in rows.names], bool)
    if not launching.any() or not len(calls.name):
        return np.zeros(0, np.int64)
    may_be_lost = launching[calls.name] & (calls.correlation > 0)
    may_be_lost[call[call != NONE]] = False
    lost = np.flatnonzero(may_be_lost)
    # Of several calls with a number only one is linked.
    lost = lost[~among(calls.correlation[lost], np.sort(gpu.correlation))]
    if not len(lost):
        return lost
    kernels = gpu.correlation[gpu.kind == GpuKind.KERNEL]
    unlinked = int((~among(kernels, np.sort(calls.correlation))).sum())
    for name in np.unique(calls.name[lost]).tolist():
        of_name = calls.name[lost] == name
        # Where none of a kind is linked, kernels without a launch may be theirs.
        if of_name.sum() == (calls.name == name).sum() and unlinked >= of_name.sum():
            lost = lost[~of_name]
    return lost[~_in_captures(rows, lost)]


def _in_captures(rows: TraceRows, launches: Int64) -> Bools:
    """Mask of calls between the beginning and the end of a capture on their thread."""
    calls = rows.calls
    found = [re.search(r"Stream(Begin|End)Capture", name) for name in rows.names]
    sign = np.array([0 if one is None else 1 if one[1] == "Begin" else -1 for one in found])
    result = np.zeros(len(launches), bool)
    marks = np.flatnonzero(sign[calls.name])
    for thread in np.unique(calls.thread[marks]).tolist():
        own = marks[calls.thread[marks] == thread]
        own = own[np.argsort(calls.start_ns[own], kind="stable")]
        depth = np.append(0, np.maximum(np.cumsum(sign[calls.name[own]]), 0))
        here = np.flatnonzero(calls.thread[launches] == thread)
        at = np.searchsorted(calls.start_ns[own], calls.start_ns[launches[here]], side="right")
        result[here] = depth[at] > 0
    return result


@dataclass(slots=True)
class _Check:
    """The check of one part of a file."""

    rows: TraceRows
    problems: list[TraceProblem] = field(default_factory=list)
    call: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """The call of each row that is kept so far."""

    def run(self) -> Bools:
        """Mask of the rows of ``rows.gpu`` that are kept."""
        rows, gpu = self.rows, self.rows.gpu
        call, several = calls_of(rows)
        self._note_lost_launches(call)
        kept = np.ones(len(gpu.start_ns), bool)
        for what, found in (
            ("has no usable time: left out", self._without_time),
            ("has a duration of 0, although kernels like it last longer: left out",
             self._without_duration),
            ("begins before its launch, or more than an hour after it, which other work does not: "
             "left out", self._away_from_launches),
            ("lasts beyond the work after it on its stream: left out", self._beyond_neighbours),
            ("lasts beyond the end of the recording: left out", self._beyond_recording),
        ):  # fmt: skip
            left = gpu if kept.all() else chosen(gpu, kept)
            self.call = call[kept]
            if not len(left.start_ns):
                break
            bad = np.flatnonzero(kept)[found(left)]
            if len(bad):
                self._note(ProblemKind.NO_TIME, what, bad)
                kept[bad] = False
        self._note_gaps(np.flatnonzero(kept))
        if len(several):
            self._note(
                ProblemKind.AMBIGUOUS,
                "several launches have its number, as in a file of several processes: not linked "
                "to any; read each process's own file",
                several,
            )
        return kept

    def _note(self, kind: ProblemKind, what: str, work: Int64) -> None:
        name = short_name(self.rows.names[int(self.rows.gpu.name[int(work[0])])], 60)
        more = f" (and {len(work) - 1:,} more)" if len(work) > 1 else ""
        self.problems.append(TraceProblem(f"work on a GPU {name!r}{more}", what, kind, len(work)))

    def _note_lost_launches(self, call: Int64) -> None:
        calls = self.rows.calls
        lost = calls.name[launches_without_work(self.rows, call)]
        names, counts = np.unique(lost, return_counts=True)
        for name, count in zip(names.tolist(), counts.tolist(), strict=True):
            whole = int((calls.name == name).sum())
            what = (
                f"{count:,} of {whole:,} launched work that is not in the file: the GPU was busy "
                "for longer than shown"
            )
            where = f"call {short_name(self.rows.names[name], 60)!r}"
            self.problems.append(TraceProblem(where, what, ProblemKind.NO_WORK, count))

    def _without_time(self, gpu: GpuRows) -> Bools:
        """Start and duration are 0, counted from the origin of the times or from 1970."""
        is_zero = (gpu.start_ns == 0) | (gpu.start_ns == -self.rows.base_ns)
        # From 0 to an end since boot or 1970, where only the start is missing.
        result: Bools = is_zero & ((gpu.duration_ns == 0) | (gpu.duration_ns > APART_NS))
        return result

    def _without_duration(self, gpu: GpuRows) -> Bools:
        zero: Bools = (gpu.duration_ns == 0) & (gpu.kind == GpuKind.KERNEL)
        if zero.any() and not (gpu.duration_ns % 1000).any():
            zero[zero] = _usual_durations(gpu, ~zero, np.flatnonzero(zero)) >= _ROUNDED_NS
        return zero

    def _away_from_launches(self, gpu: GpuRows) -> Bools:
        result = np.zeros(len(gpu.start_ns), bool)
        linked = np.flatnonzero(self.call != NONE)
        delay = gpu.start_ns[linked] - self.rows.calls.start_ns[self.call[linked]]
        strange = (delay < -BEFORE_NS) | (delay > APART_NS)
        # If most are, it is the host's clock that differs.
        if strange.any() and 2 * strange.sum() <= len(strange):
            result[linked[strange]] = True
        return result

    def _beyond_neighbours(self, gpu: GpuRows) -> Bools:
        """Work that ends after the next two pieces on its stream, which runs its work one after the
        other, and takes far longer than the same kernel elsewhere."""
        order = np.lexsort((gpu.start_ns, gpu.stream, gpu.device))
        end = (gpu.start_ns + gpu.duration_ns)[order]
        first, second, third = order[:-2], order[1:-1], order[2:]
        beyond = (end[:-2] > end[1:-1]) & (end[:-2] > end[2:]) & (gpu.stream[first] != MISSING)
        for column in (gpu.device, gpu.stream):
            beyond &= column[first] == column[third]
        # Branches of a graph may share a stream.
        number = gpu.correlation
        beyond &= (number[first] != number[second]) | (number[first] <= 0)
        return self._among(gpu, first[beyond])

    def _beyond_recording(self, gpu: GpuRows) -> Bools:
        end, last = gpu.start_ns + gpu.duration_ns, int(gpu.start_ns.max())
        beyond = np.flatnonzero(end - last > BEFORE_NS)
        if len(beyond):
            first = int(gpu.start_ns.min())
            for one in (self.rows.calls, self.rows.operators, self.rows.annotations):
                last = max(last, int((one.start_ns + one.duration_ns).max(initial=last)))
                first = min(first, int(one.start_ns.min(initial=first)))
            beyond = beyond[end[beyond] - last > max(last - first, BEFORE_NS)]
        return self._among(gpu, beyond)

    def _among(self, gpu: GpuRows, rows: Int64) -> Bools:
        """Mask of `rows` that last far longer than the same kernel elsewhere. Communication kernels
        are exempt, since they wait for other ranks."""
        result, names = np.zeros(len(gpu.start_ns), bool), self.rows.names
        rows = rows[[not is_communication(names[name]) for name in gpu.name[rows].tolist()]]
        if len(rows):
            result[rows] = True
            usual = _usual_durations(gpu, ~result, rows)
            result[rows] = (usual > 0) & (gpu.duration_ns[rows] > _TIMES_LONGER * usual)
        return result

    def _note_gaps(self, kept: Int64) -> None:
        gpu = self.rows.gpu
        if len(kept) < 2:
            return
        order = kept[np.argsort(gpu.start_ns[kept], kind="stable")]
        start = gpu.start_ns[order]
        reached = np.maximum.accumulate(start + gpu.duration_ns[order])
        groups = np.split(order, np.flatnonzero(start[1:] - reached[:-1] > APART_NS) + 1)
        most = max(groups, key=len)
        for group in [one for one in groups if one is not most][:_MOST_GROUPS]:
            away = int(gpu.start_ns[group[0]] - gpu.start_ns[most[0]])
            unit, factor = ("days", 24 * 3600e9) if abs(away) >= 24 * 3600e9 else ("hours", 3600e9)
            side = f"{abs(away) / factor:,.1f} {unit} {'after' if away > 0 else 'before'}"
            what = (f"begins {side} the rest: another time base, or nothing "
                    "ran in between; window and idle time include the gap")  # fmt: skip
            self._note(ProblemKind.TIME_BASE, what, group)


def _usual_durations(gpu: GpuRows, others: Bools, rows: Int64) -> Int64:
    """For each of `rows` the median duration in ns of the `others` of its name; 0: there are
    none."""
    usual = {}
    for name in np.unique(gpu.name[rows]).tolist():
        found = gpu.duration_ns[others & (gpu.name == name)]
        usual[name] = int(np.median(found)) if len(found) else 0
    return np.array([usual[name] for name in gpu.name[rows].tolist()], np.int64)


@dataclass(frozen=True)
class Trace:
    """One trace file; arrays have one entry per row of ``rows.gpu`` unless stated otherwise."""

    file: Path
    rows: TraceRows
    of: Path | None = None
    """The file, where it contains several traces; `file` then also names which one this is."""

    @cached_property
    def kernel_names(self) -> dict[int, KernelName]:
        """Facts from the names of its kernels, by their index in ``rows.names``."""
        return {index: classify(self.rows.names[index]) for index in self._used_names}

    @cached_property
    def _used_names(self) -> list[int]:
        """Indices of its kernels' names."""
        return np.flatnonzero(np.bincount(self.rows.gpu.name[self.is_kernel])).tolist()

    @property
    def has_gpu_work(self) -> bool:
        """Whether anything ran on a GPU: a kernel, a copy or a fill."""
        return len(self.rows.gpu.start_ns) > 0

    @cached_property
    def is_kernel(self) -> Bools:
        """Mask of kernels, without copies and fills."""
        result: Bools = self.rows.gpu.kind == GpuKind.KERNEL
        return result

    @cached_property
    def is_gemm(self) -> Bools:
        """Mask of kernels of a matrix multiplication, including its helper passes: kernels with
        such a name that no convolution operator is known to have launched."""
        return self._is_named_gemm & ~self.is_gemm_of_convolution

    @cached_property
    def is_gemm_of_convolution(self) -> Bools:
        """Mask of kernels with the name of a GEMM that a convolution operator launched, as cuDNN
        and MIOpen do for filters of 1 x 1 and for transformed inputs."""
        named = self._is_named_gemm
        is_convolution = np.array([is_convolution_operator(name) for name in self.rows.names], bool)
        if not named.any() or not is_convolution[self.rows.operators.name].any():
            return np.zeros(len(named), bool)
        return named & launched_by_convolution(self.rows, self.launches)

    @cached_property
    def _is_named_gemm(self) -> Bools:
        return self._of_names(is_gemm)

    @cached_property
    def is_communication(self) -> Bools:
        """Mask of kernels that communicate with other GPUs, according to their names."""
        return self._of_names(is_communication)

    @cached_property
    def launches(self) -> JoinedLaunches:
        """The runtime call and the operator from which each row came."""
        found = join_launches(self.rows)
        self.release_pages()
        return found

    @cached_property
    def lost_launches(self) -> Int64:
        """Rows of ``rows.calls``: launches whose work is not in the file, or has no usable time."""
        # Without these problems there are none: nothing was lost or left out.
        kinds = {problem.kind for problem in self.rows.problems}
        if kinds.isdisjoint((ProblemKind.NO_WORK, ProblemKind.NO_TIME)):
            return np.zeros(0, np.int64)
        return launches_without_work(self.rows, self.launches.call)

    @cached_property
    def is_copy(self) -> Bools:
        """Mask of copies (memcpy)."""
        result: Bools = self.rows.gpu.kind == GpuKind.MEMCPY
        return result

    @cached_property
    def communication(self) -> Intervals:
        """All time in which a communication kernel runs."""
        return self.time_of(self.is_communication)

    def time_of(self, chosen: Bools | Int64) -> Intervals:
        """All time covered by at least one of the `chosen` rows (a mask or indices)."""
        gpu = self.rows.gpu
        return union(gpu.start_ns[chosen], gpu.duration_ns[chosen])

    def release_pages(self) -> None:
        """Release the memory of columns mapped from files: called after each step of the work
        (:func:`~gemmetry.formats.events.release_pages`)."""
        release_pages(self.rows)

    def device_name(self, device: int) -> str:
        """Product name of a device; "" where the file does not record it.

        AMD's traces count the devices of kernels from the first CPU, but those in the file's header
        from the first GPU: where all GPUs are of one product, the number does not matter.
        """
        products = set(self.rows.devices.values())
        return products.pop() if len(products) == 1 else self.rows.devices.get(device, "")

    @cached_property
    def label(self) -> str:
        """File, rank if it is one of several, and product of the GPU, as far as they are known."""
        rows = self.rows
        parts = [self.file.name]
        if rows.rank is not None and (rows.world_size or 0) > 1:
            parts.append(f"rank {rows.rank} of {rows.world_size}")
        used = sorted({self.device_name(device) for device in set(rows.gpu.device.tolist())})
        return ", ".join((*parts, *filter(None, used)))

    def _of_names(self, is_wanted: Callable[[str], bool]) -> Bools:
        wanted = np.zeros(len(self.rows.names) + 1, bool)
        for index in self._used_names:
            wanted[index] = is_wanted(self.rows.names[index])
        return wanted[self.rows.gpu.name] & self.is_kernel


@contextmanager
def stage(times: dict[str, float], name: str) -> Iterator[None]:
    """Add the duration of a block in seconds to `times`, less that of the stages within it."""
    counted, begin = sum(times.values()), time.perf_counter()
    try:
        yield
    finally:
        counted = sum(times.values()) - counted
        times[name] = times.get(name, 0.0) + time.perf_counter() - begin - counted
