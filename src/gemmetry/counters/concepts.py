"""The concepts of the catalogue: what each means, and the metrics that show it.

Sources are the lists of ``nvidia_metrics.txt.gz`` for the existence of each metric, a full report
of a matrix product on an H200 (Nsight Compute 2025.3.1) for what each counts, and for AMD
``counter_defs.yaml`` of rocprofiler-sdk and the analysis configurations of rocprofiler-compute
(ROCm/rocm-systems, commit 1b1610fc).
"""

from __future__ import annotations

from gemmetry.counters.catalogue import Concept

_SOL, _COMPUTE = "SpeedOfLight", "ComputeWorkloadAnalysis"
_MEMORY, _TABLES = "MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Tables"
_SCHEDULER, _WARPS = "SchedulerStats", "WarpStateStats"
_SOURCE, _OCCUPANCY, _LAUNCH = "SourceCounters", "Occupancy", "LaunchStats"
_TENSOR = "SpeedOfLight_HierarchicalTensorRooflineChart"
_INSTRUCTIONS, _WORK = "InstructionStats", "WorkloadDistribution"

_ELAPSED = "avg.pct_of_peak_sustained_elapsed"
_ACTIVE = "avg.pct_of_peak_sustained_active"
_MOPS = "SQ_INSTS_VALU_MFMA_MOPS_"
_GUI = "GRBM_GUI_ACTIVE / num_xcc"
"""Cycles of a dispatch on AMD: rocprofv3 adds up the XCCs."""

_HARDWARE = "read from the device or the launch by Nsight Compute"
_COUNTED = "compared with the work of a bf16 product of 4096x4096x4096 on an H200"
_ROCM = "counter_defs.yaml of rocprofiler-sdk"

REASONS = (
    "barrier", "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss", "lg_throttle",
    "long_scoreboard", "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction",
    "not_selected", "selected", "short_scoreboard", "sleeping", "tex_throttle", "wait",
)  # fmt: skip
"""Reasons for which a warp does not issue, and the state of issuing (``selected``), as Nsight
Compute's section WarpStateStats has them. ``gmma`` exists on GH100 only, ``imc_miss`` up to it."""


def _is(
    name: str, unit: str, meaning: str, *expressions: str, section: str = "", source: str = ""
) -> Concept:
    return Concept(
        name=name, unit=unit, meaning=meaning, expressions=expressions, section=section,
        source=source,
    )  # fmt: skip


_TIME = (
    _is("duration", "ns", "the time on the GPU", "gpu__time_duration.sum", section=_SOL),
    _is("sm_clock", "hz", "the clock of the SMs while the kernel ran",
        "gpc__cycles_elapsed.avg.per_second", "sm__cycles_elapsed.avg.per_second", section=_SOL),
    _is("sm_clock_max", "hz", "the highest clock of the SMs",
        "1000 * device__attribute_clock_rate", section=_LAUNCH, source=_HARDWARE),
    _is("dram_clock", "hz", "the clock of the memory", "dram__cycles_elapsed.avg.per_second",
        section=_SOL),
    _is("sm_count", "", "the number of SMs, or of compute units",
        "device__attribute_multiprocessor_count", "launch__sm_count", "cu_count",
        section=_LAUNCH, source=_HARDWARE),
    _is("elapsed_cycles", "cycle", "the cycles of the kernel",
        "sm__cycles_elapsed.max", "gpc__cycles_elapsed.max", _GUI, section=_SOL),
    _is("sm_active_cycles", "cycle", "the cycles during which an SM had a warp, on average",
        "sm__cycles_active.avg", "4 * SQ_BUSY_CU_CYCLES / cu_count", section=_SOL),
    _is("sm_active_cycles_min", "cycle", "the cycles of the SM that worked for the shortest time",
        "sm__cycles_active.min", section=_WORK),
    _is("sm_active_cycles_max", "cycle", "the cycles of the SM that worked for the longest time",
        "sm__cycles_active.max", section=_WORK),
    _is("sm_active_percent", "%", "the share of the time during which an SM had a warp",
        "100 * sm__cycles_active.avg / sm__cycles_elapsed.max",
        "100 * sm__cycles_active.avg / gpc__cycles_elapsed.max",
        f"100 * 4 * SQ_BUSY_CU_CYCLES / ({_GUI} * cu_count)", section=_SOL),
    _is("passes", "", "how often the kernel was replayed", "profiler__replayer_passes",
        section=_SOL, source=_HARDWARE),
)  # fmt: skip

_THROUGHPUT = (
    _is("compute_percent", "%", "the busiest part of the SMs, which need not be arithmetic",
        f"sm__throughput.{_ELAPSED}", section=_SOL),
    _is("memory_percent", "%", "the busiest part of all memories, shared memory included",
        f"gpu__compute_memory_throughput.{_ELAPSED}", section=_SOL),
    _is("dram_percent", "%", "the use of the memory's bandwidth",
        f"gpu__dram_throughput.{_ELAPSED}", f"dram__throughput.{_ELAPSED}", section=_SOL),
    _is("l2_percent", "%", "the busiest part of the L2 cache",
        f"lts__throughput.{_ELAPSED}", section=_SOL),
    _is("l1_percent", "%", "the busiest part of L1 and shared memory",
        f"l1tex__throughput.{_ELAPSED}", f"l1tex__throughput.{_ACTIVE}", section=_SOL),
    _is("shared_pipe_percent", "%", "the use of the pipe that moves shared and local data",
        f"l1tex__data_pipe_lsu_wavefronts.{_ELAPSED}", section=_SOL),
    _is("lsu_requests_percent", "%", "load and store instructions, of those L1 can accept",
        f"l1tex__lsuin_requests.{_ELAPSED}", section=_SOL),
)  # fmt: skip

_OPS = "sm__ops_path_tensor"
_FORMATS = {
    "bf16": (f"{_OPS}_src_bf16_dst_fp32.sum",),
    "fp16": (
        f"{_OPS}_src_fp16.sum",
        f"{_OPS}_src_fp16_dst_fp16.sum + {_OPS}_src_fp16_dst_fp32.sum",
        f"{_OPS}_src_fp16_dst_fp16.sum + {_OPS}_src_fp16_bf16_tf32_dst_fp32.sum",
    ),
    "tf32": (f"{_OPS}_src_tf32_dst_fp32.sum",),
    "fp8": (
        f"{_OPS}_src_fp8.sum",
        f"{_OPS}_src_fp8_sparsity_off.sum + {_OPS}_src_fp8_sparsity_on.sum",
        f"{_OPS}_src_fp8_dst_fp16.sum + {_OPS}_src_fp8_dst_fp32.sum",
        f"{_OPS}_src_fp4_fp6_fp8_dst_fp16.sum + {_OPS}_src_fp4_fp6_fp8_dst_fp32.sum",
    ),
    "fp4_fp6": (f"{_OPS}_src_fp4_fp6_dst_fp16.sum + {_OPS}_src_fp4_fp6_dst_fp32.sum",),
    "fp4": (f"{_OPS}_src_fp4_dst_fp32.sum",),
    "int8": (f"{_OPS}_src_int8.sum",),
    "fp64": (f"{_OPS}_src_fp64.sum",),
}
"""Format of the inputs -> expressions of operations. GB100 counts the narrow formats of one
instruction together, as fp8; Turing counts all formats as fp16."""

_PEAKS = {
    "bf16": ("op_hgmma_src_bf16_dst_fp32", "op_utchmma_src_bf16_dst_fp32", "src_bf16_dst_fp32",
             "op_hmma_src_bf16_dst_fp32"),
    "fp16": ("op_hgmma_src_fp16", "op_utchmma_src_fp16_dst_fp32", "src_fp16_dst_fp32",
             "op_hmma_src_fp16_dst_fp32"),
    "tf32": ("op_hgmma_src_tf32_dst_fp32", "op_utchmma_src_tf32_dst_fp32", "src_tf32_dst_fp32",
             "op_hmma_src_tf32_dst_fp32"),
    "fp8": ("src_fp8", "op_utcqmma_src_fp8_dst_fp32", "op_utcqmma_src_fp4_fp6_fp8_dst_fp32",
            "src_fp8_dst_fp32"),
    "fp4": ("op_utcomma_src_fp4_dst_fp32", "src_fp4_dst_fp32"),
    "int8": ("op_igmma_src_int8", "op_utcimma_src_int8", "src_int8", "op_imma_src_int8"),
}  # fmt: skip
"""Format of the inputs -> counters whose peak is that of dense products. The peak of the total
counts those with 2:4 sparsity, which is twice as high."""

_AMD_FORMATS = {
    "bf16": "BF16", "fp16": "F16", "tf32": "XF32", "fp8": "F8", "fp4_fp6": "F6F4", "int8": "I8",
    "fp64": "F64",
}  # fmt: skip
"""The same on AMD, in units of 512 operations (``MfmaFlops`` in ``counter_defs.yaml``)."""


def _tensor_operations() -> tuple[Concept, ...]:
    found = []
    for kind, expressions in _FORMATS.items():
        amd = (f"512 * {_MOPS}{_AMD_FORMATS[kind]}",) if kind in _AMD_FORMATS else ()
        found.append(
            # The section with them differs between versions and chips, so they are listed.
            _is(f"tensor_ops_{kind}", "", f"operations on matrix units with inputs in {kind}",
                *expressions, *amd, source=_COUNTED)
        )  # fmt: skip
    found.append(
        _is("tensor_ops_fp32", "", "operations on matrix units with inputs in fp32",
            f"512 * {_MOPS}F32", source=_ROCM)
    )  # fmt: skip
    return tuple(found)


_MATRIX = (
    _is("tensor_pipe_percent", "%", "the use of the matrix units over the whole kernel",
        f"sm__pipe_tensor_cycles_active.{_ELAPSED}",
        f"100 * SQ_VALU_MFMA_BUSY_CYCLES / ({_GUI} * simd_count)",
        section=_COMPUTE, source=_COUNTED),
    _is("tensor_pipe_active_percent", "%", "the use of the matrix units while SMs had warps",
        f"sm__pipe_tensor_cycles_active.{_ACTIVE}", section=_COMPUTE, source=_COUNTED),
    _is("tensor_instructions", "inst", "warp instructions for the matrix units; few of those of"
        " Hopper and Blackwell keep them busy",
        "sm__inst_executed_pipe_tc.sum",
        "sm__inst_executed_pipe_tensor_op_gmma.sum + sm__inst_executed_pipe_tensor_op_hmma.sum"
        " + sm__inst_executed_pipe_tensor_op_imma.sum + sm__inst_executed_pipe_tensor_op_dmma.sum",
        "sm__inst_executed_pipe_tensor.sum", "SQ_INSTS_MFMA"),
    *_tensor_operations(),
    *(
        _is(f"tensor_peak_{kind}", "1/cycle",
            f"the most dense operations with inputs in {kind} in a cycle, on all SMs",
            *(f"{_OPS}_{one}_sparsity_off.sum.peak_sustained" for one in counters),
            section=_TENSOR, source=_COUNTED)
        for kind, counters in _PEAKS.items()
    ),
    _is("tensor_peak_fp64", "1/cycle", "the same with inputs in fp64",
        f"{_OPS}_src_fp64.sum.peak_sustained", section=_TENSOR),
)  # fmt: skip

_VECTOR_OPS = (
    "smsp__sass_thread_inst_executed_op_{0}add_pred_on.sum{1}"
    " + smsp__sass_thread_inst_executed_op_{0}mul_pred_on.sum{1}"
    " + 2 * smsp__sass_thread_inst_executed_op_{0}fma_pred_on.sum{1}"
)


def _vector(kind: str, letter: str) -> Concept:
    amd = {"fp64": "F64", "fp32": "F32", "fp16": "F16"}[kind]
    each = f"SQ_INSTS_VALU_{{}}_{amd}"
    return _is(
        f"vector_ops_{kind}", "", f"additions and products in {kind} outside the matrix units;"
        " a fused one counts twice",
        _VECTOR_OPS.format(letter, ""),
        f"({_VECTOR_OPS.format(letter, '.per_cycle_elapsed')})"
        " * smsp__cycles_elapsed.avg.per_second * gpu__time_duration.sum / 1e9",
        f"64 * ({each.format('ADD')} + {each.format('MUL')} + 2 * {each.format('FMA')})",
        source="NVIDIA's section SpeedOfLight_RooflineChart",
    )  # fmt: skip


_PIPES = (
    _vector("fp32", "f"),
    _vector("fp64", "d"),
    _vector("fp16", "h"),
    *(
        _is(f"{pipe}_pipe_percent", "%", f"the use of {meaning}",
            *(f"sm__{counter}.{_ELAPSED}" for counter in counters), section=_COMPUTE)
        for pipe, meaning, *counters in (
            ("fma", "the pipe for multiplication and addition in fp32",
             "pipe_fma_cycles_active", "inst_executed_pipe_fma"),
            ("alu", "the pipe for integers and logic",
             "pipe_alu_cycles_active", "inst_executed_pipe_alu"),
            ("fp64", "the pipe for fp64",
             "pipe_fp64_cycles_active", "inst_executed_pipe_fp64"),
            ("xu", "the pipe for special functions and conversions",
             "inst_executed_pipe_xu"),
            ("lsu", "the pipe that issues loads and stores",
             "inst_executed_pipe_lsu"),
            ("tma", "the unit that copies tiles",
             "pipe_tma_cycles_active", "inst_executed_pipe_tma"),
        )
    ),
    _is("instructions", "inst", "warp instructions executed",
        "smsp__inst_executed.sum", "SQ_INSTS", "SQ_INSTS_VALU", section=_INSTRUCTIONS),
    _is("threads_per_instruction", "", "threads that took part in a warp's instruction, on average",
        "smsp__thread_inst_executed_per_inst_executed.ratio",
        "SQ_THREAD_CYCLES_VALU / SQ_ACTIVE_INST_VALU", section=_WARPS),
    _is("threads_per_instruction_on", "", "the same, without threads that are predicated off",
        "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio", section=_WARPS),
    _is("uniform_branches_percent", "%", "branches at which all threads of a warp agreed",
        "smsp__sass_average_branch_targets_threads_uniform.pct", section=_SOURCE),
)  # fmt: skip

_DRAM = (
    _is("dram_read_bytes", "byte", "bytes read from the memory",
        "dram__bytes_read.sum", "dram__bytes_op_read.sum", "32 * dram__sectors_read.sum",
        "1024 * FETCH_SIZE",
        "128 * TCC_BUBBLE_sum + 64 * (TCC_EA0_RDREQ_sum - TCC_BUBBLE_sum - TCC_EA0_RDREQ_32B_sum)"
        " + 32 * TCC_EA0_RDREQ_32B_sum",
        "64 * (TCC_EA_RDREQ_sum - TCC_EA_RDREQ_32B_sum) + 32 * TCC_EA_RDREQ_32B_sum",
        section=_TABLES, source=_ROCM),
    _is("dram_write_bytes", "byte", "bytes written to the memory",
        "dram__bytes_write.sum", "dram__bytes_op_write.sum", "32 * dram__sectors_write.sum",
        "1024 * WRITE_SIZE",
        "64 * TCC_EA0_WRREQ_64B_sum + 32 * (TCC_EA0_WRREQ_sum - TCC_EA0_WRREQ_64B_sum)",
        "64 * TCC_EA_WRREQ_64B_sum + 32 * (TCC_EA_WRREQ_sum - TCC_EA_WRREQ_64B_sum)",
        section=_TABLES, source=_ROCM),
    _is("dram_bytes_per_second", "byte/s", "bytes read and written in a second",
        "dram__bytes.sum.per_second", section=_MEMORY),
    _is("dram_peak_bytes", "byte/cycle", "the most bytes in a cycle of the memory",
        "dram__bytes.sum.peak_sustained", section=_TENSOR, source=_COUNTED),
)  # fmt: skip

_L2 = (
    _is("l2_hit_percent", "%", "sectors that the L2 cache had",
        "lts__t_sector_hit_rate.pct", "100 * TCC_HIT_sum / (TCC_HIT_sum + TCC_MISS_sum)",
        section=_MEMORY),
    _is("l2_bytes", "byte", "bytes that the L2 cache handled",
        "32 * lts__t_sectors.sum", "lts__t_bytes.sum", "128 * TCC_REQ_sum", section=_TABLES),
    _is("l2_size", "byte", "the size of the L2 cache", "device__attribute_l2_cache_size",
        section=_LAUNCH, source=_HARDWARE),
    _is("l2_read_bytes_from_sm", "byte", "bytes that SMs read through the L2 cache; a multicast"
        " counts once", "32 * lts__t_sectors_srcunit_tex_op_read.sum", section=_TABLES,
        source=_COUNTED),
    _is("l2_write_bytes_from_sm", "byte", "bytes that SMs wrote to the L2 cache",
        "32 * lts__t_sectors_srcunit_tex_op_write.sum", section=_TABLES, source=_COUNTED),
    _is("l2_hits_from_sm", "sector", "sectors for SMs that the L2 cache had",
        "lts__t_sectors_srcunit_tex_lookup_hit.sum", section=_TABLES),
    _is("l2_misses_from_sm", "sector", "sectors for SMs that the L2 cache did not have",
        "lts__t_sectors_srcunit_tex_lookup_miss.sum", section=_TABLES),
    _is("l2_fabric_bytes", "byte", "bytes between the two halves of the L2 cache",
        "32 * lts__t_sectors_srcunit_ltcfabric.sum", section=_TABLES),
    _is("atomic_sectors", "sector", "sectors of atomic operations at the L2 cache",
        "lts__t_sectors_srcunit_tex_op_atom.sum + lts__t_sectors_srcunit_tex_op_red.sum",
        "lts__t_sectors_op_atom.sum + lts__t_sectors_op_red.sum", "TCC_ATOMIC_sum"),
    _is("atomic_requests", "request", "requests for atomic operations at L1",
        "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum"
        " + l1tex__t_requests_pipe_lsu_mem_global_op_red.sum", section=_TABLES),
)  # fmt: skip

_TMA = "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld"
# No section that the sets name collects these on an H200 (ncu 2025.3): they are listed as metrics.
_COPIES = (
    _is("tma_load_bytes", "byte", "bytes that the TMA unit brought into shared memory; a multicast"
        " counts at each receiver", f"{_TMA}.sum", source=_COUNTED),
    _is("tma_multicast_bytes", "byte", "those of them that came by multicast",
        f"{_TMA}_dest_multicast.sum", source=_COUNTED),
    _is("tma_store_bytes", "byte", "bytes that the TMA unit wrote",
        "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum",
        source=_COUNTED),
    _is("tma_loads", "inst", "instructions for copies into shared memory",
        "smsp__inst_executed_op_tma_ld.sum"),
    _is("tma_stores", "inst", "instructions for copies out of shared memory",
        "smsp__inst_executed_op_tma_st.sum"),
    _is("l1_read_bytes", "byte", "bytes that L1 and shared memory received from L2",
        "l1tex__m_xbar2l1tex_read_bytes.sum", source=_COUNTED),
    _is("l1_write_bytes", "byte", "bytes that L1 and shared memory sent to L2",
        "l1tex__m_l1tex2xbar_write_bytes.sum", source=_COUNTED),
)  # fmt: skip

_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared"
_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared"
_SHARED = (
    _is("shared_conflicts", "", "extra accesses to shared memory because of bank conflicts",
        f"{_CONFLICTS}.sum", "SQ_LDS_BANK_CONFLICT", section=_TABLES),
    _is("shared_conflicts_load", "", "those of loads", f"{_CONFLICTS}_op_ld.sum", section=_TABLES),
    _is("shared_conflicts_store", "", "those of stores", f"{_CONFLICTS}_op_st.sum",
        section=_TABLES),
    _is("shared_conflicts_gmma", "", "those of the matrix units", f"{_CONFLICTS}_op_gmma.sum"),
    _is("shared_wavefronts", "", "accesses to shared memory, operands of wgmma included",
        f"{_WAVEFRONTS}.sum", "SQ_LDS_IDX_ACTIVE", section=_TABLES),
    _is("shared_wavefronts_load", "", "those of loads", f"{_WAVEFRONTS}_op_ld.sum",
        section=_TABLES),
    _is("shared_wavefronts_store", "", "those of stores", f"{_WAVEFRONTS}_op_st.sum",
        section=_TABLES),
    _is("shared_wavefronts_gmma", "", "those of the matrix units", f"{_WAVEFRONTS}_op_gmma.sum"),
    _is("shared_wavefronts_excess", "", "accesses beyond those that the code needs at least",
        "derived__memory_l1_wavefronts_shared_excessive", section=_SOURCE),
    _is("shared_matrix_wavefronts", "", "accesses for the operands of tcgen05",
        "l1tex__data_pipe_tc_wavefronts_mem_shared.sum"),
)  # fmt: skip

_GLOBAL = (
    *(
        _is(f"{space}_{word}_{what}", what[:-1], f"{what} at L1 for {space} {word}s",
            f"l1tex__t_{what}_pipe_lsu_mem_{space}_op_{op}.sum", section=_TABLES)
        for space in ("global", "local")
        for word, op in (("load", "ld"), ("store", "st"))
        for what in ("sectors", "requests")
    ),
    _is("global_sectors_excess", "sector", "sectors beyond those that the data needs",
        "derived__memory_l2_theoretical_sectors_global_excessive", section=_SOURCE),
    _is("local_instructions", "inst", "loads and stores of local memory, such as spilled registers",
        "smsp__inst_executed_op_local_ld.sum + smsp__inst_executed_op_local_st.sum",
        "smsp__sass_inst_executed_op_local_ld.sum + smsp__sass_inst_executed_op_local_st.sum",
        section=_SOURCE),
    _is("spill_requests", "request", "loads and stores of registers that were spilled",
        "derived__local_spilling_requests", section=_TABLES),
)  # fmt: skip

_RATIO = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_STALLS = (
    _is("warp_latency", "cycle", "the cycles between two instructions of a warp",
        "smsp__average_warp_latency_per_inst_issued.ratio", section=_WARPS),
    *(
        _is(f"stall_{reason}", "cycle", f"the part of warp_latency in the state {reason}",
            _RATIO.format(reason), section=_WARPS, source=_COUNTED)
        for reason in REASONS
    ),
    _is("wait_percent", "%", "the share of the waves' time in which they wait for anything",
        "100 * SQ_WAIT_ANY / SQ_WAVE_CYCLES", source=_ROCM),
    _is("issue_wait_percent", "%", "the share of the waves' time in which they wait to issue",
        "100 * SQ_WAIT_INST_ANY / SQ_WAVE_CYCLES", source=_ROCM),
    _is("issue_active", "", "instructions that a scheduler issues in a cycle",
        "smsp__issue_active.avg.per_cycle_active", section=_SCHEDULER),
    _is("warps_eligible", "warp", "warps of a scheduler that could issue, on average",
        "smsp__warps_eligible.avg.per_cycle_active", section=_SCHEDULER),
    _is("warps_per_scheduler", "warp", "warps of a scheduler, on average",
        "smsp__warps_active.avg.per_cycle_active", section=_SCHEDULER),
)  # fmt: skip

_RESIDENCE = (
    _is("occupancy_theoretical_percent", "%", "the share of an SM's warps that the launch allows",
        "sm__maximum_warps_per_active_cycle_pct", section=_OCCUPANCY),
    _is("occupancy_achieved_percent", "%", "the share of an SM's warps that were there",
        f"sm__warps_active.{_ACTIVE}",
        f"100 * 4 * SQ_WAVE_CYCLES / ({_GUI} * cu_count * max_waves_per_cu)", section=_OCCUPANCY),
    *(
        _is(f"occupancy_limit_{what}", "block", f"blocks on an SM that {meaning}",
            f"launch__occupancy_limit_{what}", section=_OCCUPANCY, source=_HARDWARE)
        for what, meaning in (
            ("blocks", "the SM has room for"),
            ("registers", "the registers suffice for"),
            ("shared_mem", "the shared memory suffices for"),
            ("warps", "the SM's warps suffice for"),
            ("barriers", "the barriers suffice for"),
        )
    ),
    _is("waves_per_sm", "", "blocks over those that the GPU holds at a time",
        "launch__waves_per_multiprocessor", section=_LAUNCH, source=_HARDWARE),
    _is("blocks", "block", "the blocks of the grid", "launch__grid_size", section=_LAUNCH,
        source=_HARDWARE),
    _is("threads_per_block", "", "the threads of a block", "launch__block_size",
        section=_LAUNCH, source=_HARDWARE),
    _is("cluster_size", "block", "the blocks of a cluster", "launch__cluster_size",
        section=_LAUNCH, source=_HARDWARE),
    _is("registers_per_thread", "register", "the registers of a thread",
        "launch__registers_per_thread", section=_LAUNCH, source=_HARDWARE),
    _is("shared_bytes_per_block", "byte", "the shared memory that a block is given",
        "launch__shared_mem_per_block_allocated", "launch__shared_mem_per_block",
        section=_LAUNCH, source=_HARDWARE),
    _is("waves", "", "waves launched", "SQ_WAVES", source=_ROCM),
)  # fmt: skip

CONCEPTS: tuple[Concept, ...] = (
    *_TIME, *_THROUGHPUT, *_MATRIX, *_PIPES, *_DRAM, *_L2, *_COPIES, *_SHARED, *_GLOBAL, *_STALLS,
    *_RESIDENCE,
)  # fmt: skip
"""In the order in which they are shown."""
