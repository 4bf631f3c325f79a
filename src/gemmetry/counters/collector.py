"""The input and the command line of rocprofv3.

Collects hardware counters of a command: plans, runs the profiler, exports and describes.

The order is: :func:`find_tool` finds the profiler, :func:`plan` makes its command line, and
:func:`collect` runs it with the application's output in a file of its own, and either returns what
was collected or raises an error that states why nothing was.

Divides what was collected of one process by the NVTX ranges around its launches.

Reads a report of hardware counters of any supported tool.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Collection as Names
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gemmetry.counters.catalogue import chip_of
from gemmetry.counters.tools import (
    CollectFiles,
    Collection,
    CollectRequest,
    ProfilerEnd,
    RocprofPlan,
    ToolName,
    amd_counters_of,
    export_arguments,
    failure_of,
    plan_ncu,
    sections_in,
)
from gemmetry.domain.errors import (
    EnvironmentFailure,
    GemmetryError,
    RequestError,
    StorageError,
    UnknownNameError,
)
from gemmetry.domain.files import remove
from gemmetry.domain.opening import open_decompressed
from gemmetry.domain.rows import SCHEMA_VERSION
from gemmetry.domain.units import plural
from gemmetry.formats.counters.amd import (
    read_rocprof_compute,
    read_rocprofv3_file,
    read_rocprofv3_folder,
)
from gemmetry.formats.counters.launches import LaunchTable
from gemmetry.formats.counters.ncu_pages import read_ncu_csv
from gemmetry.formats.counters.ncu_report import MAGIC, read_by_export, read_ncu_rep, report_library
from gemmetry.formats.readers import TraceFormat, format_of
from gemmetry.hardware.amd_counters import GUI_ACTIVE, passes_of
from gemmetry.hardware.detect import GpuFacts, amd_gpus, nvidia_gpus
from gemmetry.hardware.doctor import Profiler, find_profiler, too_old, tool_path

_COLLECTIVES = "nccl"
"""RCCL's kernels have NCCL's names."""


def plan_rocprof(request: CollectRequest, *, chip: str | None = None) -> RocprofPlan:
    """The passes that collect `request`.

    Raises:
        UnknownNameError: a set, or a counter of the chip, does not exist.
        RequestError: the set has no counters on AMD.
    """
    counters = dict.fromkeys((*amd_counters_of(request.metric_set, chip), *request.metrics))
    # Every pass has the time, as a launch takes another one in each.
    timed = counters.keys() - {GUI_ACTIVE}
    filters: dict[str, Any] = {"kernel_trace": True}
    if request.kernel is not None:
        filters["kernel_include_regex"] = request.kernel
    elif not request.collectives:
        filters["kernel_exclude_regex"] = _COLLECTIVES
    if request.launch_skip or request.launch_count is not None:
        first = request.launch_skip + 1
        # Launches of each kernel count from 1; the schema has no range without an end.
        last = request.launch_skip + (request.launch_count or 1_000_000)
        filters["kernel_iteration_range"] = f"[{first}-{last}]"
    return RocprofPlan(
        tuple({**filters, "pmc": one} for one in passes_of(counters, chip, companions=timed))
    )


Runner = Callable[[tuple[str, ...], Mapping[str, str], Path], int]
"""Runs a command with additional variables and its output in a file; returns the exit status."""

_INSTALL: Mapping[ToolName, str] = {
    "ncu": "Install NVIDIA Nsight Compute.", "rocprofv3": "Install ROCm's rocprofiler-sdk.",
}  # fmt: skip

_ENVIRONMENT = {"PYTHONUNBUFFERED": "1"}
"""So that the application's log is complete where it is ended."""

_PASSES = "profiler__replayer_passes"
_LISTING_SECONDS = 60
_EXPORT_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Tool:
    """A profiler of this machine, and the GPU to profile."""

    profiler: Profiler
    gpu: GpuFacts | None
    sections: frozenset[str] | None
    """Sections of Nsight Compute; None where they are not known."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """Result of a collection."""

    files: CollectFiles
    launches: int | None
    """Number of profiled launches; None where that is not known."""
    passes: int | None
    """Number of passes of each kernel."""
    notes: tuple[str, ...] = ()


def find_tool(name: ToolName | None, *, is_shown_only: bool = False) -> Tool:
    """The profiler `name`; None: the one for this machine's GPU. It is started to find out its
    version and its sections.

    Args:
        is_shown_only: only the command line is needed: of a missing profiler, the name and a note.

    Raises:
        EnvironmentFailure: there is none.
    """
    chosen, gpu = _tool(name)
    profiler = find_profiler(chosen)
    if profiler is not None:
        return Tool(profiler, gpu, _sections(profiler.path) if chosen == "ncu" else None)
    missing = f"{chosen} is not installed, or not on PATH"
    if not is_shown_only:
        raise EnvironmentFailure(missing, hint=_INSTALL[chosen])
    note = f"{missing}: the command line is the one that would run. {_INSTALL[chosen]}"
    return Tool(Profiler(chosen, chosen, ""), gpu, None, (note,))


def plan(
    request: CollectRequest, output: Path | None = None, *, tool: Tool | ToolName | None = None,
    is_shown_only: bool = False,
) -> Collection:  # fmt: skip
    """Make the profiler's command line.

    Args:
        output: a folder, or with Nsight Compute a file ``.ncu-rep``; None: a folder with the time
            in its name.
        tool: the profiler; by its name, or None, :func:`find_tool` finds it.
        is_shown_only: the plan is not carried out: the profiler may be missing, which a note says.

    Raises:
        RequestError: an option or a name is wrong. EnvironmentFailure: there is no profiler.
    """
    if not request.command:
        raise RequestError(
            "no command was given", hint="gemmetry counters collect -- python train.py"
        )
    if shutil.which(request.command[0]) is None:
        raise RequestError(
            f"there is no program {request.command[0]!r}",
            hint="Give its path, or add its folder to PATH.",
        )
    if not isinstance(tool, Tool):
        tool = find_tool(tool, is_shown_only=is_shown_only)
    profiler, gpu = tool.profiler, tool.gpu
    files = CollectFiles.at(output or Path(f"counters_{datetime.now():%Y%m%d_%H%M%S}"))
    chip, unchecked = _chip(gpu)
    notes = (*tool.notes, *unchecked)
    if profiler.name == "rocprofv3":
        return _plan_rocprof(request, files, profiler, chip, notes)
    architecture = gpu.architecture if gpu is not None else ""
    arguments, missing = plan_ncu(request, files, chip=chip, sections=tool.sections)
    if missing:
        notes += (f"Nsight Compute {profiler.version} has no section {', '.join(missing)}.",)
    if needed := too_old(profiler.version, architecture):
        notes += (f"Nsight Compute {profiler.version} is older than {needed}, the first for "
                  f"{architecture}.",)  # fmt: skip
    return Collection(
        request=request, files=files, profiler=profiler, chip=chip, architecture=architecture,
        notes=notes, argv=(profiler.path, *arguments, *request.command),
    )  # fmt: skip


def collect(collection: Collection, run: Runner, *, replace: bool = False) -> Collected:
    """Run the profiler, and check that it collected something.

    Args:
        replace: replace the files of an earlier collection.

    Raises:
        RequestError: there are such files; no kernel matched.
        EnvironmentFailure: the profiler or the application failed; their output is kept.
        StorageError: a file cannot be written.
    """
    files = collection.files
    _make_room(files, replace=replace)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    if collection.input is not None:
        files.passes.write_text(collection.input.text)
    status = run(collection.argv, _ENVIRONMENT, files.application_log)
    notes = collection.notes
    table: LaunchTable | None = None
    passes = len(collection.input.jobs) if collection.input is not None else None
    if collection.profiler.name == "ncu":
        if has_result := files.report.exists():
            table = _exported(collection)
        if table is None and has_result:
            remove(files.table, inside=files.table.parent)
            notes += (f"ncu could not print {files.report} as a table; the report is whole.",)
        counts = [one.value(_PASSES) or 0 for one in table or ()]
        passes = int(max(counts, default=0)) or None
    else:
        with suppress(RequestError):  # It may have written nothing that can be read.
            table = read_counters(files.folder, ())
        has_result = table is not None
    launches = len(table) if table is not None else None
    problem = failure_of(ProfilerEnd(collection, status, has_result and launches != 0))
    description = {
        "schema_version": SCHEMA_VERSION,
        "tool": collection.profiler.name,
        "tool_version": collection.profiler.version,
        "chip": collection.chip,
        "argv": collection.argv,
        **asdict(collection.request),
        "started": started,
        "exit_status": status,
        "launches": launches,
        "passes": passes,
        "notes": notes,
        "problem": None if problem is None else str(problem),
    }
    with _written(files.description):
        files.description.write_text(json.dumps(description, indent=1) + "\n")
    if problem is not None and not launches:
        raise problem
    if problem is not None:
        notes += (f"{problem.message}. What was collected before is kept.",)
    return Collected(files=files, launches=launches, passes=passes, notes=notes)


def _plan_rocprof(
    request: CollectRequest,
    files: CollectFiles,
    profiler: Profiler,
    chip: str | None,
    notes: tuple[str, ...],
) -> Collection:
    default = CollectRequest(command=request.command)
    given = [option for option, name in
             (("--nvtx", "nvtx"), ("--section", "sections"), ("--clock-control", "clock_control"),
              ("--cache-control", "cache_control"), ("--replay-mode", "replay_mode"))
             if getattr(request, name) != getattr(default, name)]  # fmt: skip
    if given or files.report.name != "counters.ncu-rep":
        what = f"no option {given[0]}" if given else "no report .ncu-rep"
        raise RequestError(f"rocprofv3 has {what}", hint="Leave it out, and give -o a folder.")
    planned = plan_rocprof(request, chip=chip)
    runs = plural(len(planned.jobs), "time")
    notes += (f"rocprofv3 runs the command {runs}, once per pass of counters.",)
    return Collection(
        request=request, files=files, profiler=profiler, chip=chip, notes=notes, input=planned,
        # The default of its formats is a database since version 1.
        argv=(profiler.path, "-i", str(files.passes), "-d", str(files.folder),
              "--output-format", "csv", "json", "--", *request.command),
    )  # fmt: skip


def _tool(tool: ToolName | None) -> tuple[ToolName, GpuFacts | None]:
    """The profiler, and the GPU to profile."""
    found: dict[ToolName, Sequence[GpuFacts]]
    found = {"ncu": nvidia_gpus().gpus, "rocprofv3": amd_gpus().gpus}
    for name, gpus in found.items():
        if tool == name or (tool is None and gpus):
            return name, gpus[0] if gpus else None
    return next((name for name in found if tool_path(name) is not None), "ncu"), None


def _chip(gpu: GpuFacts | None) -> tuple[str | None, tuple[str, ...]]:
    if gpu is None or not gpu.architecture:
        return None, ("No GPU was found: names of counters are not checked.",)
    try:
        return chip_of(gpu.architecture), ()
    except UnknownNameError:
        return None, (f"The counters of {gpu.architecture} are not listed, and not checked.",)


def _sections(ncu: str) -> frozenset[str] | None:
    """The sections that this ncu has; None if it does not list any."""
    try:
        done = subprocess.run(
            [ncu, "--list-sections"], capture_output=True, text=True, errors="replace",
            timeout=_LISTING_SECONDS, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = sections_in(done.stdout)
    return found if done.returncode == 0 and "SpeedOfLight" in found else None


def _make_room(files: CollectFiles, *, replace: bool) -> None:
    present = [path for path in files if path.exists()]
    if present and not replace:
        raise RequestError(
            f"{present[0]} exists", hint="Give another place with --output, or --force."
        )
    with _written(files.folder, "Give another place with --output."):
        files.folder.mkdir(parents=True, exist_ok=True)
        for path in present:
            remove(path, inside=path.parent)
        for folder in files.folder.glob("pass_*") if present else ():
            # Counters of rocprofv3 would mix with the new ones.
            if any(folder.rglob("*counter_collection.csv")):
                remove(folder, inside=files.folder)


def _exported(collection: Collection) -> LaunchTable | None:
    """The raw page of the report, also written next to it; None if ncu cannot print it."""
    command = [collection.profiler.path, *export_arguments(collection.files)]
    try:
        with collection.files.table.open("wb") as file:
            done = subprocess.run(
                command, stdout=file, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                timeout=_EXPORT_SECONDS, check=False,
            )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    return read_ncu_csv(collection.files.table, [_PASSES])


@contextmanager
def _written(path: Path, hint: str = "Free some disk space.") -> Iterator[None]:
    """Turn what the system reports about writing into an error about `path`."""
    try:
        yield
    except OSError as error:
        text = f"{path} cannot be written: {error.strerror or error}"
        raise StorageError(text, hint=hint) from error


_RANGE_COLUMNS = ("Push/Pop_Range", "Start/Stop_Range")
"""Columns of the raw page that list the ranges of a launch."""


def divide(collected: Collected, ranges: Mapping[str, Path]) -> dict[str, Collected]:
    """Give each range a folder with its launches: the raw page and the description of its own, and
    the report and the logs that all have in common.

    Args:
        ranges: names of NVTX ranges, and their folders, which are created and replaced.

    Returns:
        The ranges that have launches, and what their folders have.

    Raises:
        StorageError: a folder cannot be written.
    """
    found = {}
    for name, (page, launches) in _pages(collected.files.table, ranges).items():
        with _written(ranges[name]):
            found[name] = _part(collected, name, ranges[name], page, launches)
    return found


def _pages(table: Path, names: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Range -> the raw page of its launches, and their number; only ranges that have some."""
    if not table.is_file():
        return {}
    with table.open(encoding="utf-8", errors="replace", newline="") as file:
        rows = [row for row in csv.reader(file) if row and not row[0].startswith("==")]
    start = next((place for place, row in enumerate(rows) if "Kernel Name" in row), len(rows))
    if start == len(rows):
        return {}
    header, body = rows[start], rows[start + 1 :]
    columns = [n for n, name in enumerate(header) if any(one in name for one in _RANGE_COLUMNS)]
    units = [row for row in body[:1] if not row[0]]
    found = {}
    for name in names:
        own = [row for row in body[len(units) :] if len(row) == len(header)
               and any(f":{name}:" in row[column] for column in columns)]  # fmt: skip
        if own:
            text = io.StringIO()
            csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(
                [header, *units, *own]
            )
            found[name] = text.getvalue(), len(own)
    return found


def _part(collected: Collected, name: str, folder: Path, page: str, launches: int) -> Collected:
    whole, files = collected.files, CollectFiles.at(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for source, target in zip(whole, files, strict=True):
        remove(target, inside=folder)
        if source.exists() and source not in (whole.table, whole.description):
            try:
                os.link(source, target)
            except OSError:  # The file system has no links.
                shutil.copyfile(source, target)
    files.table.write_text(page, encoding="utf-8")
    note = f"The report has the launches of other dispatches, too; these are in the range {name}."
    description = json.loads(whole.description.read_text(encoding="utf-8"))
    description |= {"launches": launches, "notes": [*description["notes"], note]}
    files.description.write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    return replace(collected, files=files, launches=launches, notes=(*collected.notes, note))


_PRINTED = re.compile(rb"^ +Section: .+\r?\n(?:.+\n)? +Metric Name +Metric Unit", re.MULTILINE)
_PRINTED_HINT = (
    "It is what ncu prints for people: run ncu with --csv, or with -o FILE and give FILE.ncu-rep."
)
_SEARCHED_BYTES = 1 << 20
_REPORTS_HINT = (
    "Give a report of Nsight Compute (.ncu-rep), or what it writes with --csv; or rocprofv3's "
    "counter_collection.csv, results.json or .db, its folder, or rocprof-compute's pmc_perf.csv."
)


def read_counters(path: Path, metrics: Names[str] | None = None) -> LaunchTable:
    """The launches of a report, with their metrics in base units.

    Args:
        path: a report of Nsight Compute, or a CSV file that it wrote; counters of rocprofv3 as CSV,
            JSON or rocpd; a table of rocprof-compute; or the folder of one of them.
        metrics: ids of the metrics to read, which takes less time and memory; None for all.

    Raises:
        RequestError: the file cannot be opened, or is no report of hardware counters.
        EnvironmentFailure: ``ncu`` cannot export it, where its library is missing.
    """
    table = _read_folder(path, metrics) if path.is_dir() else _read_file(path, metrics)
    if table is None:
        hint = _REPORTS_HINT
        if not path.is_dir() and _is_printed(path):
            hint = _PRINTED_HINT
        elif path.suffix == ".ncu-rep":
            hint = (
                "It is no report of Nsight Compute, although it is named like one: copy it again."
            )
        raise RequestError(f"{path} has no hardware counters of kernels", hint=hint)
    return table


def _is_printed(path: Path) -> bool:
    """Whether a file contains what Nsight Compute prints on a terminal."""
    with open_decompressed(path) as file, suppress(OSError):
        return _PRINTED.search(file.read(_SEARCHED_BYTES)) is not None
    return False


def _read_file(path: Path, metrics: Names[str] | None) -> LaunchTable | None:
    with open_decompressed(path) as file:
        start = file.read(len(MAGIC))
    if start == MAGIC:
        return _read_report(path, metrics)
    form = format_of(path)
    if isinstance(form, TraceFormat) and form.suffix != ".csv":
        return read_rocprofv3_file(path, form, metrics)
    # A table of rocprof-compute begins like those of rocprofv3.
    table = read_rocprof_compute(path, metrics)
    if table is None and isinstance(form, TraceFormat):
        table = read_rocprofv3_file(path, form, metrics)
    return table if table is not None else read_ncu_csv(path, metrics)


def _read_folder(folder: Path, metrics: Names[str] | None) -> LaunchTable | None:
    """Read a collection, rocprofv3's files, or a workload of rocprof-compute."""
    reports = sorted(folder.glob("*.ncu-rep"))
    if len(reports) > 1:
        names = ", ".join(report.name for report in reports)
        raise RequestError(
            f"{folder} has {len(reports)} reports of Nsight Compute", hint=f"Give one: {names}"
        )
    if reports:
        return _read_report(reports[0], metrics)
    wide = folder / "pmc_perf.csv"
    if wide.is_file():
        return read_rocprof_compute(wide, metrics)
    return read_rocprofv3_folder(folder, metrics)


def _read_report(path: Path, metrics: Names[str] | None) -> LaunchTable:
    exported = path.with_suffix(".csv")
    try:
        return _read_by_tool(path, metrics)
    except GemmetryError as error:
        table = read_ncu_csv(exported, metrics) if exported.is_file() else None
        if table is None:
            raise
        table.problems.append(
            f"{error.message}: {exported.name} next to it is read, which lacks the conclusions of "
            "rules and the samples of instructions"
        )
        return table


def _read_by_tool(path: Path, metrics: Names[str] | None) -> LaunchTable:
    found = tool_path("ncu")
    executable = Path(found) if found is not None else None
    library = report_library(executable)
    if library is not None:
        return read_ncu_rep(path, library, metrics)
    if executable is not None:
        return read_by_export(path, executable, metrics)
    raise RequestError(
        f"{path} is a report of Nsight Compute, and nothing here reads it",
        hint="pip install 'gemmetry[counters]', or export it where Nsight Compute is installed: "
        "ncu --import FILE --page raw --csv > FILE.csv",
    )
