"""Reads rocprofv3's kernel counters and statistics (CSV).

Counters of rocprofv3's ``results.json``; its layout is described in ``json.py`` next to it.

Finds the files of rocprofv3 in a folder, and reads what each process recorded in each pass.

Layouts: ``PID_<table>.csv`` and ``PID_results.json`` or ``.db``, flat, below a folder of the host,
and below ``pass_N/`` (``pmc_N/`` for lists of counters in text files). Files that ``gemmetry sweep
run`` has rocprofv3 write are named ``<host>/rank<R>_<PID>_*``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from gemmetry.domain.errors import RequestError
from gemmetry.domain.opening import open_decompressed
from gemmetry.formats.events import MISSING
from gemmetry.formats.json import SectionReader, record_decoders
from gemmetry.formats.readers.rocprofv3_json import KEY
from gemmetry.formats.rocm.rocpd import read_rocpd_counters
from gemmetry.formats.rocm.rocprofv3 import (
    GPU_AGENT,
    DispatchInfo,
    Extent,
    Handle,
    Record,
    RowBlock,
    Skipped,
    Symbol,
    blocks,
    chosen_rows,
    device_number,
    frame_processes,
    read_agents,
    siblings,
    table_of,
)
from gemmetry.formats.rocm.rows import (
    Agents,
    CountedDispatch,
    CountedProcess,
    counted_gpu,
    grid_and_block,
    kernel_name,
    mapping,
)

_XYZ = ("X", "Y", "Z")

_Key: TypeAlias = tuple[str, ...]
"""GPU and number of a dispatch, and the times of its execution: a replay has other times."""


def read_csv_counters(path: Path) -> CountedProcess:
    """The dispatches of a process, with their counters: of ``counter_collection.csv``, else of
    ``kernel_trace.csv``.

    Args:
        path: any of the process's files; those in the same folder that share its prefix are read.
            A file with another name is read alone.

    Raises:
        RequestError: a file cannot be opened.
    """
    files = siblings(path) or {"counter_collection": path}
    agents, gpus = read_agents(files.get("agent_info"))
    found = CountedProcess(gpus=gpus)
    counters, trace = files.get("counter_collection"), files.get("kernel_trace")
    dispatches: dict[_Key, CountedDispatch] = {}
    for file in (counters, trace):
        if file is None or dispatches:
            continue
        for block in blocks(file):
            found.problems += [f"{file.name} {one.where} {one.what}" for one in block.problems]
            _add(dispatches, block, agents)
            pids = chosen_rows(block, [0] if len(block) else []).integers("Process_Id")
            found.pid = next((pid for pid in pids if pid >= 0), found.pid)
    found.dispatches = list(dispatches.values())
    found.join_replays()
    return found


def _add(dispatches: dict[_Key, CountedDispatch], block: RowBlock, agents: Agents) -> None:
    """Add the rows of a block: one for each counter of a dispatch, or one for each dispatch."""
    kernels = {name: kernel_name(name) for name in set(block.texts("Kernel_Name"))}
    devices = {text: device_number(agents, text) for text in set(block.texts("Agent_Id"))}
    named = ("Agent_Id", "Dispatch_Id", "Start_Timestamp", "End_Timestamp")
    keys: list[_Key] = list(zip(*map(block.texts, named), strict=True))
    # A file has a row per counter: what describes the dispatch is read from the first.
    first = {key: row for row, key in reversed(list(enumerate(keys))) if key not in dispatches}
    rows = sorted(first.values())
    described = chosen_rows(block, rows)
    columns = zip(
        rows,
        described.integers("Dispatch_Id"),
        described.texts("Kernel_Name"),
        _sizes(described),
        *(described.integers(name) for name in (
            "LDS_Block_Size" if "LDS_Block_Size" in block.columns else "Group_Segment_Size",
            "Scratch_Size" if "Scratch_Size" in block.columns else "Private_Segment_Size",
            "VGPR_Count", "Accum_VGPR_Count", "SGPR_Count", "Start_Timestamp", "End_Timestamp",
        )),
        strict=True,
    )  # fmt: skip
    for row, number, kernel, (grid, group), *rest in columns:
        key = keys[row]
        dispatches[key] = CountedDispatch(
            number, kernels[kernel], devices[key[0]], grid, group, *rest
        )
    values = zip(keys, block.texts("Counter_Name"), block.texts("Counter_Value"), strict=True)
    for key, counter, text in values:
        value = _number(text)
        if value is not None:
            # One row per instance of a counter, in files that do not sum them up.
            found = dispatches[key].values
            found[counter] = found.get(counter, 0.0) + value


def _sizes(block: RowBlock) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Workgroups, and work-items of each: by dimension, or in all."""
    axes = [""] if "Grid_Size" in block.columns else [f"_{axis}" for axis in _XYZ]
    grids, groups = (
        zip(*(block.integers(f"{what}_Size{axis}") for axis in axes), strict=True)
        for what in ("Grid", "Workgroup")
    )
    return map(grid_and_block, grids, groups)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


_SKIPPED = (
    "hip_api", "hsa_api", "marker_api", "rccl_api", "memory_copy", "memory_allocation",
    "scratch_memory", "rocdecode_api", "rocjpeg_api", "pc_sample_host_trap",
    "pc_sample_stochastic", "code_objects", "host_functions",
)  # fmt: skip


class _Value(msgspec.Struct, gc=False):
    counter_id: Handle | None = None
    value: float = 0.0


class _Counted(msgspec.Struct, gc=False):
    """An entry of ``counter_collection``."""

    dispatch_data: Record | None = None
    records: list[_Value] = []
    arch_vgpr_count: int = MISSING
    sgpr_count: int = MISSING
    lds_block_size_v: int = MISSING


def read_json_counters(path: Path) -> list[CountedProcess]:
    """The dispatches of each process, with their counters where they were collected.

    Raises:
        RequestError: the file cannot be opened.
    """
    kinds: dict[str, type] = {
        "agents": dict, "counters": dict, "kernel_symbols": Symbol,
        "counter_collection": _Counted, "kernel_dispatch": Record,
        **dict.fromkeys(_SKIPPED, Skipped),
    }  # fmt: skip
    processes: list[_ReadProcess] = []
    with open_decompressed(path) as file:
        reader = SectionReader(
            file, {key: record_decoders(kind) for key, kind in kinds.items()}, KEY
        )
        for key, records in reader:
            if key == "agents" and not records:
                # The first array of each process.
                processes.append(_ReadProcess())
            if processes:
                processes[-1].add(key, records)
        problems = reader.text.all_problems()
        described = frame_processes(reader) or []
    found = [one.counted() for one in processes]
    described += [{}] * (len(found) - len(described))
    for process, other in zip(found, described, strict=False):
        _describe(process, mapping(other.get("metadata")))
    if found:
        found[0].problems += [f"{path.name} {one}" for one in problems]
    return found


class _ReadProcess:
    """What the arrays of one process hold; names and counters are resolved at the end."""

    def __init__(self) -> None:
        self._symbols: dict[int, Symbol] = {}
        self._counters: dict[int, str] = {}
        self._agents: list[dict[str, Any]] = []
        self._counted: list[_Counted] = []
        self._traced: list[Record] = []

    def add(self, key: str, records: list[Any]) -> None:
        """Add a piece of the array `key`."""
        if key == "agents":
            self._agents += records
        elif key == "counters":
            self._counters |= {_handle(one): str(one.get("name", "")) for one in records}
        elif key == "kernel_symbols":
            self._symbols |= {one.kernel_id: one for one in records}
        elif key == "counter_collection":
            self._counted += records
        elif key == "kernel_dispatch":
            self._traced += records

    def counted(self) -> CountedProcess:
        """The process; its rank, number and host are not known yet."""
        process = CountedProcess()
        gpus = [one for one in self._agents if one.get("type") == GPU_AGENT]
        numbers = {}
        for index, agent in enumerate(gpus):
            number = agent.get("gpu_index", agent.get("logical_node_type_id", index))
            numbers[_handle(agent)] = number
            gpu = counted_gpu(agent.get)
            if gpu is not None:
                process.gpus[number] = gpu
        if self._counted:
            process.dispatches = [self._of_counters(one, numbers) for one in self._counted]
        else:
            process.dispatches = [self._dispatch(one, numbers) for one in self._traced]
        process.join_replays()
        return process

    def _of_counters(self, one: _Counted, numbers: dict[int, int]) -> CountedDispatch:
        found = self._dispatch(one.dispatch_data or Record(), numbers)
        found.vgprs = max(found.vgprs, one.arch_vgpr_count)
        found.sgprs = max(found.sgprs, one.sgpr_count)
        found.lds_bytes = max(found.lds_bytes, one.lds_block_size_v)
        for record in one.records:
            handle = record.counter_id.handle if record.counter_id is not None else 0
            name = self._counters.get(handle, f"counter {handle}")
            # One record for each instance.
            found.values[name] = found.values.get(name, 0.0) + record.value
        return found

    def _dispatch(self, one: Record, numbers: dict[int, int]) -> CountedDispatch:
        info = one.dispatch_info or DispatchInfo()
        symbol = self._symbols.get(info.kernel_id, Symbol())
        sizes = info.grid_size or Extent(), info.workgroup_size or Extent()
        grid, block = grid_and_block(*(one.sizes for one in sizes))
        agent = info.agent_id.handle if info.agent_id is not None else MISSING
        return CountedDispatch(
            number=info.dispatch_id,
            kernel=kernel_name(symbol.name or f"kernel {info.kernel_id}"),
            device=numbers.get(agent, MISSING),
            grid=grid,
            block=block,
            lds_bytes=info.group_segment_size,
            scratch_bytes=info.private_segment_size,
            vgprs=symbol.arch_vgpr_count,
            accum_vgprs=symbol.accum_vgpr_count,
            sgprs=symbol.sgpr_count,
            start_ns=one.start_timestamp,
            end_ns=one.end_timestamp,
        )


def _describe(process: CountedProcess, metadata: dict[str, Any]) -> None:
    pid, command = metadata.get("pid"), metadata.get("command")
    process.pid = pid if isinstance(pid, int) else None
    process.host = str(mapping(metadata.get("node")).get("hostname") or "")
    process.take_rank(
        mapping(metadata.get("environment")),
        " ".join(map(str, command)) if isinstance(command, list) else "",
    )


def _handle(agent: dict[str, Any]) -> int:
    handle = mapping(agent.get("id")).get("handle")
    return handle if isinstance(handle, int) else MISSING


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
