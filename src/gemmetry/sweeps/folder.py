"""Reads the folder of a sweep: its points, the traces of their ranks, and what is missing.

A *point* of a sweep is one training run under one configuration of the communication library. It
has a folder, ``<T>thread/nccl_<C>channels/[axis=value/][repeat_NN/]``, with ``torch_profiler/``
(one trace per rank, in any of the places in which sweeps have put it), ``run_output.log``,
``rocprof_traces/`` and, where ``gemmetry sweep run`` wrote it, ``point.json``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from gemmetry.domain.errors import RequestError
from gemmetry.domain.opening import read_json
from gemmetry.domain.tables import grouped
from gemmetry.formats.run_log import crash_in
from gemmetry.sweeps.rows import SweepConfiguration
from gemmetry.traces.jobs import rank_of_path
from gemmetry.traces.reading import find_traces

TRACES, ROCPROF, LOG = "torch_profiler", "rocprof_traces", "run_output.log"
POINT, MANIFEST = "point.json", "sweep.json"
ANALYSIS_FOLDERS = ("tracelens_analysis", "analysis")
"""Folders of an analysis: the first one if it exists, else the second."""

_THREADS = re.compile(r"(\d+)threads?")
_CHANNELS = re.compile(r"nccl_(\d+)channels?")
_REPEAT = re.compile(r"repeat_(\d+)")
_AXIS = re.compile(r"([^=]+)=(.*)")
_OF_POINTS = {TRACES, ROCPROF, LOG, POINT}

HINT = (
    "Give the folder of one sweep: <threads>thread/nccl_<channels>channels/torch_profiler/ below "
    "it hold the traces, as `gemmetry sweep run` writes them."
)


@dataclass(frozen=True, slots=True)
class RankFile:
    """The trace of one rank."""

    path: Path
    rank: int | None
    """Rank in the path; the trace itself has precedence (:attr:`RankFacts.rank`)."""
    more: tuple[Path, ...] = ()
    """Further recordings of the rank, which a profiler's schedule with ``repeat`` writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One training run of a sweep."""

    configuration: SweepConfiguration
    repeat: int = 1
    """Number of the repeat, from 1."""
    folder: Path
    traces: tuple[RankFile, ...] = ()
    outcome: str = "ok"
    """``ok``; ``failed``: the run ended with an error (it may have traces); ``no_traces``: it has
    none; ``not_run``: it belongs to the sweep's grid but has no folder."""
    reason: str = ""
    """Reason why the outcome is not ``ok``."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The content of ``point.json``, which ``gemmetry sweep run`` writes; {} for other sweeps."""
    rocprof: tuple[Path, ...] = ()
    """The folders of rocprofv3's files."""

    @property
    def label(self) -> str:
        """The configuration, and the repeat where it is not the first."""
        return self.configuration.label + (f", repeat {self.repeat}" if self.repeat > 1 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """All points of a sweep, including those that did not run."""

    folder: Path
    points: tuple[Point, ...]
    """Points by configuration and repeat."""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    """The content of ``sweep.json``, which ``gemmetry sweep run`` writes; {} for other sweeps."""
    problems: tuple[str, ...] = ()
    """The parts of the folder that could not be used, one sentence each."""

    @property
    def repeats(self) -> int:
        """The largest number of a repeat."""
        return max((point.repeat for point in self.points), default=1)


def read_sweep(folder: Path) -> Sweep:
    """The sweep in `folder`, or around it where it is the folder of its analysis.

    Raises:
        RequestError: the folder does not exist, or has no point of a sweep.
    """
    folder = sweep_of(folder)
    problems: list[str] = []
    manifest = json_object(folder / MANIFEST, problems)
    points = [_point(folder, place, problems) for place in _point_folders(folder)]
    if not points:
        inside = [one.name for one in _folders(folder) if next(_point_folders(one), None)]
        have = f"; these folders in it have: {', '.join(inside[:8])}" if inside else ""
        raise RequestError(f"{folder} has no point of a sweep{have}", hint=HINT)
    points += _not_run(folder, points, manifest)
    points.sort(key=lambda point: (point.configuration.order, point.repeat))
    return Sweep(folder=folder, points=tuple(points), manifest=manifest, problems=tuple(problems))


def sweep_of(folder: Path) -> Path:
    """The folder of a sweep: `folder`, or the one around it where it is that of its analysis.

    Raises:
        RequestError: the folder does not exist.
    """
    if not folder.is_dir():
        reason = "is not a folder" if folder.exists() else "does not exist"
        raise RequestError(f"{folder} {reason}", hint=HINT)
    around = folder.parent
    is_analysis = folder.name in ANALYSIS_FOLDERS and any(
        _THREADS.fullmatch(one.name) for one in _folders(around)
    )
    return around if is_analysis else folder


def has_traces(sweep: Path) -> bool:
    """Whether the folder of a sweep has any trace."""
    return any(_traces(place) for place in _point_folders(sweep))


def analysis_folder(sweep: Path, name: str | None = None) -> Path:
    """The folder of a sweep's analysis: `name` below it if given, else the one that exists
    (:data:`ANALYSIS_FOLDERS`)."""
    if name is not None:
        return sweep / name
    old, new = (sweep / one for one in ANALYSIS_FOLDERS)
    return old if old.is_dir() else new


def _folders(folder: Path) -> list[Path]:
    return sorted(one for one in folder.iterdir() if one.is_dir())


def _point_folders(sweep: Path) -> Iterator[Path]:
    """Folders of points, in order: those with the files of one, and innermost folders of a
    configuration that have none."""
    for place, folders, files in os.walk(sweep):
        path, content = Path(place), {*folders, *files}
        folders[:] = sorted(one for one in folders if is_of_configuration(one))
        is_leaf = not folders and bool(_CHANNELS.fullmatch(path.name))
        if path != sweep and (content & _OF_POINTS or is_leaf):
            yield path


def is_of_configuration(name: str) -> bool:
    """Whether the name of a folder is that of a configuration: ``256thread``, ``axis=value``."""
    return any(one.fullmatch(name) for one in (_THREADS, _CHANNELS, _REPEAT, _AXIS))


def _point(sweep: Path, folder: Path, problems: list[str]) -> Point:
    facts = json_object(folder / POINT, problems)
    configuration, repeat = _identity(sweep, folder, facts)
    traces, rocprof = _traces(folder), folder / ROCPROF
    outcome, reason = _outcome(facts, folder / LOG, has_traces=bool(traces))
    return Point(
        configuration=configuration,
        repeat=repeat,
        folder=folder,
        traces=traces,
        outcome=outcome,
        reason=reason,
        facts=facts,
        rocprof=(rocprof,) if rocprof.is_dir() else (),
    )


def _identity(
    sweep: Path, folder: Path, facts: Mapping[str, Any]
) -> tuple[SweepConfiguration, int]:
    """Configuration and repeat according to the path; ``point.json`` has precedence."""
    named, repeat = configuration_of(folder.relative_to(sweep).parts)
    axes, recorded = named.axes, facts.get("axes")
    if isinstance(recorded, dict):
        axes = tuple(sorted((str(name), str(value)) for name, value in recorded.items()))
    threads, channels, number = (
        value if isinstance(value := facts.get(name), int) and not isinstance(value, bool)
        else known
        for name, known in (("threads", named.threads), ("channels", named.channels),
                            ("repeat", repeat))
    )  # fmt: skip
    return SweepConfiguration(threads, channels, axes), number or repeat or 1


def configuration_of(parts: Iterable[str]) -> tuple[SweepConfiguration, int | None]:
    """The configuration and the number of the repeat that these folders of a sweep name."""
    axes: dict[str, str] = {}
    numbers: dict[re.Pattern[str], int] = {}
    for part in parts:
        if found := _AXIS.fullmatch(part):
            axes[found[1]] = found[2]
        for pattern in (_THREADS, _CHANNELS, _REPEAT):
            if found := pattern.fullmatch(part):
                numbers[pattern] = int(found[1])
    threads, channels, repeat = map(numbers.get, (_THREADS, _CHANNELS, _REPEAT))
    return SweepConfiguration(threads, channels, tuple(sorted(axes.items()))), repeat


def _traces(folder: Path) -> tuple[RankFile, ...]:
    """One trace for each rank, with its further recordings."""
    place = folder / TRACES
    if not place.is_dir():
        return ()
    try:
        files = find_traces([place])
    except RequestError:
        return ()
    by_rank = grouped(files, lambda file: rank_of_path(Path("/", file.relative_to(place)))[0])
    unnumbered = by_rank.pop(None, [])
    numbered = sorted((rank, of) for rank, of in by_rank.items() if rank is not None)
    return (*(RankFile(first, rank, tuple(more)) for rank, (first, *more) in numbered),
            *(RankFile(file, None) for file in unnumbered))  # fmt: skip


def _outcome(facts: Mapping[str, Any], log: Path, *, has_traces: bool) -> tuple[str, str]:
    recorded = facts.get("outcome", "ok")
    if recorded != "ok":
        return "failed", str(facts.get("reason") or recorded)
    crash = "" if facts else crash_in(log)
    if crash:
        return "failed", f"{log.name} shows a crash: {crash}"
    if not has_traces:
        what = "no trace" if not log.is_file() else "no trace, although it has a log"
        return "no_traces", f"{what} in {TRACES}/: was the profiler on, and did it write there?"
    return "ok", ""


def _not_run(sweep: Path, points: list[Point], manifest: Mapping[str, Any]) -> list[Point]:
    """The points of the grid without a folder: those that the manifest plans; without one, those
    that complete threads × channels for each combination of other axes and each repeat."""
    present = {(point.configuration, point.repeat) for point in points}
    planned = manifest.get("points")
    wanted = whole_grid(present)
    if isinstance(planned, list):
        wanted = {_identity(sweep, sweep, one) for one in planned if isinstance(one, dict)}
    reason = "the sweep has no folder for it"
    return [
        Point(configuration=one, repeat=repeat, folder=sweep, outcome="not_run", reason=reason)
        for one, repeat in wanted - present
        if one != SweepConfiguration()
    ]


_Repeat = TypeVar("_Repeat", int, int | None)


def whole_grid(
    points: Collection[tuple[SweepConfiguration, _Repeat]],
) -> set[tuple[SweepConfiguration, _Repeat]]:
    """The configurations and repeats that complete threads × channels for each combination of other
    axes and each repeat, including those of `points`."""
    threads = {one.threads for one, _ in points}
    channels = {one.channels for one, _ in points}
    others = {(one.axes, repeat) for one, repeat in points}
    return {
        (SweepConfiguration(thread, channel, axes), repeat)
        for thread, channel, (axes, repeat) in product(threads, channels, others)
    }


def json_object(path: Path, problems: list[str]) -> Mapping[str, Any]:
    """The JSON object in a file; {} if there is none. Others are added to `problems`."""
    found: Any = {}
    try:
        found = read_json(path) if path.exists() else {}
    except RequestError as error:
        problems.append(f"{error.message}; it is ignored")
    if isinstance(found, dict):
        return found
    problems.append(f"{path} is not a JSON object; it is ignored")
    return {}
