"""A stand-in for rocprofv3: runs the application once per job and writes files as rocprofv3 does.

As a module it writes the files of single processes, in the layouts and column sets of several
versions. As a program (``python rocprofv3.py OPTIONS -- APPLICATION``) it takes the options that
``gemmetry sweep run`` gives, and writes files of two ranks. They launch three kernels, or
:data:`GEMM` as often as the environment variable ``FAKE_LAUNCHES`` states.
"""

from __future__ import annotations

import csv
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

GEMM = "Cijk_Ailk_Bljk_BBS_BH_Bias_MT256x256x64_MI16x16x1_SN_LDSB1"
OTHER = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor>(int)"

UNITS, XCCS, WAVES = 304, 8, 32
"""Of an MI300X."""

GPU = {
    "type": 2, "name": "gfx942", "product_name": "AMD Instinct MI300X", "cu_count": UNITS,
    "simd_count": 4 * UNITS, "num_xcc": XCCS, "max_waves_per_cu": WAVES,
}  # fmt: skip

COUNTED = (
    "Correlation_Id", "Dispatch_Id", "Agent_Id", "Queue_Id", "Process_Id", "Thread_Id",
    "Grid_Size", "Kernel_Id", "Kernel_Name", "Workgroup_Size", "LDS_Block_Size", "Scratch_Size",
    "VGPR_Count", "Accum_VGPR_Count", "SGPR_Count", "Counter_Name", "Counter_Value",
    "Start_Timestamp", "End_Timestamp",
)  # fmt: skip
TRACED = (
    "Kind", "Agent_Id", "Queue_Id", "Stream_Id", "Thread_Id", "Dispatch_Id", "Kernel_Id",
    "Kernel_Name", "Correlation_Id", "Start_Timestamp", "End_Timestamp", "LDS_Block_Size",
    "Scratch_Size", "VGPR_Count", "Accum_VGPR_Count", "SGPR_Count", "Workgroup_Size_X",
    "Workgroup_Size_Y", "Workgroup_Size_Z", "Grid_Size_X", "Grid_Size_Y", "Grid_Size_Z",
)  # fmt: skip

CYCLES = 100_000
"""Of a dispatch, on each XCC."""

VALUES: Mapping[str, float] = {
    "GRBM_GUI_ACTIVE": CYCLES * XCCS, "SQ_BUSY_CU_CYCLES": 0.8 * CYCLES * UNITS / 4,
    "SQ_VALU_MFMA_BUSY_CYCLES": 0.6 * CYCLES * 4 * UNITS,
    "SQ_WAVE_CYCLES": 0.25 * CYCLES * UNITS * WAVES / 4, "SQ_WAVES": 4096,
    "SQ_INSTS_VALU_MFMA_MOPS_BF16": 2_000_000,
}  # fmt: skip
"""Counters of a dispatch: 80 % of the CUs' time, 60 % of the matrix units', 25 % occupancy, and
1.024 GFLOP."""


def write_csv(
    folder: Path,
    prefix: str,
    pid: int,
    counters: Sequence[str],
    *,
    device: int = 0,
    kernels: Iterable[str] = (GEMM, OTHER, GEMM),
    values: Mapping[str, float] = VALUES,
) -> None:
    """Write the CSV files of one process; without counters, those of a trace."""
    folder.mkdir(parents=True, exist_ok=True)
    agents = [{"Node_Id": 0, "Agent_Type": "CPU"}]
    agents += [{"Node_Id": 1 + n, "Agent_Type": "GPU", **_capitalised(GPU)} for n in range(8)]
    _write(folder / f"{prefix}_agent_info.csv", list(agents[-1]), agents)
    rows = []
    for number, kernel in enumerate(kernels, 1):
        start = 1000 * number
        row: dict[str, Any] = {
            "Kind": "KERNEL_DISPATCH", "Correlation_Id": number, "Dispatch_Id": number,
            "Agent_Id": f"Agent {1 + device}", "Queue_Id": 1, "Stream_Id": 1, "Process_Id": pid,
            "Thread_Id": pid, "Kernel_Id": 7, "Kernel_Name": f"{kernel}.kd", "Grid_Size": 65536,
            "Workgroup_Size": 256, "LDS_Block_Size": 65536, "Scratch_Size": 0, "VGPR_Count": 128,
            "Accum_VGPR_Count": 64, "SGPR_Count": 96, "Start_Timestamp": start,
            "End_Timestamp": start + 500, "Workgroup_Size_X": 256, "Workgroup_Size_Y": 1,
            "Workgroup_Size_Z": 1, "Grid_Size_X": 65536, "Grid_Size_Y": 1, "Grid_Size_Z": 1,
        }  # fmt: skip
        counted = [{"Counter_Name": name, "Counter_Value": f"{values[name]:.8e}"}
                   for name in counters if name in values]  # fmt: skip
        rows += [{**row, **one} for one in counted] if counters else [row]
    table, columns = ("counter_collection", COUNTED) if counters else ("kernel_trace", TRACED)
    if rows:  # Without a counter that the GPU has, there is no file.
        _write(folder / f"{prefix}_{table}.csv", columns, rows)


def results_json(
    pid: int, counters: Sequence[str], *, rank: int | None = None, command: str = "train.py"
) -> dict[str, Any]:
    """A process of ``results.json`` with one dispatch of :data:`GEMM`; each counter has one record
    per XCC."""
    info = {
        "agent_id": {"handle": 50}, "kernel_id": 7, "dispatch_id": 1, "private_segment_size": 0,
        "group_segment_size": 65000, "workgroup_size": {"x": 256, "y": 1, "z": 1},
        "grid_size": {"x": 65536, "y": 1, "z": 1},
    }  # fmt: skip
    dispatch = {"dispatch_info": info, "start_timestamp": 1000, "end_timestamp": 1500}
    records = [{"counter_id": {"handle": number}, "value": VALUES[name] / XCCS}
               for number, name in enumerate(counters) for _ in range(XCCS)]  # fmt: skip
    counted = [{"dispatch_data": dispatch, "records": records, "thread_id": pid,
                "arch_vgpr_count": 128, "sgpr_count": 96, "lds_block_size_v": 65536}]  # fmt: skip
    environment = {} if rank is None else {"environment": {"RANK": str(rank), "WORLD_SIZE": "8"}}
    return {
        "metadata": {"pid": pid, "node": {"hostname": "node-7"}, "command": command.split(),
                     **environment},
        "agents": [{"id": {"handle": 40}, "type": 1}, {"id": {"handle": 50}, **GPU}],
        "counters": [{"id": {"handle": n}, "name": name} for n, name in enumerate(counters)],
        "strings": {"counters": {"dimension_ids": []}},
        "kernel_symbols": [{"kernel_id": 7, "formatted_kernel_name": GEMM,
                            "arch_vgpr_count": 128, "accum_vgpr_count": 64, "sgpr_count": 96}],
        "callback_records": {"counter_collection": counted if counters else []},
        "buffer_records": {"kernel_dispatch": [dispatch]},
    }  # fmt: skip


def write_json(path: Path, *processes: dict[str, Any]) -> None:
    """A ``results.json`` of these processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"rocprofiler-sdk-tool": list(processes)}))


def write_database(path: Path, pid: int, counters: Sequence[str]) -> None:
    """A rocpd database of the process of :func:`results_json`; the columns that are read, of
    rocprofiler-sdk's rocpd_tables.sql, schema version 3."""
    path.parent.mkdir(parents=True, exist_ok=True)
    dispatch: dict[str, Any] = {
        "id": 1, "pid": pid, "tid": pid, "agent_id": 50, "kernel_id": 7, "dispatch_id": 1,
        "queue_id": 1, "stream_id": 1, "start": 1000, "end": 1500, "private_segment_size": 0,
        "group_segment_size": 65536, "workgroup_size_x": 256, "workgroup_size_y": 1,
        "workgroup_size_z": 1, "grid_size_x": 65536, "grid_size_y": 1, "grid_size_z": 1,
        "event_id": 1,
    }  # fmt: skip
    tables: dict[str, list[dict[str, Any]]] = {
        "rocpd_info_node": [{"id": 1, "hostname": "node-7"}],
        "rocpd_info_process": [{"id": pid, "pid": pid, "command": "", "environment": "{}"}],
        "rocpd_info_agent": [{"id": 50, "type": "GPU", "type_index": 0, "name": GPU["name"],
                              "product_name": GPU["product_name"], "extdata": json.dumps(GPU)}],
        "rocpd_info_kernel_symbol": [{"id": 7, "kernel_name": GEMM, "display_name": GEMM,
                                      "sgpr_count": 96, "arch_vgpr_count": 128,
                                      "accum_vgpr_count": 64}],
        "rocpd_event": [{"id": 1, "stack_id": 1}],
        "rocpd_kernel_dispatch": [dispatch],
        "rocpd_info_pmc": [{"id": n, "name": name} for n, name in enumerate(counters)],
        "rocpd_pmc_event": [{"id": n, "event_id": 1, "pmc_id": n // XCCS,
                             "value": VALUES[counters[n // XCCS]] / XCCS}
                            for n in range(XCCS * len(counters))],
    }  # fmt: skip
    with closing(sqlite3.connect(path)) as database:
        for name, rows in tables.items():
            columns = list(rows[0])
            database.execute(f"CREATE TABLE {name}_a1 ({', '.join(map(_quoted, columns))})")
            marks = ", ".join("?" for _ in columns)
            database.executemany(f"INSERT INTO {name}_a1 VALUES ({marks})",
                                 [tuple(row.values()) for row in rows])  # fmt: skip
        database.commit()


def _quoted(name: str) -> str:
    return f'"{name}"'


def _capitalised(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"_".join(part.capitalize() for part in name.split("_")): value
            for name, value in properties.items() if name != "type"}  # fmt: skip


def _write(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", restval=0)
        writer.writeheader()
        writer.writerows(rows)


def _in_range(kernels: Sequence[str], job: Mapping[str, Any]) -> list[str]:
    """Those of the launches that ``kernel_iteration_range`` names, which counts each kernel's own
    from 1."""
    first, last = map(int, job.get("kernel_iteration_range", "[1-1000000]")[1:-1].split("-"))
    return [
        kernel for number, kernel in enumerate(kernels)
        if first <= kernels[: number + 1].count(kernel) <= last
    ]  # fmt: skip


def main(words: list[str]) -> int:
    """Do what rocprofv3's command line states, as far as this project uses it."""
    split = words.index("--")
    options, application = words[:split], words[split + 1 :]
    given = dict(pairwise(options))
    jobs: list[dict[str, Any]] = [{}]
    if "-i" in given:
        jobs = yaml.safe_load(Path(given["-i"]).read_text())["jobs"]
    for number, job in enumerate(jobs, 1):
        status = subprocess.run(application, check=False).returncode
        if status:
            return status
        name = job.get("output_file", given.get("-o", "%hostname%/%pid%"))
        # As in rocprofv3.py: a single job without counters has no folder of its own.
        inside = f"pass_{number}" if len(jobs) > 1 or job.get("pmc") else ""
        pattern = re.compile(job.get("kernel_include_regex", ""))
        launches = int(os.environ.get("FAKE_LAUNCHES", "0"))
        kernels = [GEMM] * launches or [GEMM, OTHER, GEMM]
        kernels = [kernel for kernel in _in_range(kernels, job) if pattern.search(kernel)]
        for rank in range(2):
            pid = 10 * os.getpid() + 1000 * number + 1 - rank
            filled = name.replace("%hostname%", "node-7").replace("%pid%", str(pid))
            filled = filled.replace("%env{RANK}%", str(rank))
            path = Path(given["-d"], inside, filled)
            write_csv(path.parent, path.name, pid, job.get("pmc", ()), device=rank, kernels=kernels)
    return 0


def install(folder: Path) -> Path:
    """Write a program ``rocprofv3`` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "rocprofv3"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "$@"\n')
    program.chmod(0o755)
    return program


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
