"""Synthetic launches for tests of the diagnosis: counters of a GPU in which nothing stands out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gemmetry.counters.facts import MEMORY, REASONS, SM, SUFFIX, TOTAL, metric_of
from gemmetry.formats.counters.launches import LaunchInfo, LaunchTable, ProfiledLaunch

SMS = 100

UNITS = {
    "sm__pipe_tensor_cycles_active": 0.0, "sm__pipe_fma_cycles_active": 10.0,
    "sm__pipe_alu_cycles_active": 5.0, "sm__inst_executed_pipe_xu": 1.0,
    "sm__inst_executed_pipe_lsu": 8.0, "sm__issue_active": 20.0, "l1tex__lsuin_requests": 8.0,
    "l1tex__data_pipe_lsu_wavefronts": 15.0, "lts__t_sectors": 12.0, "dram__cycles_active": 11.0,
}  # fmt: skip
"""Percent of their peak that units are busy."""
_SM = [name for name in UNITS if name.startswith("sm__")] + ["l1tex__lsuin_requests"]


def metrics(
    units: Mapping[str, float] = {}, stalls: Mapping[str, float] = {}, **others: float
) -> dict[str, float]:
    """A launch of 1000 blocks in ten whole waves. Its warps wait for global memory for 60 % of
    their time. `units` (percent) and `stalls` (shares of the warps' time) replace its own.

    Args:
        others: further metrics, with ``.`` written as ``___``; NaN removes one.
    """
    busy = {**UNITS, **units}
    sm = [value for name, value in busy.items() if name.startswith("sm__") or "lsuin" in name]
    memory = [value for name, value in busy.items() if not name.startswith("sm__")]
    shares = {**dict.fromkeys(REASONS, 0.0), "long_scoreboard": 0.6, "wait": 0.15, **stalls}
    shares["selected"] = shares["not_selected"] = (
        1 - sum(value for name, value in shares.items() if "selected" not in name)
    ) / 2
    found = {
        **{name + SUFFIX: value for name, value in busy.items()}, SM: max(sm), MEMORY: max(memory),
        **{metric_of(name): 20 * share for name, share in shares.items()}, TOTAL: 20.0,
        "gpu__time_duration.sum": 100_000.0, "launch__grid_size": 10.0 * SMS,
        "device__attribute_multiprocessor_count": float(SMS),
        "launch__waves_per_multiprocessor": 10.0, "sm__cycles_active.avg": 98_000.0,
        "sm__cycles_active.max": 99_000.0, "sm__cycles_elapsed.max": 100_000.0,
        "smsp__issue_active.avg.per_cycle_active": 0.2,
        "smsp__thread_inst_executed_per_inst_executed.ratio": 32.0,
        "sm__maximum_warps_per_active_cycle_pct": 100.0,
        "sm__warps_active.avg.pct_of_peak_sustained_active": 95.0,
        "smsp__inst_executed_op_tma_ld.sum": 0.0,
        "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum": 0.0,
    }  # fmt: skip
    found.update({name.replace("___", "."): value for name, value in others.items()})
    return found


def launch(
    values: Mapping[str, float], name: str = "my_kernel", *, tool: Any = "ncu", **info: Any
) -> ProfiledLaunch:
    """A launch with these metrics."""
    table = LaunchTable(
        tool=tool,
        infos=[LaunchInfo(name=name, **{"capability": "9.0", "device": "NVIDIA H200", **info})],
        values={key: np.array([value]) for key, value in values.items()},
        units=dict.fromkeys(values, ""),
        texts={"breakdown:" + SM: [",".join(one + SUFFIX for one in _SM)]},
    )
    return table[0]
