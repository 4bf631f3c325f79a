"""What the counters of the severe variants should show on an H200, written down before any run.

    python benchmarks/bottlenecks/predicted_counters.py planted.csv

compares them with what Nsight Compute recorded. Where they differ, the kernel is not limited by
what was planted in it, or the arithmetic at the top of its source is wrong, and its diagnosis
proves nothing.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmetry.counters.collector import read_counters
from gemmetry.formats.counters.launches import ProfiledLaunch

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Range:
    """Where a metric, or the quotient of two (``a / b``), should lie; both ends included."""

    metric: str
    low: float
    high: float = math.inf

    def measured(self, launch: ProfiledLaunch) -> float | None:
        """The metric or quotient; None where the report lacks a metric, or divides by zero."""
        values = [launch.value(name) for name in self.metric.split(" / ")]
        if len(values) == 1:
            return values[0]
        above, below = values
        return above / below if above is not None and below else None


def _at_most(metric: str, high: float) -> Range:
    return Range(metric, 0, high)


def _stall_share(reason: str, low: float) -> Range:
    return Range(
        f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
        " / smsp__average_warp_latency_per_inst_issued.ratio",
        low,
        1,
    )


_ELAPSED, _ACTIVE = ".pct_of_peak_sustained_elapsed", ".pct_of_peak_sustained_active"
_SHARED = f"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum{_ELAPSED}"
_CONFLICTS = (
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
    " / l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
)
_SECTORS = (
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
    " / l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
)
_LSU = f"l1tex__lsuin_requests.avg{_ELAPSED}"
_L2 = f"lts__throughput.avg{_ELAPSED}"
_DRAM = f"gpu__dram_throughput.avg{_ELAPSED}"
_ISSUE = f"smsp__issue_active.avg{_ACTIVE}"
_FMA = f"sm__pipe_fma_cycles_active.avg{_ACTIVE}"
_ALU = f"sm__pipe_alu_cycles_active.avg{_ACTIVE}"
_OCCUPANCY = "sm__maximum_warps_per_active_cycle_pct"
_LANES = "smsp__thread_inst_executed_per_inst_executed.ratio"
_SM_TIME = "sm__cycles_active.avg / gpc__cycles_elapsed.max"

PREDICTED: Mapping[str, Sequence[Range]] = {
    "bank_conflicts": (Range(_SHARED, 85), Range(_CONFLICTS, 0.95, 0.98)),
    "shared_memory": (Range(_SHARED, 80), _at_most(_CONFLICTS, 0.05), _at_most(_LSU, 35)),
    "uncoalesced": (Range(_SECTORS, 31, 32), Range(_L2, 50), _at_most(_DRAM, 20)),
    "occupancy_registers": (
        Range(_OCCUPANCY, 12, 13),
        Range("launch__occupancy_limit_registers", 2, 2),
        _stall_share("long_scoreboard", 0.7),
        _at_most(_ISSUE, 10),
        _at_most(_L2, 30),
    ),
    "occupancy_shared": (
        Range(_OCCUPANCY, 6, 7),
        Range("launch__occupancy_limit_shared_mem", 1, 1),
        _stall_share("long_scoreboard", 0.7),
        _at_most(_ISSUE, 10),
        _at_most(_L2, 20),
    ),
    "barrier_imbalance": (_stall_share("barrier", 0.8), _at_most(_ISSUE, 25)),
    "local_memory": (
        Range("l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum", 1e7),
        Range(_L2, 70),  # stores of spilled values pass L1
        _at_most(_DRAM, 20),
    ),
    "divergence": (_at_most(_LANES, 3), Range(_ISSUE, 70), _at_most(_FMA, 75)),
    "instruction_issue": (Range(_ISSUE, 90), _at_most(_FMA, 75), _at_most(_ALU, 75)),
    "fma": (Range(_FMA, 90), _at_most(_DRAM, 5)),
    "special_functions": (
        Range(f"sm__inst_executed_pipe_xu.avg{_ACTIVE}", 85),
        _at_most(_FMA, 20),
    ),
    "dram": (Range(_DRAM, 80), Range("dram__bytes_read.sum", 256 * MIB, 280 * MIB)),
    "l2": (
        Range(_L2, 60),
        _at_most(_DRAM, 10),
        _at_most("l1tex__t_sector_hit_rate.pct", 5),
    ),
    "tail_wave": (
        Range("launch__waves_per_multiprocessor", 1.0, 1.02),
        Range(_SM_TIME, 0.48, 0.55),
        Range(f"sm__pipe_fma_cycles_active.avg{_ELAPSED}", 45, 55),
    ),
    "small_grid": (
        Range("launch__grid_size", 1, 1),
        _at_most(_SM_TIME, 0.02),
        _at_most(_LANES, 1.5),
    ),
    "atomics": (
        Range("l1tex__t_requests_pipe_lsu_mem_global_op_red.sum", 2**17, 2**17),
        _at_most(_ISSUE, 10),
        _at_most(_DRAM, 10),
    ),
    "naive_gemm": (
        Range(_LSU, 75),
        Range(f"sm__inst_executed_pipe_lsu.avg{_ELAPSED}", 75),
        _at_most(_FMA, 30),
    ),
    "pointer_chase": (
        Range(_OCCUPANCY, 100, 100),
        _stall_share("long_scoreboard", 0.85),
        _at_most(_DRAM, 60),
        _at_most(_ISSUE, 10),
    ),
}


def compare(launches: Sequence[ProfiledLaunch]) -> Iterator[tuple[str, Range, float | None, bool]]:
    """Kernel, prediction, what was measured, and whether it is within the range (never where
    nothing was measured)."""
    for launch in launches:
        kernel, _, variant = launch.name.partition("(")[0].rpartition("_")
        if variant == "severe":
            for predicted in PREDICTED.get(kernel, ()):
                value = predicted.measured(launch)
                right = value is not None and predicted.low <= value <= predicted.high
                yield kernel, predicted, value, right


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the comparison; exit status 1 where a prediction was wrong or nothing was compared."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+", help="raw page CSV or .ncu-rep")
    options = parser.parse_args(arguments)
    launches = [launch for path in options.files for launch in read_counters(path)]
    rows = list(compare(launches))
    for kernel, predicted, value, right in rows:
        short = predicted.metric.replace(_ELAPSED, "").replace(_ACTIVE, "")
        shown = "missing" if value is None else f"{value:.4g}"
        span = f"{predicted.low:.4g} … {predicted.high:.4g}"
        print(f"{'' if right else 'WRONG':5} {kernel:20} {shown:>10} {span:>20}  {short}")
    wrong = sum(not right for *_, right in rows)
    absent = sorted(set(PREDICTED) - {kernel for kernel, *_ in rows})
    if absent:
        print("Not in these files:", ", ".join(absent))
    print(f"{len(rows) - wrong} of {len(rows)} predictions hold.")
    sys.exit(1 if wrong or not rows else 0)


if __name__ == "__main__":
    main()
