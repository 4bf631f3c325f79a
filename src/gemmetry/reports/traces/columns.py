"""Columns of the tables of traces, which a file has also where a table has no rows."""

from __future__ import annotations

from gemmetry.traces.summary import TIMES

_COUNTS = ("kernels", "gemm_kernels", "comm_kernels", *(f"{name}_us" for name in TIMES))

COLUMNS: dict[str, tuple[str, ...]] = {
    "trace_summary": ("file", "events", *_COUNTS, "partial"),
    "trace_steps": ("file", "step", "window_from", *_COUNTS, "others_us", "mark_us", "inferred"),
    "gemms": (
        "device", "kernel", "short_name", "kind", "family", "operators", "m", "n", "k", "batch",
        "dtype", "layout", "tile", "stages", "cluster", "split_k", "count", "linked", "inferred",
        "sum_us", "share", "median_us", "p5_us", "p95_us", "mad_us", "min_us", "max_us", "tflops",
        "peak_fraction", "overlapped", "overlapped_share",
    ),
    "shapes": (
        "m", "n", "k", "batch", "dtype", "layout", "scaling", "count", "sum_us", "share",
        "operation", "kernels", "reason",
    ),
    "collectives_matched": (
        "job", "op", "elements", "dtype", "start_skew_us", "end_skew_us", "last_rank",
        "algbw_gbps", "busbw_gbps", "bytes", "latency_us", "group", "group_size", "start_ns",
        "algorithm", "protocol", "corrected_start_skew_us", "corrected_end_skew_us",
        "corrected_last_rank", "complete", "rank", "duration_us",
    ),
    "collectives_kernels": (
        "job", "rank", "collective", "op", "elements", "dtype", "bytes", "group", "start_ns",
        "duration_ns", "group_size", "group_inferred", "in_elements", "out_elements", "peer",
        "sequence", "algorithm", "protocol", "source", "kernel", "stream", "device", "wait_us",
    ),
    "collectives_kinds": (
        "job", "op", "dtype", "elements", "bytes", "group_size", "count", "latency_us_median",
        "latency_us_min", "latency_us_max", "start_skew_us_median", "end_skew_us_median",
        "algbw_gbps_median", "busbw_gbps_median", "complete", "duration_us_sum",
        "duration_us_min", "duration_us_median",
    ),
    "collectives_ranks": (
        "job", "rank", "last_count", "last_share", "waited_us", "unmatched", "node",
        "clock_offset_us", "clock_scatter_us", "clock_lower_us", "clock_upper_us",
        "clock_collectives", "clock_applied_us", "corrected_last_count", "corrected_waited_us",
    ),
}  # fmt: skip
"""Name of a table -> its columns."""
