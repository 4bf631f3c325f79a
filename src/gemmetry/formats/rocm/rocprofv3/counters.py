"""Reads rocprofv3's kernel counters and statistics (CSV)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from gemmetry.formats.events import MISSING
from gemmetry.formats.rocm.counted import (
    CountedDispatch,
    CountedProcess,
    counted_gpu,
    grid_and_block,
)
from gemmetry.formats.rocm.rocprofv3.tables import (
    RowBlock,
    agent_number,
    blocks,
    chosen_rows,
    siblings,
)
from gemmetry.formats.rocm.rows import kernel_name

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
    agents = _Agents(files.get("agent_info"))
    found = CountedProcess(gpus=agents.gpus)
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


class _Agents:
    """Numbers and properties of the GPUs in ``agent_info.csv``."""

    def __init__(self, path: Path | None) -> None:
        self.gpus = {}
        self._numbers: dict[int, int] = {}
        for block in blocks(path) if path is not None else ():
            by_name = {name.lower(): column for name, column in block.columns.items()}
            for row, kind in enumerate(block.texts("Agent_Type")):
                if kind != "GPU":
                    continue
                number = len(self._numbers)
                self._numbers[block.integers("Node_Id")[row]] = number
                properties = {name: column[row] for name, column in by_name.items()}
                gpu = counted_gpu(properties.get)
                if gpu is not None:
                    self.gpus[number] = gpu

    def number(self, text: str) -> int:
        """The GPU's number, of an agent such as ``Agent 4`` or ``GPU 0``."""
        agent = agent_number(text)
        # Without agent_info.csv the agent's own number is the best available name.
        if text.startswith("GPU") or not self._numbers:
            return agent
        return self._numbers.get(agent, MISSING)


def _add(dispatches: dict[_Key, CountedDispatch], block: RowBlock, agents: _Agents) -> None:
    """Add the rows of a block: one for each counter of a dispatch, or one for each dispatch."""
    kernels = {name: kernel_name(name) for name in set(block.texts("Kernel_Name"))}
    devices = {text: agents.number(text) for text in set(block.texts("Agent_Id"))}
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
