"""The units of a GPU that can work at their limit, and the metrics that show how busy they are.

The names are those of the breakdowns of ``sm__throughput`` and ``gpu__compute_memory_throughput``,
as reports of compute capabilities 7.5, 8.6, 9.0 and 10.0 list them. Each is used as
``<name>.avg.pct_of_peak_sustained_elapsed``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SUFFIX = ".avg.pct_of_peak_sustained_elapsed"

SM = "sm__throughput" + SUFFIX
"""The busiest unit of a multiprocessor."""
MEMORY = "gpu__compute_memory_throughput" + SUFFIX
"""The busiest unit of the memory system."""
BREAKDOWN = "breakdown:"
"""In front of the name of a metric: the names of those whose maximum it is."""


SECTION_MARKS: Mapping[str, tuple[str, ...]] = {
    "SpeedOfLight": (SM, MEMORY, "gpu__dram_throughput" + SUFFIX, "lts__throughput" + SUFFIX),
    "ComputeWorkloadAnalysis": (
        "sm__inst_executed.avg.per_cycle_active", "sm__inst_issued.avg.per_cycle_active",
    ),
    "MemoryWorkloadAnalysis": ("l1tex__t_sector_hit_rate.pct", "lts__t_sector_hit_rate.pct"),
    "WarpStateStats": (
        "smsp__average_warp_latency_per_inst_issued.ratio",
        "smsp__average_warps_active_per_inst_executed.ratio",
    ),
}  # fmt: skip
"""Section of Nsight Compute -> metrics by which a report shows that it was collected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Something with a maximum rate."""

    id: str
    verdict: str
    """The verdict where it is at its limit."""
    name: str
    metrics: tuple[str, ...]
    """The largest of them counts."""
    parents: tuple[str, ...]
    """Metrics that cannot be below it; none: it is not part of them."""
    section: str
    """The section of Nsight Compute that collects it."""
    rank: int = 1
    """0: its limit is the verdict whatever else is busy. 2: only if no other unit is at its
    limit."""
    lead: float = 0.0
    """Percentage points by which another unit of the rank has to be busier to come before it."""
    is_key: bool = True
    """Whether a verdict about units requires that it is known."""
    queues: tuple[str, ...] = ()
    """Stall reasons of warps that find its queue full."""
    waits: tuple[str, ...] = ()
    """Stall reasons of warps that wait for its results: longer where it is busy, but there without
    that, too."""
    remedy: str = ""


_SM, _MEMORY, _BOTH = (SM,), (MEMORY,), (SM, MEMORY)
_LOADED = ("long_scoreboard", "tma")

UNITS: Mapping[str, Unit] = {unit.id: unit for unit in (
    Unit(
        id="tensor", verdict="tensor_roof", name="the tensor pipe", parents=_SM, rank=0,
        section="ComputeWorkloadAnalysis",
        metrics=(
            "sm__pipe_tensor_cycles_active", "sm__pipe_tensor_op_hmma_cycles_active",
            "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active",
            "sm__pipe_tensor_op_imma_cycles_active", "sm__pipe_tensor_op_dmma_cycles_active",
            "sm__pipe_tensor_subpipe_hmma_cycles_active",
            "sm__pipe_tensor_subpipe_imma_cycles_active",
            "sm__pipe_tensor_subpipe_dmma_cycles_active", "sm__pipe_tc_cycles_active",
            "sm__mem_tensor_cycles_active", "sm__inst_executed_pipe_tensor",
        ),
        queues=("gmma", "math_pipe_throttle"),
        remedy="Only fewer operations, a narrower format or a higher clock make it faster.",
    ),
    Unit(
        id="fma", verdict="fma_roof", name="the FP32 pipe", parents=_SM,
        section="ComputeWorkloadAnalysis",
        metrics=("sm__pipe_fma_cycles_active", "sm__pipe_fmaheavy_cycles_active",
                 "sm__inst_executed_pipe_fma"),
        queues=("math_pipe_throttle",),
        remedy="Use tensor cores (TF32, BF16), packed instructions, or fewer operations.",
    ),
    Unit(
        id="fp64", verdict="fp64_roof", name="the FP64 pipe", parents=_SM, is_key=False,
        section="ComputeWorkloadAnalysis",
        metrics=("sm__pipe_fp64_cycles_active", "sm__inst_executed_pipe_fp64"),
        queues=("math_pipe_throttle",),
        remedy="Use FP64 tensor cores where the GPU has them, or FP32 where it is accurate enough.",
    ),
    Unit(
        id="fp16", verdict="fp16_roof", name="the FP16 pipe", parents=_SM, is_key=False,
        section="ComputeWorkloadAnalysis",
        metrics=("sm__inst_executed_pipe_fp16", "sm__pipe_fp16_cycles_active"),
        queues=("math_pipe_throttle",),
        remedy="Use tensor cores.",
    ),
    Unit(
        id="alu", verdict="alu_roof", name="the integer and logic pipe", parents=_SM,
        section="ComputeWorkloadAnalysis", is_key=False,
        metrics=("sm__pipe_alu_cycles_active", "sm__inst_executed_pipe_alu"),
        queues=("math_pipe_throttle",),
        remedy="Compute indices and convert formats less often: unroll, hoist them out of loops, "
        "use wider accesses.",
    ),
    Unit(
        id="xu", verdict="sfu_roof", name="the special-function and conversion pipe", parents=_SM,
        section="ComputeWorkloadAnalysis",
        metrics=("sm__inst_executed_pipe_xu", "sm__pipe_xu_cycles_active"),
        queues=("math_pipe_throttle", "mio_throttle"), waits=("short_scoreboard",),
        remedy="Replace exp, sin, rsqrt and conversions by polynomials on the FP32 pipe, or "
        "compute fewer of them.",
    ),
    Unit(
        id="lsu", verdict="lsu_requests", name="the load/store unit (requests)", parents=_BOTH,
        # A request passes the data stage of L1 at least once. Where both are equally busy, every
        # request passes once, and only fewer requests help.
        section="MemoryWorkloadAnalysis", lead=1.0,
        metrics=("sm__inst_executed_pipe_lsu", "l1tex__lsuin_requests"),
        queues=("lg_throttle", "mio_throttle"), waits=("long_scoreboard", "short_scoreboard"),
        remedy="Load wider (16 bytes per thread), reuse values in registers, and tile through "
        "shared memory.",
    ),
    Unit(
        id="texture", verdict="texture_roof", name="the texture unit", parents=_BOTH, is_key=False,
        section="MemoryWorkloadAnalysis",
        metrics=("sm__inst_executed_pipe_tex", "l1tex__f_wavefronts",
                 "l1tex__texin_sm2tex_req_cycles_active", "l1tex__data_pipe_tex_wavefronts",
                 "l1tex__tex_writeback_active"),
        queues=("tex_throttle",), waits=("long_scoreboard",),
        remedy="Load through global or shared memory instead.",
    ),
    Unit(
        id="mio", verdict="mio_roof", name="the queue of memory and special instructions",
        parents=_SM, is_key=False, section="ComputeWorkloadAnalysis",
        metrics=("sm__mio_inst_issued", "sm__mio_pq_read_cycles_active",
                 "sm__mio_pq_write_cycles_active", "sm__mio2rf_writeback_active"),
        queues=("mio_throttle",), waits=("short_scoreboard",),
        remedy="Use fewer and wider accesses of shared memory.",
    ),
    Unit(
        id="tma", verdict="tma_roof", name="the tensor memory accelerator", parents=_BOTH,
        is_key=False, section="MemoryWorkloadAnalysis_Tables",
        metrics=("sm__pipe_tma_cycles_active", "l1tex__tmain_requests"),
        waits=("tma", "long_scoreboard"),
        remedy="Copy larger boxes per instruction.",
    ),
    Unit(
        id="issue", verdict="instruction_issue", name="instruction issue", parents=_SM, rank=2,
        section="ComputeWorkloadAnalysis",
        metrics=("sm__issue_active", "sm__inst_executed"),
        remedy="Execute fewer instructions: vectorise, unroll, compute indices less often.",
    ),
    Unit(
        id="dram", verdict="dram_roof", name="device memory", parents=_MEMORY,
        section="SpeedOfLight",
        metrics=("dram__cycles_active", "gpu__dram_throughput", "fbpa__dram_sectors",
                 "dram__throughput"),
        queues=("lg_throttle", "drain"), waits=_LOADED,
        remedy="Move fewer bytes: reuse the cache, fuse kernels, or use narrower formats.",
    ),
    Unit(
        id="l2", verdict="l2_roof", name="the L2 cache", parents=_MEMORY, section="SpeedOfLight",
        metrics=("lts__t_sectors", "lts__t_tag_requests", "lts__d_sectors",
                 "lts__d_sectors_fill_device", "lts__lts2xbar_cycles_active",
                 "lts__xbar2lts_cycles_active", "lts__throughput",
                 "l1tex__m_xbar2l1tex_read_sectors", "l1tex__m_l1tex2xbar_req_cycles_active"),
        queues=("lg_throttle", "drain"), waits=_LOADED,
        remedy="Use larger tiles, clusters with multicast, or keep data in shared memory.",
    ),
    Unit(
        id="atomics", verdict="atomics", name="the part of the L2 cache for atomic operations",
        parents=_MEMORY, is_key=False, section="MemoryWorkloadAnalysis_Tables",
        metrics=("lts__d_atomic_input_cycles_active",),
        queues=("lg_throttle", "drain"), waits=_LOADED,
        remedy="Reduce within the block first, and spread atomics over more addresses.",
    ),
    Unit(
        id="l1", verdict="l1_roof", name="the L1 cache and shared memory", parents=_MEMORY,
        section="MemoryWorkloadAnalysis",
        metrics=("l1tex__data_pipe_lsu_wavefronts", "l1tex__data_bank_reads",
                 "l1tex__data_bank_writes", "l1tex__lsu_writeback_active"),
        queues=("lg_throttle", "mio_throttle"), waits=("long_scoreboard", "short_scoreboard"),
        remedy="Keep more of each tile in registers, and load wider.",
    ),
)}  # fmt: skip
"""In the order in which the document of a diagnosis lists them."""
