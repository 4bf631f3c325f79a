"""The input and the command line of rocprofv3."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gemmetry.counters.collecting.request import CollectRequest
from gemmetry.counters.collecting.sets import amd_counters_of
from gemmetry.hardware.amd_counters import GUI_ACTIVE, passes_of

_COLLECTIVES = "nccl"
"""RCCL's kernels have NCCL's names."""


@dataclass(frozen=True, slots=True)
class RocprofPlan:
    """How rocprofv3 is started: it runs the application once per pass."""

    jobs: tuple[dict[str, Any], ...]

    @property
    def text(self) -> str:
        """The input file."""
        return yaml.safe_dump({"jobs": list(self.jobs)}, sort_keys=False, width=1 << 30)

    def arguments(self, input_file: Path, folder: Path) -> tuple[str, ...]:
        """Those between ``rocprofv3`` and ``--``. Its own default is a database since version 1."""
        return ("-i", str(input_file), "-d", str(folder), "--output-format", "csv", "json")


def plan_rocprof(request: CollectRequest, *, chip: str | None = None) -> RocprofPlan:
    """The passes that collect `request`.

    Raises:
        UnknownNameError: a set, or a counter of the chip, does not exist.
        RequestError: the set has no counters on AMD.
    """
    counters = dict.fromkeys((*amd_counters_of(request.metric_set, chip), *request.metrics))
    # Every pass has the time, as a launch takes another one in each.
    timed = counters.keys() - {GUI_ACTIVE}
    filters: dict[str, Any] = {"kernel_trace": True}
    if request.kernel is not None:
        filters["kernel_include_regex"] = request.kernel
    elif not request.collectives:
        filters["kernel_exclude_regex"] = _COLLECTIVES
    if request.launch_skip or request.launch_count is not None:
        first = request.launch_skip + 1
        # Launches of each kernel count from 1; the schema has no range without an end.
        last = request.launch_skip + (request.launch_count or 1_000_000)
        filters["kernel_iteration_range"] = f"[{first}-{last}]"
    return RocprofPlan(
        tuple({**filters, "pmc": one} for one in passes_of(counters, chip, companions=timed))
    )
