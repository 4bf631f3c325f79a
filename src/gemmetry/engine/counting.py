"""The program whose counters are collected: builds dispatches of one provider, and launches each
once while it is profiled.

``python -m gemmetry.engine.counting FILE`` reads a request from a file, as a profiler may
keep standard input to itself. Whatever a provider does at a first launch is over before the
profiler is started. The launch of each of several dispatches lies in an NVTX range of its own
(:func:`range_name`), and the line :data:`COUNTED` with its number is printed after it.

Collects hardware counters of dispatches that are ok, in processes that launch nothing else.

With Nsight Compute, dispatches of a provider share a process, whose start takes longer than most
dispatches: each launch lies in an NVTX range. Where such a process crashes, the dispatch
that it was busy with is counted alone, and the others continue together.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gemmetry.counters.collector import (
    Collected,
    Tool,
    collect,
    divide,
    find_tool,
    plan,
    read_counters,
)
from gemmetry.counters.gates import diagnose
from gemmetry.counters.model import LaunchVerdict
from gemmetry.counters.tools import CollectRequest, ToolName
from gemmetry.counters.work import gemm_work
from gemmetry.domain.contracts import Provider
from gemmetry.domain.dispatch import Configuration, Plan, TargetKind, parse_operation
from gemmetry.domain.errors import (
    DispatchError,
    EnvironmentFailure,
    GemmetryError,
    Outcome,
    ProfiledCommandError,
    RequestError,
    StorageError,
)
from gemmetry.domain.files import remove
from gemmetry.domain.record import CounterFacts, Message, Record
from gemmetry.domain.tables import grouped
from gemmetry.domain.units import format_ns, plural
from gemmetry.engine.candidates import Candidate, job_of
from gemmetry.engine.external import run_command
from gemmetry.engine.journal import Journal, path_of
from gemmetry.engine.planning import LaneProvider, candidates_of
from gemmetry.engine.process import WorkerContext, wait_for_ends
from gemmetry.engine.protocol import Hello
from gemmetry.engine.sanitizing import CANNOT, build_requested, made_ready
from gemmetry.formats.counters.launches import DURATION
from gemmetry.providers.registry import load_provider

WARM_UP = 2
"""Launches before the one that is profiled: libraries choose and load kernels at the first."""


COUNTED = "gemmetry: counted"
"""Printed with the number of a dispatch once it was profiled as a whole."""


class CountedRequest(msgspec.Struct, frozen=True):
    """Which dispatches to launch: their operations with configurations."""

    hello: Hello
    dispatches: tuple[tuple[str, Configuration], ...]


def range_name(number: int) -> str:
    """The NVTX range of the dispatch with this place in a request."""
    return f"gemmetry_dispatch_{number}"


def main(path: Path) -> int:
    """Build, warm up, and launch each once under the profiler. Returns the exit status:
    :data:`CANNOT` if none could be launched."""
    request = msgspec.msgpack.decode(path.read_bytes(), type=CountedRequest)
    count = len(request.dispatches)
    launched = 0
    try:
        provider = load_provider(request.hello.provider, request.hello.options)
        for number in range(count):
            try:
                _launch(provider, request, number)
            except GemmetryError as error:  # the others are launched nevertheless
                sys.stderr.write(f"{error.message}\n")
                continue
            sys.stdout.write(f"{COUNTED} {number}\n")
            sys.stdout.flush()
            launched += 1
    except GemmetryError as error:
        sys.stderr.write(f"{error.message}\n")
    return 0 if launched else CANNOT


def _launch(provider: Provider, request: CountedRequest, number: int) -> None:
    name, configuration = request.dispatches[number]
    hello, operation = request.hello, parse_operation(name)
    executable = build_requested(provider, hello, operation, configuration)
    device, (_, launch) = executable.device, made_ready(executable, operation, hello)
    for _ in range(WARM_UP):
        launch()
    device.synchronize()
    kind = hello.target.kind
    profiler = _profiler(kind)
    # Of a single dispatch, every launch is its own.
    named = _range(kind, range_name(number)) if len(request.dispatches) > 1 else nullcontext()
    with named:
        if profiler is not None:
            profiler.cuProfilerStart()
        try:
            launch()
            device.synchronize()
        finally:
            if profiler is not None:
                profiler.cuProfilerStop()
    executable.close()


def _range(kind: TargetKind, name: str) -> AbstractContextManager[object]:
    """An NVTX range, on devices that have them.

    Raises:
        DispatchError: torch, which opens the range, is not installed.
    """
    if kind is not TargetKind.CUDA:
        return nullcontext()
    try:
        from torch.cuda import nvtx
    except ImportError as error:
        raise DispatchError(f"NVTX ranges need torch: {error}") from error
    opened: AbstractContextManager[object] = nvtx.range(name)
    return opened


def _profiler(kind: TargetKind) -> Any:
    """The driver, whose calls to start and stop ncu watches for; None on other devices."""
    return ctypes.CDLL("libcuda.so.1") if kind is TargetKind.CUDA else None


COUNTERS = "counters"
"""Subfolder of an experiment."""

SHARED = ".shared"
"""Folder next to those of the devices, while several dispatches share a process."""

MOST_TOGETHER = 16
"""Dispatches that share a process. Each of their folders has its report, a megabyte for each
dispatch, as a link to one file; on file systems without links, and after a merge, as a copy."""

TOOLS: Mapping[TargetKind, ToolName] = {TargetKind.CUDA: "ncu", TargetKind.HIP: "rocprofv3"}

PROGRAM = "gemmetry.engine.counting"


def check_counters(chosen: Plan) -> None:
    """Check, before anything runs, that counters can be collected of a plan.

    Raises:
        RequestError: the plan runs nothing, or nothing on a GPU with counters.
        EnvironmentFailure: the profiler is missing.
    """
    kinds = {target.kind for target in chosen.targets}
    if not job_of(chosen.settings).uses_device or not kinds & TOOLS.keys():
        raise RequestError(
            "hardware counters are collected of dispatches that run on an NVIDIA or AMD GPU, and "
            f"this plan has none: it is for {', '.join(map(str, chosen.targets))}",
            hint="Leave out --counters, or give --device cuda.",
        )
    for kind in kinds & TOOLS.keys():
        find_tool(TOOLS[kind])


@dataclass(frozen=True, slots=True)
class Counting:
    """Collects counters into the experiment of a run, after its dispatches are finished."""

    metric_set: str
    context: WorkerContext
    journal: Journal
    lanes: Mapping[int, LaneProvider]
    tools: dict[ToolName, Tool] = field(default_factory=dict)
    """Those that were found: starting one to list its sections takes a second."""

    def work(self) -> str:
        """Collect of every ok dispatch on a GPU that has none of this set. Returns why that ended
        early; "" if it did not. A dispatch whose counters cannot be collected is reported."""
        store = self.journal.experiment
        lacking = {number: record for number, record in store.numbered_records()
                   if self._lacks(record)}  # fmt: skip
        if not lacking:
            return ""
        wait_for_ends()  # They hold memory of the GPU.
        began = time.monotonic()
        dispatches = plural(len(lacking), "dispatch", "dispatches")
        what = f"collecting hardware counters of {dispatches}"
        self.journal.publish(Message(f"{what}, in processes that launch nothing else"))
        rows = (row for row in store.planned() if row.id in lacking)
        by_lane = grouped(candidates_of(rows, self.lanes), lambda one: one.lane.id)
        done = 0
        try:
            for candidates in by_lane.values():
                for candidate, facts in self._of_provider(candidates):
                    record = dataclasses.replace(lacking[candidate.id], counters=facts)
                    store.amend(candidate.id, record)
                    done += 1
        except EnvironmentFailure as error:
            return str(error)
        if done:
            dispatches = plural(done, "dispatch", "dispatches")
            took = format_ns(1e9 * (time.monotonic() - began))
            text = f"hardware counters of {dispatches} were collected in {took}"
            self.journal.publish(Message(text))
        return ""

    def _of_provider(
        self, candidates: Sequence[Candidate]
    ) -> Iterator[tuple[Candidate, CounterFacts]]:
        """The counters of each dispatch of a provider: of several in one process while that works.

        Raises:
            EnvironmentFailure: counters cannot be collected here.
        """
        left = list(candidates)
        together = TOOLS[left[0].lane.target.kind] == "ncu"
        while left:
            group = left[:MOST_TOGETHER] if together else left[:1]
            found = self._together(group) if len(group) > 1 else {}
            for candidate in group:
                if candidate.id in found:
                    yield candidate, found[candidate.id]
            left = [one for one in left if one.id not in found]
            if len(found) == len(group):
                continue
            # What several share may fail where each alone does not.
            together = together and (bool(found) or len(group) == 1)
            alone = left.pop(0)
            try:
                yield alone, self._facts(alone, self._collected([alone], self._folder(alone)))
            except GemmetryError as error:
                if isinstance(error, EnvironmentFailure) and not self._has_crashed(alone, error):
                    raise EnvironmentFailure(f"counters of {alone.name}: {error}") from error
                self.journal.warn(f"no counters of {alone.name}: {error.message}")

    def _has_crashed(self, candidate: Candidate, error: EnvironmentFailure) -> bool:
        """Whether the program failed, which concerns its dispatch only, and not the profiler."""
        log = self._folder(candidate) / "counters.application.log"
        return isinstance(error, ProfiledCommandError) and not _completed(log, 1)

    def _lacks(self, record: Record) -> bool:
        kept = record.counters
        if record.outcome is not Outcome.OK or record.target.partition("-")[0] not in TOOLS:
            return False
        if kept is None or kept.metric_set != self.metric_set:
            return True
        return not (self.journal.experiment.path / kept.folder).is_dir()

    def _together(self, group: Sequence[Candidate]) -> dict[int, CounterFacts]:
        """Counters of those dispatches of a group that were profiled as a whole, by id."""
        shared = self.journal.experiment.path.resolve() / COUNTERS / SHARED
        try:
            collected = self._collected(group, shared)
            whole = _completed(collected.files.application_log, len(group))
            ranges = {range_name(number): group[number] for number in whole}
            parts = divide(collected, {name: self._folder(one) for name, one in ranges.items()})
            return {ranges[name].id: self._facts(ranges[name], part)
                    for name, part in parts.items()}  # fmt: skip
        except StorageError:
            raise
        except (GemmetryError, OSError):
            return {}  # Alone, each gives its reason.
        finally:
            with contextlib.suppress(OSError):
                remove(shared, inside=shared.parents[1])

    def _folder(self, candidate: Candidate) -> Path:
        return self.journal.experiment.path.resolve() / _place(candidate)

    def _collected(self, group: Sequence[Candidate], folder: Path) -> Collected:
        folder.mkdir(parents=True, exist_ok=True)
        request_file = folder / "request.msgpack"
        lane = group[0].lane
        request_file.write_bytes(msgspec.msgpack.encode(CountedRequest(
            self.context.hello(lane, jobs=1),
            tuple((one.operation_name, one.configuration) for one in group),
        )))  # fmt: skip
        name = TOOLS[lane.target.kind]
        tool = self.tools.get(name) or self.tools.setdefault(name, find_tool(name))
        # Nsight Compute waits for the program to start it. rocprofv3 leaves out the first launches
        # of each kernel: up to ROCm 7.0, pausing it does not reach counters (rocm-systems#1496).
        is_started = name == "ncu"
        try:
            request = CollectRequest(
                command=(sys.executable, "-m", PROGRAM, str(request_file)),
                metric_set=self.metric_set, from_start=not is_started,
                launch_skip=0 if is_started else WARM_UP, records_ranges=len(group) > 1,
            )  # fmt: skip
            return collect(plan(request, folder, tool=tool), run_command, replace=True)
        finally:
            remove(request_file, inside=folder)

    def _facts(self, candidate: Candidate, collected: Collected) -> CounterFacts:
        facts = CounterFacts(
            folder=_place(candidate).as_posix(), metric_set=self.metric_set,
            launches=collected.launches, passes=collected.passes,
        )  # fmt: skip
        found = _verdict(collected, candidate)
        return facts if found is None else dataclasses.replace(
            facts, verdict=found.id, summary=found.claim, confidence=str(found.confidence)
        )  # fmt: skip


def _completed(log: Path, count: int) -> list[int]:
    """The places, of `count`, of the dispatches that the program launched to their end."""
    try:
        lines = set(log.read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return []
    return [number for number in range(count) if f"{COUNTED} {number}" in lines]


def _place(candidate: Candidate) -> Path:
    """The folder of a dispatch's counters, relative to the experiment's."""
    lane = candidate.lane
    place = lane.target.device or lane.target.name
    return Path(COUNTERS) / path_of(place, lane.provider, candidate.name)


def _verdict(collected: Collected, candidate: Candidate) -> LaunchVerdict | None:
    """What bounds the kernel that took longest; None where no launch can be read."""
    files = collected.files
    table = read_counters(files.table if files.table.exists() else files.folder)
    if not len(table):
        return None
    launch = max(table, key=lambda one: one.value(DURATION) or 0.0)
    # Of several kernels, such as a product and a reduction, none does all of the work.
    work = gemm_work(candidate.operation) if len(table) == 1 else None
    return diagnose(launch, work).verdict


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
