"""Counters of rocprofv3's ``results.json``; its layout is described in ``json.py`` next to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from gemmetry.formats.events import MISSING
from gemmetry.formats.json.repair import record_decoders
from gemmetry.formats.json.sections import SectionReader
from gemmetry.formats.opening import open_decompressed
from gemmetry.formats.readers.rocprofv3_json import KEY
from gemmetry.formats.rocm.counted import (
    CountedDispatch,
    CountedProcess,
    counted_gpu,
    grid_and_block,
)
from gemmetry.formats.rocm.rows import kernel_name

_GPU_AGENT = 2

_SKIPPED = (
    "hip_api", "hsa_api", "marker_api", "rccl_api", "memory_copy", "memory_allocation",
    "scratch_memory", "rocdecode_api", "rocjpeg_api", "pc_sample_host_trap",
    "pc_sample_stochastic", "code_objects", "host_functions",
)  # fmt: skip


class _Handle(msgspec.Struct, gc=False):
    handle: int = 0


class _Extent(msgspec.Struct, gc=False):
    x: int = 0
    y: int = 0
    z: int = 0

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.x, self.y, self.z


class _DispatchInfo(msgspec.Struct, gc=False):
    agent_id: _Handle | None = None
    kernel_id: int = 0
    dispatch_id: int = MISSING
    private_segment_size: int = MISSING
    group_segment_size: int = MISSING
    workgroup_size: _Extent | None = None
    grid_size: _Extent | None = None


class _Dispatch(msgspec.Struct, gc=False):
    """An entry of ``kernel_dispatch``, and the description in one of ``counter_collection``."""

    dispatch_info: _DispatchInfo | None = None
    start_timestamp: int = MISSING
    end_timestamp: int = MISSING


class _Value(msgspec.Struct, gc=False):
    counter_id: _Handle | None = None
    value: float = 0.0


class _Counted(msgspec.Struct, gc=False):
    """An entry of ``counter_collection``."""

    dispatch_data: _Dispatch | None = None
    records: list[_Value] = []
    arch_vgpr_count: int = MISSING
    sgpr_count: int = MISSING
    lds_block_size_v: int = MISSING


class _KernelSymbol(msgspec.Struct, gc=False):
    kernel_id: int = MISSING
    formatted_kernel_name: str = ""
    demangled_kernel_name: str = ""
    kernel_name: str = ""
    arch_vgpr_count: int = MISSING
    accum_vgpr_count: int = MISSING
    sgpr_count: int = MISSING


class _Ignored(msgspec.Struct, gc=False):
    """An entry of an array that is not used."""


def read_json_counters(path: Path) -> list[CountedProcess]:
    """The dispatches of each process, with their counters where they were collected.

    Raises:
        RequestError: the file cannot be opened.
    """
    kinds: dict[str, type] = {
        "agents": dict, "counters": dict, "kernel_symbols": _KernelSymbol,
        "counter_collection": _Counted, "kernel_dispatch": _Dispatch,
        **dict.fromkeys(_SKIPPED, _Ignored),
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
        frame, problems = reader.frame, reader.text.all_problems()
    metadata = _metadata(frame)
    found = [one.counted() for one in processes]
    for number, process in enumerate(found):
        _describe(process, metadata[number] if number < len(metadata) else {})
    if found:
        found[0].problems += [f"{path.name} {one}" for one in problems]
    return found


class _ReadProcess:
    """What the arrays of one process hold; names and counters are resolved at the end."""

    def __init__(self) -> None:
        self._symbols: dict[int, _KernelSymbol] = {}
        self._counters: dict[int, str] = {}
        self._agents: list[dict[str, Any]] = []
        self._counted: list[_Counted] = []
        self._traced: list[_Dispatch] = []

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
        gpus = [one for one in self._agents if one.get("type") == _GPU_AGENT]
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
        found = self._dispatch(one.dispatch_data or _Dispatch(), numbers)
        found.vgprs = max(found.vgprs, one.arch_vgpr_count)
        found.sgprs = max(found.sgprs, one.sgpr_count)
        found.lds_bytes = max(found.lds_bytes, one.lds_block_size_v)
        for record in one.records:
            handle = record.counter_id.handle if record.counter_id is not None else 0
            name = self._counters.get(handle, f"counter {handle}")
            # One record for each instance.
            found.values[name] = found.values.get(name, 0.0) + record.value
        return found

    def _dispatch(self, one: _Dispatch, numbers: dict[int, int]) -> CountedDispatch:
        info = one.dispatch_info or _DispatchInfo()
        symbol = self._symbols.get(info.kernel_id, _KernelSymbol())
        name = symbol.formatted_kernel_name or symbol.demangled_kernel_name or symbol.kernel_name
        sizes = info.grid_size or _Extent(), info.workgroup_size or _Extent()
        grid, block = grid_and_block(*(one.sizes for one in sizes))
        agent = info.agent_id.handle if info.agent_id is not None else MISSING
        return CountedDispatch(
            number=info.dispatch_id,
            kernel=kernel_name(name or f"kernel {info.kernel_id}"),
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
    pid, node = metadata.get("pid"), metadata.get("node")
    process.pid = pid if isinstance(pid, int) else None
    process.host = str(node.get("hostname") or "") if isinstance(node, dict) else ""
    environment, command = metadata.get("environment"), metadata.get("command")
    process.take_rank(
        environment if isinstance(environment, dict) else {},
        " ".join(map(str, command)) if isinstance(command, list) else "",
    )


def _metadata(frame: bytes) -> list[dict[str, Any]]:
    try:
        document = json.loads(frame.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return []
    processes = document.get(KEY) if isinstance(document, dict) else None
    found = [one.get("metadata") if isinstance(one, dict) else None for one in processes or ()]
    return [one if isinstance(one, dict) else {} for one in found]


def _handle(agent: dict[str, Any]) -> int:
    found = agent.get("id")
    handle = found.get("handle") if isinstance(found, dict) else None
    return handle if isinstance(handle, int) else MISSING
