"""What hardware counters of AMD GPUs show: percentages and sums, each with its formula and source.

Values of counters are sums over all instances, as rocprofv3 writes them, so that the cycles of
``GRBM_GUI_ACTIVE`` are those of all XCCs together. The formulas are those of
ROCm/rocm-systems, commit 1b1610fc: ``counter_defs.yaml`` of rocprofiler-sdk and the analysis
configurations of rocprofiler-compute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gemmetry.hardware.amd_counters import GUI_ACTIVE

Values = Mapping[str, float]

_CYCLES_PER_COUNT = 4
"""SQ counts the cycles of busy CUs, waves and waits in units of four (``counter_defs.yaml``)."""

_OPERATIONS_PER_MOP = 512
"""Operations of one unit of ``SQ_INSTS_VALU_MFMA_MOPS_*`` (``MfmaFlops`` in
``counter_defs.yaml``)."""

_MOPS = "SQ_INSTS_VALU_MFMA_MOPS_"
_FLOATS = ("F16", "BF16", "F32", "F64", "F8", "F6F4", "XF32")


class AmdGpu(Protocol):
    """What the formulas need of a GPU, as rocprofv3 records it; a partition counts as a GPU."""

    @property
    def units(self) -> int:
        """Compute units."""

    @property
    def simds(self) -> int:
        """SIMDs of all compute units."""

    @property
    def xccs(self) -> int:
        """Accelerator complex dies; each has a ``GRBM_GUI_ACTIVE``."""

    @property
    def waves_per_unit(self) -> int:
        """Waves that a compute unit holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdMetric:
    """A figure that counters of one dispatch show."""

    name: str
    counters: tuple[str, ...]
    """All of them are needed."""
    formula: Callable[[Values, AmdGpu], float]
    """Divides by zero where the counters did not count."""
    collected_as: str = ""
    """rocprofv3's own derived counter with the same meaning; it has precedence."""
    description: str
    unit: str = "%"

    @property
    def needs_time(self) -> bool:
        """Whether it refers to the time for which the GPU was busy, and so to its size."""
        return GUI_ACTIVE in self.counters


def _elapsed(values: Values, gpu: AmdGpu) -> float:
    """Cycles of the dispatch."""
    return values[GUI_ACTIVE] / gpu.xccs


METRICS = (
    AmdMetric(
        name="cu_busy_percent",
        counters=("SQ_BUSY_CU_CYCLES", GUI_ACTIVE),
        formula=lambda v, gpu: (
            100 * _CYCLES_PER_COUNT * v["SQ_BUSY_CU_CYCLES"] / (_elapsed(v, gpu) * gpu.units)
        ),
        description="share of the time in which a compute unit has work, over all of them",
    ),
    AmdMetric(
        name="mfma_util_percent",
        counters=("SQ_VALU_MFMA_BUSY_CYCLES", GUI_ACTIVE),
        formula=lambda v, gpu: (
            100 * v["SQ_VALU_MFMA_BUSY_CYCLES"] / (_elapsed(v, gpu) * gpu.simds)
        ),
        collected_as="MfmaUtil",
        description="share of the time in which the matrix units work, over all SIMDs",
    ),
    AmdMetric(
        name="occupancy_percent",
        counters=("SQ_WAVE_CYCLES", GUI_ACTIVE),
        formula=lambda v, gpu: (
            100 * _CYCLES_PER_COUNT * v["SQ_WAVE_CYCLES"]
            / (_elapsed(v, gpu) * gpu.units * gpu.waves_per_unit)
        ),
        collected_as="OccupancyPercent",
        description="waves on the compute units, of those that they can hold",
    ),
    AmdMetric(
        name="wait_percent",
        counters=("SQ_WAIT_ANY", "SQ_WAVE_CYCLES"),
        formula=lambda v, gpu: 100 * v["SQ_WAIT_ANY"] / v["SQ_WAVE_CYCLES"],
        description="share of the waves' time in which they wait for anything",
    ),
    AmdMetric(
        name="lds_conflict_percent",
        counters=("SQ_LDS_BANK_CONFLICT", GUI_ACTIVE),
        formula=lambda v, gpu: (
            100 * v["SQ_LDS_BANK_CONFLICT"] / (_elapsed(v, gpu) * gpu.units)
        ),
        collected_as="LDSBankConflict",
        description="share of the time in which the LDS is stalled by bank conflicts",
    ),
    AmdMetric(
        name="l2_hit_percent",
        counters=("TCC_HIT_sum", "TCC_MISS_sum"),
        formula=lambda v, gpu: (
            100 * v["TCC_HIT_sum"] / (v["TCC_HIT_sum"] + v["TCC_MISS_sum"])
        ),
        description="requests to the L2 cache that hit",
    ),
    AmdMetric(
        name="waves",
        counters=("SQ_WAVES",),
        formula=lambda v, gpu: v["SQ_WAVES"],
        description="waves launched",
        unit="",
    ),
)  # fmt: skip
"""In the order in which they are shown."""

NEED_TIME = frozenset(
    name for one in METRICS if one.needs_time for name in one.counters if name != GUI_ACTIVE
)
"""Counters that show a percentage only if :data:`~.amd_counters.GUI_ACTIVE` is collected with
them."""


def matrix_flop(values: Values) -> float | None:
    """Floating-point operations on matrix units; None if no counter of them was collected."""
    found = [values[_MOPS + kind] for kind in _FLOATS if _MOPS + kind in values]
    return _OPERATIONS_PER_MOP * sum(found) if found else None
