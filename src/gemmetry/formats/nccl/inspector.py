"""Reads the records of NCCL Inspector, NCCL's profiler plugin that logs every collective.

Each process writes one file, ``<host>-pid<pid>.log``, into NCCL_INSPECTOR_DUMP_DIR: one JSON object
per line for each finished operation, with ``header`` (the communicator), ``metadata`` (the process)
and ``coll_perf`` or, since 2.29, ``p2p_perf``. Format version ``v4.0``, read in NVIDIA/nccl 2.28.9
(``ext-profiler/inspector``) and 2.30.7 (``plugins/profiler/inspector/inspector_json.cc``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gemmetry.formats.opening import open_decompressed

NAME = re.compile(r".+-pid\d+\.log(?:\.gz|\.zst)?")
"""The name of a file of records."""

_KEY = b'"inspector_output_format_version"'
_FIRST_BYTES = 4096
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")
_OF_EVERY_RANK = ("all_gather", "reduce_scatter")
"""Operations whose recorded size is the part of one rank (``ncclTypeSize() * count``, inspector_
plugin.cc); the whole message is larger by the number of ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectorRecord:
    """One operation as one rank recorded it; None where the record lacks a value."""

    communicator: str
    """Hash of the communicator, equal on all its ranks."""
    name: str
    """Name of the communicator (since 2.29); "" if it has none."""
    rank: int
    """Within the communicator."""
    ranks: int
    nodes: int | None
    host: str
    pid: int | None
    operation: str
    """Named as in nccl-tests: ``all_gather`` ..., ``send``, ``recv``."""
    sequence: int | None
    """Number of the operation within the communicator."""
    bytes: int
    """Of the whole message."""
    duration_us: float
    """Of the slowest channel's kernel part, where `timing` is ``kernel_gpu``."""
    timing: str
    """``kernel_gpu``, ``kernel_cpu`` or ``collective_cpu``: the clock that measured; "" before it
    was recorded."""
    algorithm_bandwidth: float | None
    """In 10⁹ bytes/s, as recorded."""
    bus_bandwidth: float | None
    peer: int | None = None
    """Other rank of a send or receive."""
    channels: int | None = None
    """Only in verbose records (NCCL_INSPECTOR_DUMP_VERBOSE), like `start_us` and `end_us`."""
    start_us: int | None = None
    """First start of a channel's kernel part, by the host's clock, in µs since 1970."""
    end_us: int | None = None


@dataclass(frozen=True, slots=True)
class InspectorFile:
    """The records of one process."""

    path: Path
    records: tuple[InspectorRecord, ...]
    problems: tuple[str, ...] = ()
    """What could not be read."""


def is_inspector_file(path: Path) -> bool:
    """Whether the content begins like a record of NCCL Inspector.

    Raises:
        RequestError: the file cannot be opened.
    """
    with open_decompressed(path) as file:
        try:
            start = file.read(_FIRST_BYTES).lstrip()
        except OSError:
            return False
    return start.startswith(b"{") and _KEY in start


def read_inspector_file(path: Path) -> InspectorFile:
    """The records of a file. Lines that are not records, as the last one of a process that was
    ended, are counted in its problems.

    Raises:
        RequestError: the file cannot be opened.
    """
    records: list[InspectorRecord] = []
    damaged: list[int] = []
    problems: list[str] = []
    with open_decompressed(path) as file:
        lines = enumerate(iter(file.readline, b""), 1)
        while True:
            try:
                number, line = next(lines, (0, b""))
            except OSError as error:
                problems.append(f"{path}: the compressed data end early or are damaged ({error})")
                break
            if not number:
                break
            if line.strip():
                try:
                    records.append(_record(msgspec.json.decode(line)))
                except (msgspec.DecodeError, KeyError, TypeError, ValueError):
                    damaged.append(number)
    if damaged:
        count = "1 line is" if len(damaged) == 1 else f"{len(damaged)} lines are"
        problems.append(f"{path}: {count} not records of NCCL Inspector, the first is {damaged[0]}")
    return InspectorFile(path, tuple(records), tuple(problems))


def inspector_files(folder: Path) -> Iterator[Path]:
    """The files of records in `folder` and the folders in it, by name and content."""
    for path in sorted(folder.rglob("*-pid*.log*")):
        if NAME.fullmatch(path.name) and path.is_file() and is_inspector_file(path):
            yield path


def _record(line: Mapping[str, Any]) -> InspectorRecord:
    header, process = line["header"], line["metadata"]
    kind = "coll" if "coll_perf" in line else "p2p"
    values = line[f"{kind}_perf"]
    operation = _WORDS.sub("_", values[kind]).lower()
    ranks, size = int(header["n_ranks"]), int(values[f"{kind}_msg_size_bytes"])
    times = values.get("event_trace_ts", {}).get("kernel_events", [])
    starts = [one["kernel_start_ts"] for one in times if one["kernel_start_ts"]]
    ends = [one["kernel_stop_ts"] for one in times if one["kernel_stop_ts"]]
    return InspectorRecord(
        communicator=str(header["id"]),
        name=str(header.get("comm_name", "")).removeprefix("unknown"),
        rank=int(header["rank"]),
        ranks=ranks,
        nodes=header.get("nnodes"),
        host=str(process.get("hostname", "")),
        pid=process.get("pid"),
        operation=operation,
        sequence=values.get(f"{kind}_sn"),
        bytes=size * ranks if operation in _OF_EVERY_RANK else size,
        duration_us=float(values[f"{kind}_exec_time_us"]),
        timing=str(values.get(f"{kind}_timing_source", "")),
        algorithm_bandwidth=values.get(f"{kind}_algobw_gbs"),
        bus_bandwidth=values.get(f"{kind}_busbw_gbs"),
        peer=values.get("p2p_peer"),
        channels=len(times) or None,
        start_us=min(starts, default=None),
        end_us=max(ends, default=None),
    )
