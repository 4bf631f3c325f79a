"""Sets of counters: what is collected together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gemmetry.counters.catalogue import AMD_FACTS, concepts, expression_on, metrics_in
from gemmetry.counters.chips import CAPABILITIES, has_metric
from gemmetry.domain.errors import RequestError, UnknownNameError
from gemmetry.hardware.amd_counters import CHIPS as AMD_CHIPS
from gemmetry.hardware.amd_counters import GUI_ACTIVE
from gemmetry.hardware.amd_metrics import METRICS


@dataclass(frozen=True, slots=True)
class MetricSet:
    """A set of counters of Nsight Compute."""

    meaning: str
    sections: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    all_concepts: bool = False
    """Also the metrics of the catalogue that no section collects."""
    ncu_set: str = ""
    """A set of its own that it names; then nothing else is listed."""


_QUICK = ("SpeedOfLight", "MemoryWorkloadAnalysis", "WarpStateStats", "Occupancy")
_GEMM = (
    "SpeedOfLight", "SpeedOfLight_HierarchicalTensorRooflineChart", "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Tables", "SchedulerStats", "WarpStateStats",
    "InstructionStats", "SourceCounters", "Occupancy", "LaunchStats", "WorkloadDistribution",
)  # fmt: skip
_STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.pct"

SETS: Mapping[str, MetricSet] = {
    "quick": MetricSet("the four sections of the Nsight Compute document", _QUICK),
    "gemm": MetricSet("what a diagnosis of a GEMM uses", _GEMM, all_concepts=True),
    "full": MetricSet("everything that Nsight Compute has a section for", ncu_set="full"),
    "document": MetricSet(
        "the eight metrics that the Nsight Compute document lists",
        metrics=(
            "sm__throughput.avg.pct_of_peak_sustained_elapsed",
            "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
            *(_STALLED.format(one) for one in
              ("barrier", "membar", "mio_throttle", "short_scoreboard")),
            "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
            "lts__t_sectors_srcunit_tex_op_read.sum",
        ),
    ),
}  # fmt: skip
"""Name -> what it contains. Sources: ``--section`` and ``--metrics`` of the document's commands;
``gemm`` has every section that a concept of the catalogue names."""


def set_of(name: str) -> MetricSet:
    """The set of this name.

    Raises:
        UnknownNameError: there is none.
    """
    if name not in SETS:
        raise UnknownNameError("set of counters", name, SETS)
    return SETS[name]


def metrics_of(chosen: MetricSet, chip: str | None) -> tuple[str, ...]:
    """The metrics that `chosen` lists for a chip of NVIDIA; on None, those that all chips have."""
    chips = [chip] if chip is not None else list(dict.fromkeys(CAPABILITIES.values()))
    found = dict.fromkeys(chosen.metrics)
    if chosen.all_concepts:
        for one in concepts():
            expression = None if one.section else expression_on(chips[0], one)
            found.update(dict.fromkeys(metrics_in(expression) if expression else ()))
    return tuple(one for one in found if all(has_metric(each, one) for each in chips))


def amd_counters_of(name: str, chip: str | None) -> tuple[str, ...]:
    """The counters of a set on AMD.

    Raises:
        UnknownNameError: there is no such set. RequestError: it has no counters on AMD.
    """
    set_of(name)
    if name == "document":
        raise RequestError(
            "the set 'document' has metrics of NVIDIA's GPUs only", hint="Use --set gemm."
        )
    found = dict.fromkeys(counter for one in METRICS for counter in one.counters)
    if name != "quick":
        for concept in concepts():
            expression = expression_on(chip or AMD_CHIPS[-1], concept)
            found.update(dict.fromkeys(metrics_in(expression) if expression else ()))
    found.pop(GUI_ACTIVE, None)
    return (GUI_ACTIVE, *(one for one in found if one not in AMD_FACTS))
