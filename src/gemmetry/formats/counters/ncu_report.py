"""Nsight Compute's own reports (``.ncu-rep``), through its library ``ncu_report``.

The library is NVIDIA's, and no part of gemmetry. It returns base units. What it cannot read it
leaves out without an error: a report of a later version, or one that is cut, has no launches or
launches without metrics.

Nsight Compute's own reports, where its library is missing: ``ncu`` exports their raw page.

Finds NVIDIA's library that opens reports of Nsight Compute: a package of PyPI, and a part of
Nsight Compute.
"""

from __future__ import annotations

import importlib
import mmap
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, Final, overload

from gemmetry.domain.errors import EnvironmentFailure, RequestError
from gemmetry.formats.counters.launches import (
    Columns,
    LaunchInfo,
    LaunchTable,
    RuleKind,
    RuleResult,
    SpeedupKind,
    StallSamples,
    UnknownUnits,
    base_unit,
)
from gemmetry.formats.counters.ncu_pages import PRODUCT, completed, read_ncu_csv

MAGIC = b"NVR\x00"

_WRITTEN_BY = re.compile(rb"(20\d\d\.\d+\.\d+)\.\d+ \(build \d+\)")
_KINDS: tuple[RuleKind, ...] = ("ok", "ok", "optimization", "warning", "error")
_SPEEDUPS: dict[int, SpeedupKind] = {1: "local", 2: "global"}
_MARKUP = re.compile(r"@(\w+):([^:@]*):([^@]*)@")
"""A link in a message of a rule: ``@section:WarpStateStats:Warp State Statistics@``, and
``@url:text:address@``."""

_SAMPLED = re.compile(r"smsp__pcsamp_warps_issue_stalled_(\w+?)(?<!_not_issued)")


def read_ncu_rep(
    path: Path, library: ModuleType, metrics: Collection[str] | None = None
) -> LaunchTable:
    """The launches of a report.

    Samples of the program counter are read when they are first used, because disassembling a kernel
    takes longer than reading all its metrics.

    Args:
        library: the module ``ncu_report``.
        metrics: ids of those to read; None for all.

    Raises:
        RequestError: the file cannot be read, or not by this version of the library.
    """
    try:
        context = library.load_report(str(path))
    except Exception as error:  # The library does not document what it raises.
        raise _unreadable(path, library.__name__, str(error)) from error
    reader = f"{library.__name__} {context.get_version()}"
    actions = [
        one.action_by_idx(index)
        for one in map(context.range_by_idx, range(context.num_ranges()))
        for index in range(one.num_actions())
    ]
    kinds = _Kinds(library)
    columns = Columns(len(actions), metrics)
    problems = []
    infos = []
    for row, found in enumerate(actions):
        action = _Action(found, kinds, library)
        infos.append(action.info(row, context))
        action.put(row, columns, metrics)
        if not action.names:
            problems.append(f"launch {row} ({infos[-1].name}) has no metrics: the report is cut, "
                            f"or needs a newer reader than {reader}")  # fmt: skip
    if len(problems) == len(actions):
        raise _unreadable(path, reader)
    problems += kinds.unknown.problems()
    return columns.table("ncu", infos, version=_writer(path), source=path, problems=problems)


class _Kinds:
    """Cache of common facts that are slow to look up: the names of their metrics, and of each
    metric whether it is a text, its base unit, and the factor to it."""

    def __init__(self, library: ModuleType) -> None:
        self._text = library.IMetric.ValueKind_STRING
        self._names: dict[tuple[str, ...], dict[str, None]] = {}
        self._kinds: dict[str, tuple[bool, str, float] | None] = {}
        self.unknown: Final = UnknownUnits()

    def names(self, action: Any) -> Mapping[str, None]:
        """The metrics of a launch, as the keys."""
        names = tuple(action.metric_names())
        return self._names.setdefault(names, dict.fromkeys(names))

    def of(self, name: str, metric: Any) -> tuple[bool, str, float] | None:
        """Kind of a metric, from the first launch that has it; None: the unit is unknown."""
        if name not in self._kinds:
            unit, is_text = metric.unit(), metric.kind() == self._text
            base = ("", 1.0) if is_text else base_unit(unit)
            if base is None:
                self.unknown.add(name, unit)
            self._kinds[name] = None if base is None else (is_text, *base)
        return self._kinds[name]


class _Action:
    """An action of the library."""

    def __init__(self, action: Any, kinds: _Kinds, library: ModuleType) -> None:
        self.names = kinds.names(action)
        """Names of the metrics."""
        self._action = action
        self._kinds = kinds
        self._name_base = library.IAction.NameBase_DEMANGLED

    def _value(self, name: str) -> tuple[float | str | None, str]:
        """A metric's value in its base unit, and that unit."""
        metric: Any = self._action.metric_by_name(name) if name in self.names else None
        kind = None if metric is None else self._kinds.of(name, metric)
        if kind is None:
            return None, ""
        is_text, base, factor = kind
        if not metric.has_value():
            return None, base
        return metric.as_string() if is_text else metric.as_double() * factor, base

    def _whole(self, name: str) -> int | None:
        value = self._value(name)[0]
        return int(value) if isinstance(value, float) else None

    def info(self, row: int, context: object) -> LaunchInfo:
        """Identity of the launch, its rules and its samples.

        Args:
            context: object that must live as long as samples may be read.
        """
        info = LaunchInfo(
            name=self._action.name(self._name_base),
            number=row,
            context=self._whole("launch__context_id"),
            stream=self._whole("launch__stream_id"),
            rules=tuple(map(_rule, getattr(self._action, "rule_results_as_dicts", tuple)())),
            samples=LazySamples(lambda: (context, self._samples())[1]),
        )
        return completed(info, self._whole, str(self._value(PRODUCT)[0] or ""))

    def put(self, row: int, columns: Columns, metrics: Collection[str] | None) -> None:
        """Store the launch's metrics, or those of them that are in `metrics`."""
        for name in self.names if metrics is None else metrics:
            if name in self.names:
                columns.put(row, name, *self._value(name))

    def _samples(self) -> Iterator[StallSamples]:
        counts: dict[int, dict[str, int]] = defaultdict(dict)
        for name in sorted(self.names):
            sampled = _SAMPLED.fullmatch(name)
            metric = self._action.metric_by_name(name) if sampled else None
            if sampled is None or metric is None or not metric.has_correlation_ids():
                continue
            addresses = metric.correlation_ids()
            for index in range(metric.num_instances()):
                if count := metric.as_uint64(index):
                    counts[addresses.as_uint64(index)][sampled[1]] = count
        for address, by_reason in sorted(counts.items()):
            yield StallSamples(address, self._action.sass_by_pc(address).strip(), by_reason)


class LazySamples(Sequence[StallSamples]):
    """Samples that are read when they are first used."""

    def __init__(self, read: Callable[[], Iterator[StallSamples]]) -> None:
        self._read = read

    @cached_property
    def _all(self) -> tuple[StallSamples, ...]:
        return tuple(self._read())

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, index: int) -> StallSamples: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[StallSamples]: ...
    def __getitem__(self, index: int | slice) -> StallSamples | Sequence[StallSamples]:
        return self._all[index]

    def __reduce__(self) -> tuple[type, tuple[tuple[StallSamples, ...]]]:
        return tuple, (self._all,)


def _rule(found: dict[str, Any]) -> RuleResult:
    message = found.get("rule_message") or {}
    speedup = found.get("speedup_estimation") or {}
    kind = message.get("type", 0)
    return RuleResult(
        identifier=found.get("rule_identifier", ""),
        section=found.get("section_identifier", ""),
        kind=_KINDS[kind] if 0 <= kind < len(_KINDS) else "warning",
        title=message.get("title", ""),
        message=_MARKUP.sub(
            lambda link: link[2] if link[1] == "url" else link[3], message.get("message", "")
        ),
        speedup_percent=speedup.get("speedup"),
        speedup_kind=_SPEEDUPS.get(speedup.get("type", 0)),
    )


def _writer(path: Path) -> str:
    """The version of Nsight Compute that wrote a report; "" if it does not state one."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        found = _WRITTEN_BY.search(content)
        return found[1].decode() if found else ""


def _unreadable(path: Path, reader: str, reason: str = "") -> RequestError:
    writer = _writer(path)
    by = f", written by Nsight Compute {writer}," if writer else ""
    return RequestError(
        f"{path}{by} has no launches that {reader} can read" + (f": {reason}" if reason else ""),
        hint="If it is not cut, it needs a newer reader: pip install -U ncu-report. Nsight Compute "
        "of the version that wrote it exports it: ncu --import FILE --page raw --csv.",
    )


def read_by_export(
    path: Path, executable: Path, metrics: Collection[str] | None = None
) -> LaunchTable:
    """The launches of a report; without the conclusions of rules and the samples, which the raw
    page does not have.

    Raises:
        EnvironmentFailure: ``ncu`` cannot export it; the message is its own.
    """
    command = [str(executable), "--import", str(path), "--page", "raw", "--csv",
               "--print-units", "base"]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "raw.csv"
        with exported.open("wb") as file:
            ended = subprocess.run(command, stdout=file, stderr=subprocess.PIPE, check=False)
        table = read_ncu_csv(exported, metrics)
        if ended.returncode != 0 or table is None:
            output = ended.stderr + exported.read_bytes()
            lines = output.decode("utf-8", "replace").strip().splitlines()
            raise EnvironmentFailure(
                f"{executable} cannot export {path}: {lines[-1] if lines else 'no output'}",
                hint="A report needs the version of Nsight Compute that wrote it, or a later one; "
                "pip install 'gemmetry[counters]' reads it without Nsight Compute.",
            )
    table.source = path
    return table


LIBRARY = "ncu_report"

_VERSION = re.compile(r"\b20\d\d\.\d+(?:\.\d+)*")
_OPT = Path("/opt/nvidia/nsight-compute")
"""Folder of Nsight Compute's own packages, with a subfolder for each version."""

_SCRIPT_BYTES = 64 << 10


def report_library(executable: Path | None, opt: Path = _OPT) -> ModuleType | None:
    """The module ``ncu_report``: the package, else that of an installation of Nsight Compute; None
    if there is none.

    Args:
        executable: ``ncu``, where it was found.
    """
    for folder in chain([None], map(str, python_folders(executable, opt))):
        if folder is not None:
            sys.path.insert(0, folder)
        try:
            return importlib.import_module(LIBRARY)
        except ImportError:  # Also one whose binary is for another processor or Python.
            sys.modules.pop(LIBRARY, None)
        finally:
            if folder is not None:
                sys.path.remove(folder)
    return None


def python_folders(executable: Path | None, opt: Path = _OPT) -> Iterator[Path]:
    """The folders of installations that contain the library: first that of the installation that
    `executable` starts, then the newest."""
    for root in _installations(executable, opt):
        folder = root / "extras" / "python"
        if (folder / f"{LIBRARY}.py").is_file() or (folder / LIBRARY).is_dir():
            yield folder


def _installations(executable: Path | None, opt: Path) -> Iterator[Path]:
    places, version = [opt.glob("*")], ""
    if executable is not None:
        real = executable.resolve()
        yield from real.parents[:4]
        # CUDA's toolkit has it next to `bin`, which contains a script that starts it.
        places += [folder.glob("nsight-compute*") for folder in real.parents[:3]]
        version = _version_in_script(real)
    newest = sorted((one for place in places for one in place), key=_key, reverse=True)
    yield from (one for one in newest if version and version in one.name)
    yield from newest


def _version_in_script(path: Path) -> str:
    """The version that CUDA's script ``ncu`` starts; "" if it is no script."""
    try:
        with path.open("rb") as file:
            text = file.read(_SCRIPT_BYTES)
    except OSError:
        return ""
    found = _VERSION.search(text.decode("utf-8", "replace")) if text.startswith(b"#!") else None
    return found[0] if found else ""


def _key(folder: Path) -> list[int]:
    found = _VERSION.search(folder.name)
    return [int(part) for part in found[0].split(".")] if found else []
