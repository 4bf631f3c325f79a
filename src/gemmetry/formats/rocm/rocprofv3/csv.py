"""The CSV files that rocprofv3 writes for one process -> :class:`TraceRows`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from gemmetry.formats.events import GpuKind, Int32, Int64, ProblemKind, TraceRows
from gemmetry.formats.rocm.rocprofv3.tables import (
    RowBlock,
    agent_number,
    blocks,
    chosen_rows,
    columns,
    siblings,
)
from gemmetry.formats.rocm.rows import (
    LATEST_NS,
    Agents,
    HostKind,
    RowsBuilder,
    Triples,
    gpu_rows,
    integers,
    kernel_name,
    usable_times,
)

_NEEDED = {
    "kernel_trace": {"Kernel_Name", "Start_Timestamp", "End_Timestamp", "Grid_Size_X"},
    "counter_collection": {"Kernel_Name", "Start_Timestamp", "End_Timestamp", "Dispatch_Id"},
}
_HOST = {
    "hip_api_trace": HostKind.CALL,
    "hsa_api_trace": HostKind.CALL,
    "rccl_api_trace": HostKind.RCCL,
    "marker_api_trace": HostKind.RANGE,
}
"""Tables of the host -> what their rows are."""

_XYZ = ("X", "Y", "Z")


def read_rocprofv3_csv(path: Path) -> TraceRows | None:
    """The rows of a process: of `path` and of the files in the same folder that share its prefix.

    Kernels come from ``kernel_trace.csv``; without one, from ``counter_collection.csv``, if it
    contains times (those of a serialised run).

    Args:
        path: any of the process's CSV files; a file with another name is read alone, as the table
            that its columns identify.

    Returns:
        None if the files contain no kernels of rocprofv3.

    Raises:
        RequestError: a file cannot be opened.
    """
    found = kernel_tables(path)
    if not found:
        return None
    files = siblings(path)
    builder = _CsvRowsBuilder(_agents(files.get("agent_info")))
    for file, table in found.items():
        is_trace = table == "kernel_trace"
        builder.read(file, builder.kernels if is_trace else builder.counted_kernels)
    if "memory_copy_trace" in files:
        builder.read(files["memory_copy_trace"], builder.copies)
    for table, kind in _HOST.items():
        if table in files:
            builder.read(files[table], partial(builder.host, kind))
    return builder.rows()


def kernel_tables(path: Path) -> dict[Path, str]:
    """The file with the kernels of the process and their times, among `path` and the files in the
    same folder that share its prefix, and which table it is; {} if there is none.

    Raises:
        RequestError: a file cannot be opened.
    """
    files = siblings(path) or {"kernel_trace": path, "counter_collection": path}
    for table, needed in _NEEDED.items():
        if table in files and needed <= columns(files[table]):
            return {files[table]: table}
    return {}


class _CsvRowsBuilder(RowsBuilder):
    def __init__(self, agents: Agents) -> None:
        super().__init__()
        self._agents = agents
        self._seen: set[str] = set()

    def read(self, path: Path, add: Callable[[RowBlock], None]) -> None:
        """Add all rows of a file."""
        for block in blocks(path):
            self.events += len(block)
            for problem in block.problems:
                self._partial |= (
                    "any further" in problem.what or problem.kind is not ProblemKind.DAMAGED
                )
                where = f"{path.name} {problem.where}"
                self._problems.append(dataclasses.replace(problem, where=where))
            add(block)

    def kernels(self, block: RowBlock) -> None:
        """Add rows of ``kernel_trace.csv``."""
        self._add_kernels(block, lambda name, block: _triples(block, name))

    def counted_kernels(self, block: RowBlock) -> None:
        """Add each dispatch of ``counter_collection.csv`` once; the file has one row per
        counter."""
        first = []
        for index, number in enumerate(block.texts("Dispatch_Id")):
            if number not in self._seen:
                self._seen.add(number)
                first.append(index)
        self._add_kernels(
            chosen_rows(block, first),
            lambda name, block: [(max(0, n), 1, 1) for n in block.integers(name)],
        )

    def _add_kernels(self, block: RowBlock, sizes: Callable[[str, RowBlock], Triples]) -> None:
        start, duration = self._gpu_times(block)
        self._gpu.add(
            gpu_rows(
                start,
                duration,
                self._numbered([kernel_name(name) for name in block.texts("Kernel_Name")]),
                GpuKind.KERNEL,
                device=self._devices(block.texts("Agent_Id")),
                stream=self._streams(block),
                correlation=integers(block.integers("Correlation_Id")),
                work_items=sizes("Grid_Size", block),
                block=sizes("Workgroup_Size", block),
            )
        )

    def copies(self, block: RowBlock) -> None:
        """Add rows of ``memory_copy_trace.csv``."""
        start, duration = self._gpu_times(block)
        target = self._devices(block.texts("Destination_Agent_Id"))
        source = self._devices(block.texts("Source_Agent_Id"))
        self._gpu.add(
            gpu_rows(
                start,
                duration,
                self._numbered(block.texts("Direction")),
                GpuKind.MEMCPY,
                device=[t if t >= 0 else s for t, s in zip(target, source, strict=True)],
                stream=self._streams(block),
                correlation=integers(block.integers("Correlation_Id")),
            )
        )

    def host(self, kind: HostKind, block: RowBlock) -> None:
        """Add rows of a table of :data:`_HOST`."""
        block, start, duration = self._timed(block)
        name = self._numbered(block.texts("Function"))
        correlation = integers(block.integers("Correlation_Id"))
        self._add_host(kind, start, duration, name, self._thread(block), correlation)

    @staticmethod
    def _gpu_times(block: RowBlock) -> tuple[Int64, Int64]:
        """Start and duration in ns; both are 0 for work without a usable time."""
        start = integers(block.integers("Start_Timestamp"))
        end = integers(block.integers("End_Timestamp"))
        return usable_times(start, end)

    def _timed(self, block: RowBlock) -> tuple[RowBlock, Int64, Int64]:
        """The rows that have a time, with start and duration in ns."""
        start = integers(block.integers("Start_Timestamp"))
        end = integers(block.integers("End_Timestamp"))
        good = np.flatnonzero((start >= 0) & (end >= start) & (end < LATEST_NS))
        self._no_time += len(start) - len(good)
        return chosen_rows(block, good.tolist()), start[good], (end - start)[good]

    def _thread(self, block: RowBlock) -> Int32:
        return self._on(zip(block.texts("Process_Id"), block.texts("Thread_Id"), strict=True))

    def _devices(self, texts: list[str]) -> list[int]:
        distinct = {text: self._device(text) for text in set(texts)}
        return [distinct[text] for text in texts]

    def _device(self, text: str) -> int:
        number = agent_number(text)
        if text.startswith("GPU"):
            return number
        known = int(self._agents.numbers([number])[0])
        # Without agent_info.csv the agent's own number is the best available name.
        return known if self._agents.products() else number

    @staticmethod
    def _streams(block: RowBlock) -> list[int]:
        return block.integers("Stream_Id" if "Stream_Id" in block.columns else "Queue_Id")

    def rows(self) -> TraceRows:
        """All collected rows."""
        return self._trace_rows("rocprofv3-csv")


def _agents(path: Path | None) -> Agents:
    agents = Agents()
    for block in blocks(path) if path is not None else ():
        nodes = block.integers("Node_Id")
        kinds = block.texts("Agent_Type")
        products = block.texts("Product_Name")
        names = block.texts("Name")
        for node, kind, product, name in zip(nodes, kinds, products, names, strict=True):
            agents.add(node, is_gpu=kind == "GPU", index=None, product=product or name)
    return agents


def _triples(block: RowBlock, name: str) -> list[tuple[int, int, int]]:
    x, y, z = (block.integers(f"{name}_{axis}") for axis in _XYZ)
    return [(max(0, a), max(0, b), max(0, c)) for a, b, c in zip(x, y, z, strict=True)]
