"""Finds the files of rocprofv3 in a folder, and reads what each process recorded in each pass.

Layouts: ``PID_<table>.csv`` and ``PID_results.json`` or ``.db``, flat, below a folder of the host,
and below ``pass_N/`` (``pmc_N/`` for lists of counters in text files). Files that ``gemmetry sweep
run`` has rocprofv3 write are named ``<host>/rank<R>_<PID>_*``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gemmetry.domain.errors import RequestError
from gemmetry.formats.rocm.counted import CountedProcess
from gemmetry.formats.rocm.rocpd_counters import read_rocpd_counters
from gemmetry.formats.rocm.rocprofv3.counters import read_csv_counters
from gemmetry.formats.rocm.rocprofv3.json_counters import read_json_counters
from gemmetry.formats.rocm.rocprofv3.tables import table_of

_PASS = re.compile(r"(?:pass|pmc)_(\d+)")
_RESULTS = re.compile(r"(?P<prefix>.*?)_?results\.(?P<kind>json|db)(?:\.gz|\.zst)?")
_RANKED = re.compile(r"rank(\d+)_(\d+)")
_PID = re.compile(r"(?:.*_)?(\d+)")
_OF_KERNELS = ("counter_collection", "kernel_trace")


@dataclass(slots=True)
class _Files:
    """The files of one process in one pass."""

    csv: Path | None = None
    json: Path | None = None
    db: Path | None = None


@dataclass(frozen=True, slots=True)
class PassOfProcess:
    """What one process recorded in one pass."""

    number: int
    """Of the pass, from 1; 0 where the layout has no passes."""
    process: CountedProcess


def read_counter_folder(folder: Path) -> tuple[list[PassOfProcess], list[str]]:
    """What rocprofv3 wrote into `folder`, and what could not be read of it, one sentence each.

    Where a process has the same in several formats, CSV is read, else JSON, else the database. A
    process's rank is that of its file's name, else of its environment or command line, as the file
    has them; a CSV file has neither, and a JSON file next to it is read for them.
    """
    found: list[PassOfProcess] = []
    problems: list[str] = []
    for (parent, prefix), files in _grouped(folder).items():
        try:
            processes = list(_processes(files))
        except RequestError as error:
            problems.append(error.message)
            continue
        number, host = _place(parent.relative_to(folder))
        for process in processes:
            process.host = process.host or host
            _name(process, prefix)
            problems += process.problems
            if process.dispatches:
                found.append(PassOfProcess(number, process))
    return sorted(found, key=lambda one: (one.number, one.process.pid or 0)), problems


def _grouped(folder: Path) -> dict[tuple[Path, str], _Files]:
    """The files with kernels by folder and prefix."""
    found: dict[tuple[Path, str], _Files] = {}
    for path in sorted(folder.rglob("*")):
        table = table_of(path.name)
        results = _RESULTS.fullmatch(path.name)
        if not path.is_file():
            continue
        if table is not None and table[1] in _OF_KERNELS:
            found.setdefault((path.parent, table[0]), _Files()).csv = path
        elif results is not None:
            files = found.setdefault((path.parent, results["prefix"]), _Files())
            setattr(files, results["kind"], path)
    return found


def _processes(files: _Files) -> Iterator[CountedProcess]:
    if files.csv is not None:
        process = read_csv_counters(files.csv)
        if process.dispatches:
            yield _with_description(process, files)
            return
    if files.json is not None:
        yield from read_json_counters(files.json)
    elif files.db is not None:
        yield from read_rocpd_counters(files.db)


def _with_description(process: CountedProcess, files: _Files) -> CountedProcess:
    """`process` of CSV files, with what only the other formats have."""
    if _RANKED.search(files.csv.name if files.csv is not None else "") or files.json is None:
        return process
    for other in read_json_counters(files.json):
        if other.pid == process.pid or process.pid is None:
            process.rank, process.rank_source = other.rank, other.rank_source
            process.host = other.host
            process.gpus = process.gpus or other.gpus
    return process


def _place(relative: Path) -> tuple[int, str]:
    """Number of the pass, and name of the host, in a path below the folder."""
    number, host = 0, ""
    for part in relative.parts:
        found = _PASS.fullmatch(part)
        if found:
            number = int(found[1])
        else:
            host = part
    return number, host


def _name(process: CountedProcess, prefix: str) -> None:
    """Complete what is known by the prefix of the file's name."""
    ranked, pid = _RANKED.fullmatch(prefix), _PID.fullmatch(prefix)
    if ranked:
        process.rank, process.rank_source = int(ranked[1]), "file name"
    if process.pid is None and (ranked or pid):
        process.pid = int(ranked[2] if ranked else pid[1] if pid else "")
