"""Collects hardware counters of dispatches that are ok, each in a process of its own."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gemmetry.counters.collecting.collector import Collected, Tool, collect, find_tool, plan
from gemmetry.counters.collecting.request import CollectRequest, ToolName
from gemmetry.counters.diagnosis.gates import diagnose
from gemmetry.counters.diagnosis.model import LaunchVerdict
from gemmetry.counters.diagnosis.work import gemm_work
from gemmetry.counters.reading import read_counters
from gemmetry.domain.dispatch import Plan
from gemmetry.domain.errors import EnvironmentFailure, GemmetryError, RequestError
from gemmetry.domain.events import Message
from gemmetry.domain.outcome import Outcome
from gemmetry.domain.record import CounterFacts, Record
from gemmetry.domain.target import TargetKind
from gemmetry.domain.units import counted, format_ns
from gemmetry.engine.dispatches.candidate import Candidate
from gemmetry.engine.dispatches.candidates import Resolver
from gemmetry.engine.dispatches.counted import WARM_UP
from gemmetry.engine.dispatches.evidence_folders import path_of
from gemmetry.engine.dispatches.sanitized import SanitizedRequest
from gemmetry.engine.jobs import job_of
from gemmetry.engine.journal import Journal
from gemmetry.engine.opaque.executor import run_command
from gemmetry.engine.planning import LaneProvider
from gemmetry.engine.workers.process import WorkerContext
from gemmetry.formats.counters.launches import DURATION

COUNTERS = "counters"
"""Subfolder of an experiment."""

TOOLS: Mapping[TargetKind, ToolName] = {TargetKind.CUDA: "ncu", TargetKind.HIP: "rocprofv3"}

PROGRAM = "gemmetry.engine.dispatches.counted"


def check_counters(chosen: Plan) -> None:
    """Check, before anything runs, that counters can be collected of a plan.

    Raises:
        RequestError: it runs nothing, or nothing on a GPU with counters.
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
        began = time.monotonic()
        dispatches = counted(len(lacking), "dispatch", "dispatches")
        self.journal.publish(
            Message(f"collecting hardware counters of {dispatches}, each in a process of its own")
        )
        rows = (row for row in store.planned() if row.id in lacking)
        done = 0
        for candidate in Resolver(self.lanes).candidates(rows):
            record = lacking[candidate.id]
            try:
                facts = self._collect(candidate, record)
            except EnvironmentFailure as error:
                return f"counters of {record.dispatch}: {error}"
            except GemmetryError as error:
                self.journal.warn(f"no counters of {record.dispatch}: {error.message}")
                continue
            store.amend(candidate.id, dataclasses.replace(record, counters=facts))
            done += 1
        if done:
            dispatches = counted(done, "dispatch", "dispatches")
            took = format_ns(1e9 * (time.monotonic() - began))
            self.journal.publish(
                Message(f"hardware counters of {dispatches} were collected in {took}")
            )
        return ""

    def _lacks(self, record: Record) -> bool:
        kept = record.counters
        if record.outcome is not Outcome.OK or record.target.partition("-")[0] not in TOOLS:
            return False
        if kept is None or kept.metric_set != self.metric_set:
            return True
        return not (self.journal.experiment.path / kept.folder).is_dir()

    def _collect(self, candidate: Candidate, record: Record) -> CounterFacts:
        target = candidate.lane.target
        root = self.journal.experiment.path
        place = Path(COUNTERS) / path_of(
            target.device or target.name, record.provider, record.dispatch
        )
        folder = (root / place).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        request_file = folder / "request.msgpack"
        hello = self.context.hello(candidate.lane, jobs=1)
        request_file.write_bytes(
            msgspec.msgpack.encode(
                SanitizedRequest(hello, (candidate.operation_name,), candidate.configuration, 0.0)
            )
        )
        name = TOOLS[target.kind]
        tool = self.tools.get(name) or self.tools.setdefault(name, find_tool(name))
        # Nsight Compute waits for the program to start it. rocprofv3 leaves out the first launches
        # of each kernel: up to ROCm 7.0, pausing it does not reach counters (rocm-systems#1496).
        is_started = name == "ncu"
        try:
            planned = plan(
                CollectRequest(
                    command=(sys.executable, "-m", PROGRAM, str(request_file)),
                    metric_set=self.metric_set,
                    from_start=not is_started,
                    launch_skip=0 if is_started else WARM_UP,
                ),
                folder,
                tool=tool,
            )
            collected = collect(planned, run_command, replace=True)
        finally:
            request_file.unlink(missing_ok=True)
        verdict = _verdict(collected, candidate)
        return CounterFacts(
            folder=place.as_posix(),
            metric_set=self.metric_set,
            launches=collected.launches,
            passes=collected.passes,
            verdict=verdict.id if verdict is not None else "",
            summary=verdict.claim if verdict is not None else "",
            confidence=str(verdict.confidence) if verdict is not None else "",
        )


def _verdict(collected: Collected, candidate: Candidate) -> LaunchVerdict | None:
    """What bounds the kernel that took longest; None where no launch can be read."""
    files = collected.files
    table = read_counters(files.table if files.table.exists() else files.stem.parent)
    if not len(table):
        return None
    launch = max(table, key=lambda one: one.value(DURATION) or 0.0)
    # Of several kernels, such as a product and a reduction, none does all of the work.
    work = gemm_work(candidate.operation) if len(table) == 1 else None
    return diagnose(launch, work).verdict
