"""Sets of counters that are collected together.

Requests: counters, kernels and the command to profile.

The command lines of Nsight Compute.

Reasons why a profiler collected nothing.

The exit status, existing files and this machine's permissions decide. The profiler's wording
changes between versions and only makes the message more specific; any message names the log.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from gemmetry.counters.catalogue import (
    AMD_FACTS,
    CAPABILITIES,
    check_metric,
    concepts,
    expression_on,
    has_metric,
    metrics_in,
)
from gemmetry.domain.errors import (
    EnvironmentFailure,
    GemmetryError,
    ProfiledCommandError,
    RequestError,
    StorageError,
    UnknownNameError,
)
from gemmetry.formats.run_log import crash_in, last_line, log_tail
from gemmetry.hardware.amd_counters import CHIPS as AMD_CHIPS
from gemmetry.hardware.amd_counters import GUI_ACTIVE, METRICS
from gemmetry.hardware.doctor import (
    PERMISSION_HINT,
    Profiler,
    can_use_kfd,
    is_restricted,
    running_profilers,
    too_old,
)


@dataclass(frozen=True, slots=True)
class MetricSet:
    """A set of counters of Nsight Compute."""

    meaning: str
    sections: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    all_concepts: bool = False
    """Whether to add the metrics of the catalogue that no section collects."""
    ncu_set: str = ""
    """A set of its own that it names; then nothing else is listed."""


_QUICK = ("SpeedOfLight", "MemoryWorkloadAnalysis", "WarpStateStats", "Occupancy")
_GEMM = (
    "SpeedOfLight", "SpeedOfLight_HierarchicalTensorRooflineChart", "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Tables", "SchedulerStats", "WarpStateStats",
    "InstructionStats", "SourceCounters", "Occupancy", "LaunchStats", "WorkloadDistribution",
)  # fmt: skip
_STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.pct"

SETS: Mapping[str, MetricSet] = {
    "quick": MetricSet("the four sections of the Nsight Compute document", _QUICK),
    "gemm": MetricSet("what a diagnosis of a GEMM uses", _GEMM, all_concepts=True),
    "full": MetricSet("everything that Nsight Compute has a section for", ncu_set="full"),
    "document": MetricSet(
        "the eight metrics that the Nsight Compute document lists",
        metrics=(
            "sm__throughput.avg.pct_of_peak_sustained_elapsed",
            "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
            *(_STALLED.format(one) for one in
              ("barrier", "membar", "mio_throttle", "short_scoreboard")),
            "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
            "lts__t_sectors_srcunit_tex_op_read.sum",
        ),
    ),
}  # fmt: skip
"""Name -> set of counters. Sources: ``--section`` and ``--metrics`` of the document's commands;
``gemm`` has every section that a concept of the catalogue names."""


def set_of(name: str) -> MetricSet:
    """The set of this name.

    Raises:
        UnknownNameError: no set has this name.
    """
    if name not in SETS:
        raise UnknownNameError("set of counters", name, SETS)
    return SETS[name]


def metrics_of(chosen: MetricSet, chip: str | None) -> tuple[str, ...]:
    """The metrics that `chosen` lists for a chip of NVIDIA; on None, those that all chips have."""
    chips = [chip] if chip is not None else list(dict.fromkeys(CAPABILITIES.values()))
    found = dict.fromkeys(chosen.metrics)
    if chosen.all_concepts:
        for one in concepts():
            expression = None if one.section else expression_on(chips[0], one)
            found.update(dict.fromkeys(metrics_in(expression) if expression else ()))
    return tuple(one for one in found if all(has_metric(each, one) for each in chips))


def amd_counters_of(name: str, chip: str | None) -> tuple[str, ...]:
    """The counters of a set on AMD.

    Raises:
        UnknownNameError: there is no such set. RequestError: it has no counters on AMD.
    """
    set_of(name)
    if name == "document":
        raise RequestError(
            "the set 'document' has metrics of NVIDIA's GPUs only", hint="Use --set gemm."
        )
    found = dict.fromkeys(counter for one in METRICS for counter in one.counters)
    if name != "quick":
        for concept in concepts():
            expression = expression_on(chip or AMD_CHIPS[-1], concept)
            found.update(dict.fromkeys(metrics_in(expression) if expression else ()))
    found.pop(GUI_ACTIVE, None)
    return (GUI_ACTIVE, *(one for one in found if one not in AMD_FACTS))


ToolName = Literal["ncu", "rocprofv3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectRequest:
    """Counters to collect, and how.

    Attributes:
        command: the application and its arguments.
        metric_set: a name of :data:`~gemmetry.counters.tools.SETS`.
        sections: of Nsight Compute, in addition.
        metrics: ids of metrics or counters, in addition.
        kernel: a regular expression that is searched for in the demangled names of kernels; None:
            all but those of collectives.
        collectives: profile the kernels of collectives, too. Replayed alone, they wait for ranks
            that wait for them, and may hang.
        launch_skip: matching launches to leave out at the beginning.
        launch_count: matching launches to profile; None: all that follow.
        nvtx: names or expressions of NVTX ranges; launches in one of them are profiled.
        clock_control: ``none`` leaves the clocks alone, ``base`` fixes them while counting.
        cache_control: ``all`` empties caches before each pass, ``none`` does not.
        replay_mode: scope of the replay for each pass.
        target_processes: ``all``: also those that the application starts; ``application-only``.
        records_ranges: record the NVTX ranges of each launch, also where none is chosen by them.
        from_start: profile from the beginning; otherwise the application starts and stops the
            profiler (``cuProfilerStart``).
    """

    command: tuple[str, ...]
    metric_set: str = "gemm"
    sections: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    kernel: str | None = None
    collectives: bool = False
    launch_skip: int = 0
    launch_count: int | None = None
    nvtx: tuple[str, ...] = ()
    clock_control: str = "none"
    cache_control: str = "all"
    replay_mode: str = "kernel"
    target_processes: str = "all"
    records_ranges: bool = False
    from_start: bool = True


class CollectFiles(NamedTuple):
    """The files of one collection, which share a stem."""

    report: Path
    """Report of ncu."""
    table: Path
    """The report's raw page, which can be read without NVIDIA's software."""
    description: Path
    """Description of the collection, as JSON."""
    application_log: Path
    """Output of the application."""
    profiler_log: Path
    """Output of the profiler."""
    passes: Path
    """Input of rocprofv3: the counters of each pass."""

    @classmethod
    def at(cls, output: Path) -> CollectFiles:
        """Files of ``x.ncu-rep``, or those in a folder."""
        is_report = output.suffix == ".ncu-rep"
        stem = output.with_suffix("") if is_report else output / "counters"
        ends = (".ncu-rep", ".csv", ".json", ".application.log", ".profiler.log", ".rocprofv3.yaml")
        return cls(*(stem.with_name(f"{stem.name}{end}") for end in ends))

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        return self.report.parent


@dataclass(frozen=True, slots=True)
class RocprofPlan:
    """Command line of rocprofv3, which runs the application once per pass."""

    jobs: tuple[dict[str, Any], ...]

    @property
    def text(self) -> str:
        """The input file."""
        return yaml.safe_dump({"jobs": list(self.jobs)}, sort_keys=False, width=1 << 30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """A planned collection."""

    request: CollectRequest
    files: CollectFiles
    profiler: Profiler
    argv: tuple[str, ...]
    """The whole command line."""
    chip: str | None
    architecture: str = ""
    """Architecture of the GPU; "" if unknown."""
    notes: tuple[str, ...] = ()
    """Notes for the user, one sentence each."""
    input: RocprofPlan | None = None
    """Input of rocprofv3."""


NOT_NCCL = (
    "^([^n]|n(n|cn|ccn)*(cc[^nl]|c[^nc]|[^nc]))*(n(n|cn|ccn)*(c|cc)?)?$"
)  # fmt: skip
"""Matches names without ``nccl``, in which those of RCCL are included. Spelt out, as a regular
expression of ncu's may have no negative lookahead: a name is read letter by letter, and what has
been read of ``nccl`` is the state."""


def plan_ncu(
    request: CollectRequest,
    files: CollectFiles,
    *,
    chip: str | None = None,
    sections: AbstractSet[str] | None = None,
) -> tuple[list[str], list[str]]:
    """The arguments between ``ncu`` and the application that collect `request` into `files`, and
    the sections that are left out, as this version of ncu does not have them.

    Args:
        chip: of the GPU, whose metrics are checked by name; None where it is not known.
        sections: those that this version of ncu has; None where that is not known.

    Raises:
        UnknownNameError: a set, or a metric of the chip, does not exist.
    """
    chosen = set_of(request.metric_set)
    for metric in request.metrics:
        if chip is not None:
            check_metric(chip, metric)
    wanted = dict.fromkeys((*chosen.sections, *request.sections))
    missing = [one for one in wanted if sections is not None and one not in sections]
    metrics = dict.fromkeys((*metrics_of(chosen, chip), *request.metrics))
    arguments = ["--target-processes", request.target_processes]
    arguments += [*_kernels(request), *_ranges(request)]
    if chosen.ncu_set:
        arguments += ["--set", chosen.ncu_set]
    for one in wanted:
        arguments += ["--section", one] if one not in missing else []
    if metrics:
        arguments += ["--metrics", ",".join(metrics)]
    arguments += [
        "--clock-control", request.clock_control,
        "--cache-control", request.cache_control,
        "--replay-mode", request.replay_mode,
        "--log-file", str(files.profiler_log),
        "-f", "-o", str(files.report.with_suffix("")),
    ]  # fmt: skip
    return arguments, missing


def export_arguments(files: CollectFiles) -> tuple[str, ...]:
    """The arguments that print the raw page of a report."""
    return ("--import", str(files.report), "--page", "raw", "--csv", "--print-units", "base")


def sections_in(listing: str) -> frozenset[str]:
    """The sections that ``ncu --list-sections`` prints: a word at the beginning of a line."""
    return frozenset(line.split()[0] for line in listing.splitlines() if line.strip())


def _kernels(request: CollectRequest) -> list[str]:
    found: list[str] = []
    if request.kernel is not None:
        # Users see demangled names; ncu compares function names, without templates, by default.
        found += ["--kernel-name-base", "demangled", "--kernel-name", f"regex:{request.kernel}"]
    elif not request.collectives:
        found += ["--kernel-name-base", "function", "--kernel-name", f"regex:{NOT_NCCL}"]
    if request.launch_skip:
        found += ["--launch-skip", str(request.launch_skip)]
    if request.launch_count is not None:
        found += ["--launch-count", str(request.launch_count)]
    if not request.from_start:
        found += ["--profile-from-start", "off"]
    return found


def _ranges(request: CollectRequest) -> list[str]:
    """A bare name matches ranges with a start and an end; those that are pushed and popped, as
    torch's are, need a slash."""
    if not request.nvtx and not request.records_ranges:
        return []
    found = ["--nvtx"]
    for one in request.nvtx:
        found += ["--nvtx-include", one]
        if not one.endswith(("/", "]")):
            found += ["--nvtx-include", f"{one}/"]
    return found


_LEAST_FREE_BYTES = 2**20
_MOST_NAMES = 5

_NO_PERMISSION = re.compile(r"ERR_NVGPUCTRPERM|permission to access .*counters", re.IGNORECASE)
_IS_BUSY = re.compile(r"resource (?:was|is) unavailable|\bDCGM\b", re.IGNORECASE)
_NO_KERNEL = re.compile(r"no (?:kernels|ranges|graphs) were profiled", re.IGNORECASE)
_BAD_REGEX = re.compile(r"invalid (?:regex|regular expression)|regex_error", re.IGNORECASE)
_UNSUPPORTED = re.compile(r"not supported|unsupported (?:device|gpu|driver)", re.IGNORECASE)
_NO_SPACE = re.compile(r"no space left|disk (?:is )?full", re.IGNORECASE)
_APPLICATION = re.compile(r"application returned an error code|terminated with", re.IGNORECASE)
_MARKED = re.compile(r"^==\w+==.*", re.MULTILINE)
_ERROR_LINE = re.compile(r"^==ERROR==\s*(.+)", re.MULTILINE)
_LISTED = re.compile(r"^\s*(?:==\w+==)?\s*\d+[.)]\s+(\S.*?)\s*$", re.MULTILINE)
"""A kernel of the list that newer versions print when none matched."""


@dataclass(frozen=True, slots=True)
class ProfilerEnd:
    """A profiler that has ended."""

    collection: Collection
    status: int
    has_result: bool
    """There is a report, with at least one launch where that is known."""
    root: Path = Path("/")

    @property
    def log(self) -> str:
        """Output of the profiler: its own file, or marked lines of the application's output."""
        files = self.collection.files
        marked = _MARKED.findall(log_tail(files.application_log))
        return "\n".join((log_tail(files.profiler_log), *marked))


def failure_of(attempt: ProfilerEnd) -> GemmetryError | None:
    """Reason why the attempt failed; None if it did not."""
    if attempt.has_result and attempt.status == 0:
        return None
    return next(_causes(attempt))


def _causes(attempt: ProfilerEnd) -> Iterator[GemmetryError]:
    """Possible causes, from the certain to the general; the first is the answer."""
    log, files, folder = attempt.log, attempt.collection.files, attempt.collection.files.folder
    free = shutil.disk_usage(folder).free
    if free < _LEAST_FREE_BYTES or (not attempt.has_result and _NO_SPACE.search(log)):
        yield StorageError(
            f"the disk of {folder} is full: {free / 2**20:.0f} MiB are free",
            hint="Free some disk space, or give another place with --output.",
        )
    if not attempt.has_result:
        yield from _refusals(attempt, log)
        # Where the application failed, that is why no kernel was profiled.
        crashed = _APPLICATION.search(log) or crash_in(files.application_log)
        if attempt.status == 0 or (_NO_KERNEL.search(log) and not crashed):
            yield _nothing_matched(attempt.collection)
    yield _failed(attempt, log)


def _refusals(attempt: ProfilerEnd, log: str) -> Iterator[GemmetryError]:
    """Reasons why the machine or the profiler refuses to collect."""
    profiler, root = attempt.collection.profiler, attempt.root
    architecture, is_ncu = attempt.collection.architecture, profiler.name == "ncu"
    if not is_ncu and can_use_kfd(root) is False:
        yield EnvironmentFailure(
            "this user may not open /dev/kfd, AMD's device",
            hint="Add the user to the groups render and video.",
        )
    is_restricted_here = attempt.status != 0 and is_ncu and is_restricted(root) is True
    if is_restricted_here or (is_ncu and _NO_PERMISSION.search(log)):
        yield EnvironmentFailure(
            "this user may not read the hardware counters of the GPU (ERR_NVGPUCTRPERM)",
            hint=PERMISSION_HINT,
        )
    if _IS_BUSY.search(log):
        running = running_profilers(root)
        who = f" by {', '.join(running)}" if running else ""
        yield EnvironmentFailure(
            f"the hardware counters of the GPU are in use{who}",
            hint="Pause DCGM's profiling (dcgmi profiling --pause), or stop the other profiler. On "
            "the host of a container it may run unseen.",
        )
    needed = too_old(profiler.version, architecture)
    if needed or (architecture and _UNSUPPORTED.search(log)):
        yield EnvironmentFailure(
            f"Nsight Compute {profiler.version} cannot profile {architecture}",
            hint=f"Install Nsight Compute {needed or 'of a newer version'}"
            f"{' or newer' if needed else ''}, and a driver that supports it.",
        )
    if _BAD_REGEX.search(log):
        yield RequestError(
            f"{profiler.name} does not accept the regular expression "
            f"{attempt.collection.request.kernel!r}", hint="Give a simpler one with --kernel.",
        )  # fmt: skip


def _nothing_matched(collection: Collection) -> GemmetryError:
    request, filters = collection.request, []
    if request.kernel is not None:
        filters.append(f"a name that matches {request.kernel!r}")
    if request.nvtx:
        filters.append(f"the NVTX range {', '.join(map(repr, request.nvtx))}")
    if request.launch_skip:
        filters.append(f"{request.launch_skip} launches of that kind before it")
    seen = list(dict.fromkeys(_LISTED.findall(log_tail(collection.files.profiler_log))))
    hints = [f"Kernels that were launched: {', '.join(seen[:_MOST_NAMES])}."] if seen else []
    if request.nvtx:
        hints.append("A range that is pushed is written 'name/', one that is started 'name'.")
    if not filters:
        hints.append("Does the command run anything on the GPU? Kernels of collectives are left "
                     "out unless --collectives is given.")  # fmt: skip
    if not seen and filters:
        hints.append("Leave out the filter, with --launch-count 20, to see the names.")
    return RequestError(
        f"no kernel was profiled: no launch had {' and '.join(filters)}" if filters
        else "no kernel was profiled",
        hint=" ".join(hints),
    )  # fmt: skip


def _failed(attempt: ProfilerEnd, log: str) -> GemmetryError:
    """The command or the profiler ended without success, for a reason that only the logs have."""
    errors = [one for one in _ERROR_LINE.findall(log) if not _APPLICATION.search(one)]
    files = attempt.collection.files
    own = errors[-1].strip() if errors and not attempt.has_result else ""
    what = attempt.collection.profiler.name if own else "the command"
    why = own or crash_in(files.application_log) or last_line(files.application_log)
    text = f"{what} ended with status {attempt.status}{f': {why}' if why else ''}"
    logs = [str(path) for path in (files.application_log, files.profiler_log) if path.exists()]
    hint = f"See {' and '.join(logs)}." if logs else ""
    return EnvironmentFailure(text, hint=hint) if own else ProfiledCommandError(text, hint=hint)
