"""``gemmetry trace record``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gemmetry.cli.options import runs_plan
from gemmetry.cli.requests import Source, plan_request, read_request
from gemmetry.domain.settings import TraceSchedule

if TYPE_CHECKING:
    from gemmetry.api.profile import Prepared

_SCHEDULE = TraceSchedule()

DEFAULTS = {
    "name": "traces",
    "providers": "torch",
    "default_config": True,
    "shapes": "none",
    "dtypes": "none",
    "layouts": "all four",
    "verification_level": "quick",
    "warmup_iterations": _SCHEDULE.warmup_steps,
    "wait_steps": _SCHEDULE.wait_steps,
    "active_steps": _SCHEDULE.active_steps,
    "benchmark_repetitions": _SCHEDULE.repeats,
    "matrix_sizes": "512, 1024, 2048; on a CPU 64, 128, 256",
    "precisions": "fp32, fp16, bf16, int8",
    "batch_sizes": "1, 4, 16",
    "enable_size_search": True,
    "enable_precision_search": True,
    "enable_layout_search": True,
    "enable_batch_search": True,
    "enable_rectangular": False,
}
"""The defaults of ``api.trace_record.with_defaults`` in help, if no shapes, formats or layouts are
given."""


@partial(runs_plan, defaults=DEFAULTS)
def record(source: Source) -> Prepared:
    """Record Kineto and Chakra traces of a grid of matrix products with torch's profiler.

    Each configuration gets a folder in the experiment, such as traces_matmul/config_0001, with
    CPU_trace.json (Chakra) and one .pt.trace.json (Kineto) per repeat; traces_matmul/manifest.json
    lists them. Each of --benchmark-repetitions repeats waits for --wait-steps launches, warms up
    with --warmup-iterations and records --active-steps.

    Without options, the grid contains all its square sizes, precisions, layouts and batch sizes.
    The same command resumes an interrupted run; with more of these, or more repeats, and the same
    --experiment, the grid grows.
    """
    from gemmetry.api.trace_record import recording, with_defaults

    return recording(plan_request(with_defaults(read_request(source)), source))
