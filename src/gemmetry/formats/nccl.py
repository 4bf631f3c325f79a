"""Reads the records of NCCL Inspector, NCCL's profiler plugin that logs every collective.

Each process writes one file, ``<host>-pid<pid>.log``, into NCCL_INSPECTOR_DUMP_DIR: one JSON object
per line for each finished operation, with ``header`` (the communicator), ``metadata`` (the process)
and ``coll_perf`` or, since 2.29, ``p2p_perf``. Format version ``v4.0``, read in NVIDIA/nccl 2.28.9
(``ext-profiler/inspector``) and 2.30.7 (``plugins/profiler/inspector/inspector_json.cc``).

Writes ``nccl_tuner.conf``, the CSV file of NCCL's example tuner plugin.

Read in NVIDIA/nccl 2.30.7 ``plugins/tuner/example/plugin.c`` (2.28.9: ``ext-tuner/example``). The
plugin applies the first line that matches a collective; it reads lines into a buffer of 256
characters, so that a longer comment would continue as a setting.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from gemmetry.domain.opening import open_decompressed
from gemmetry.domain.units import plural

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
    """Size of the whole message."""
    duration_us: float
    """Duration; that of the slowest channel's kernel part where `timing` is ``kernel_gpu``."""
    timing: str
    """``kernel_gpu``, ``kernel_cpu`` or ``collective_cpu``: the clock that measured; "" before it
    was recorded."""
    algorithm_bandwidth: float | None
    """Algorithm bandwidth in 10⁹ bytes/s, as recorded."""
    bus_bandwidth: float | None
    peer: int | None = None
    """Other rank of a send or receive."""
    channels: int | None = None
    """Channels, in verbose records only (NCCL_INSPECTOR_DUMP_VERBOSE), as are start and end."""
    start_us: int | None = None
    """First start of a channel's kernel part, by the host's clock, in µs since 1970."""
    end_us: int | None = None


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


def inspector_records(path: Path, problems: list[str]) -> Iterator[InspectorRecord]:
    """The records of a file, one after the other, as there may be millions. Lines that are not
    records, as the last one of a process that was ended, are counted in `problems`.

    Raises:
        RequestError: the file cannot be opened.
    """
    damaged: list[int] = []
    number = 0
    with open_decompressed(path) as file:
        try:
            for number, line in enumerate(iter(file.readline, b""), 1):
                if line.strip():
                    try:
                        yield _record(_LINE.decode(line))
                    except (msgspec.DecodeError, ValueError):
                        damaged.append(number)
        except OSError as error:
            problems.append(
                f"{path}: the compressed data end early or are damaged after line {number}: {error}"
            )
    if damaged:
        count = plural(len(damaged), "line is", "lines are")
        problems.append(f"{path}: {count} not records of NCCL Inspector, the first is {damaged[0]}")


def inspector_files(folder: Path) -> Iterator[Path]:
    """The files in `folder` and the folders in it that have the name of a file of records."""
    for path in sorted(folder.rglob("*-pid*.log*")):
        if NAME.fullmatch(path.name) and path.is_file():
            yield path


class _Header(msgspec.Struct):
    id: str
    rank: int
    n_ranks: int
    nnodes: int | None = None
    comm_name: str = ""


class _Process(msgspec.Struct):
    hostname: str = ""
    pid: int | None = None


class _Channel(msgspec.Struct):
    kernel_start_ts: int = 0
    kernel_stop_ts: int = 0


class _Times(msgspec.Struct):
    kernel_events: list[_Channel] = []


def _operation_kind(lead: str, *more: Any) -> Any:
    """The record of an operation, whose keys begin with `lead`."""
    fields = [
        ("operation", str, msgspec.field(name=lead)), ("msg_size_bytes", int),
        ("exec_time_us", float), ("sn", int | None, None), *more, ("timing_source", str, ""),
        ("algobw_gbs", float | None, None), ("busbw_gbs", float | None, None),
        ("times", _Times | None, msgspec.field(name="event_trace_ts", default=None)),
    ]  # fmt: skip
    return msgspec.defstruct(lead, fields, rename=lambda name: f"{lead}_{name}")


_LINE = msgspec.json.Decoder(msgspec.defstruct("_Line", [
    ("header", _Header), ("metadata", _Process),
    ("coll_perf", _operation_kind("coll") | None, None),
    ("p2p_perf", _operation_kind("p2p", ("peer", int | None, None)) | None, None),
]))  # fmt: skip


@lru_cache(maxsize=64)
def _operation(name: str) -> str:
    """``all_reduce`` for ``AllReduce``."""
    return _WORDS.sub("_", name).lower()


def _record(line: Any) -> InspectorRecord:
    """The record in a line.

    Raises:
        ValueError: `line` has neither a collective nor a send or receive.
    """
    header, process = line.header, line.metadata
    one = line.coll_perf or line.p2p_perf
    if one is None:
        raise ValueError("no operation")
    operation = _operation(one.operation)
    events = one.times.kernel_events if one.times is not None else []
    return InspectorRecord(
        communicator=header.id,
        name=header.comm_name if header.comm_name != "unknown" else "",
        rank=header.rank,
        ranks=header.n_ranks,
        nodes=header.nnodes,
        host=process.hostname,
        pid=process.pid,
        operation=operation,
        sequence=one.sn,
        bytes=one.msg_size_bytes * (header.n_ranks if operation in _OF_EVERY_RANK else 1),
        duration_us=one.exec_time_us,
        timing=one.timing_source,
        algorithm_bandwidth=one.algobw_gbs,
        bus_bandwidth=one.busbw_gbs,
        peer=getattr(one, "peer", None),
        channels=len(events) or None,
        start_us=min((one.kernel_start_ts for one in events if one.kernel_start_ts), default=None),
        end_us=max((one.kernel_stop_ts for one in events if one.kernel_stop_ts), default=None),
    )


COLUMNS = ("collective_type", "min_bytes", "max_bytes", "algorithm", "protocol", "channels",
           "nNodes", "nRanks", "numPipeOps", "regBuff")  # fmt: skip
COLLECTIVES = {
    "broadcast": "broadcast",
    "reduce": "reduce",
    "all_gather": "allgather",
    "reduce_scatter": "reducescatter",
    "all_reduce": "allreduce",
}
"""Operations that the plugin can tune, with its names for them; it takes any other name as
``allreduce``."""
ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS = ("ll", "ll128", "simple")
ANY = -1
"""Matches every value; as the number of channels, it leaves the choice to NCCL."""

MOST_CHARACTERS = 254
"""Maximum length of a line, without its end."""
_COMMENT_CHARACTERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerLine:
    """One setting; sizes are those of the whole message."""

    operation: str
    """A key of :data:`COLLECTIVES`."""
    min_bytes: int
    max_bytes: int
    algorithm: str
    """One of :data:`ALGORITHMS`."""
    protocol: str
    """One of :data:`PROTOCOLS`."""
    channels: int = ANY
    nodes: int = ANY
    ranks: int = ANY

    @property
    def text(self) -> str:
        """The line of the file."""
        values = (
            COLLECTIVES[self.operation], self.min_bytes, self.max_bytes, self.algorithm,
            self.protocol, self.channels, self.nodes, self.ranks, ANY, ANY,
        )  # fmt: skip
        return ",".join(map(str, values))


def tuner_config(title: str, entries: Iterable[tuple[str, TunerLine | None]]) -> str:
    """The content of the file, with `title` and the evidence of each setting as comments.

    Args:
        entries: the evidence for a setting with it, or evidence without one.
    """
    found = [*_comment(title), f"# {','.join(COLUMNS)}"]
    for comment, line in entries:
        found += ["", *_comment(comment), *([] if line is None else [line.text])]
    return "\n".join(found) + "\n"


def _comment(text: str) -> list[str]:
    lines = [
        part for line in text.splitlines() for part in textwrap.wrap(line, _COMMENT_CHARACTERS)
    ]
    return [f"# {line}"[:MOST_CHARACTERS] for line in lines]
