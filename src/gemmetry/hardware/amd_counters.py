"""Hardware counters of AMD GPUs: which exist, and which can be collected in one pass.

A pass is one run of the application under rocprofv3. In a pass, each block of the GPU counts as
many events as it has registers. The names are in ``amd_counters.txt``, with their source.

Metrics from hardware counters of AMD GPUs: percentages and sums, each with its formula and source.

Values of counters are sums over all instances, as rocprofv3 writes them, so that the cycles of
``GRBM_GUI_ACTIVE`` are those of all XCCs together. The formulas are those of
ROCm/rocm-systems, commit 1b1610fc: ``counter_defs.yaml`` of rocprofiler-sdk and the analysis
configurations of rocprofiler-compute.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from gemmetry.domain.errors import UnknownNameError

GUI_ACTIVE = "GRBM_GUI_ACTIVE"
"""Cycles during which the GPU was busy, per XCC: the time that percentages refer to."""

REGISTERS = {
    "SQ": 8, "TA": 2, "TD": 2, "TCP": 4, "TCC": 4, "TCA": 4, "CPC": 2, "CPF": 2, "SPI": 6,
    "GRBM": 2,
}  # fmt: skip
"""Block -> events that it counts at a time, on all GPUs of :data:`CHIPS` (ROCm/rocm-systems,
commit 1b1610fc: ``gfx9_block_info.h`` of aqlprofile, ``mi_gpu_spec.yaml`` of rocprofiler-compute).
"""

CHIPS = ("gfx908", "gfx90a", "gfx942", "gfx950")

_INSTANCES = re.compile(r"((?:TA|TCA|TCC|TCP|TD)_\w+?)_(?:sum|avr|max|min)")
_OTHER_BLOCKS = {"SQC": "SQ"}
"""Prefix of a counter's name -> block, where they differ."""


@dataclass(frozen=True, slots=True)
class _Entry:
    chips: tuple[str, ...]
    events: tuple[str, ...]


def check_chip(chip: str) -> str:
    """`chip`, if its counters are known.

    Raises:
        UnknownNameError: the counters are unknown.
    """
    if chip not in CHIPS:
        raise UnknownNameError("GPU with listed counters", chip, CHIPS)
    return chip


def events_of(counter: str, chip: str | None = None) -> tuple[str, ...]:
    """The events that have to be counted for `counter`: itself, or those that a derived counter is
    computed from.

    Args:
        chip: such as ``gfx942``; None where it is not known: any that has the counter.

    Raises:
        UnknownNameError: no such counter is listed for the chip.
    """
    if (found := _entry(counter, chip)) is not None:
        return found.events
    known = [name for name, forms in _catalogue().items() if _on_chip(forms, chip)]
    raise UnknownNameError(f"counter of {chip or 'AMD GPUs'}", counter, known)


def has_counter(counter: str, chip: str | None = None) -> bool:
    """Whether `counter` is listed for the chip; see :func:`events_of`."""
    return _entry(counter, chip) is not None


def passes_of(
    counters: Iterable[str], chip: str | None = None, *, companions: Iterable[str] = ()
) -> list[list[str]]:
    """The counters in as few passes as fit when they are taken in order, each into the first pass
    with room.

    Args:
        chip: like that of :func:`events_of`.
        companions: counters for which :data:`GUI_ACTIVE` is collected in the same pass.

    Raises:
        UnknownNameError: a counter does not exist.
    """
    wanted, need_time = list(dict.fromkeys(counters)), set(companions)
    for counter in wanted:
        events_of(counter, chip)
    passes: list[list[str]] = []
    # Most passes have it anyway, as a companion.
    for counter in sorted(wanted, key=lambda one: one == GUI_ACTIVE):
        group = [GUI_ACTIVE, counter] if counter in need_time else [counter]
        if counter == GUI_ACTIVE and any(counter in one for one in passes):
            continue
        for one in passes:
            joined = list(dict.fromkeys([*one, *group]))
            if not overfull(joined, chip):
                one[:] = joined
                break
        else:
            passes.append(group)
    return passes


def overfull(counters: Sequence[str], chip: str | None = None) -> dict[str, int]:
    """Block -> number of its events, for the blocks that cannot count all events of `counters` in
    one pass.

    Raises:
        UnknownNameError: a counter does not exist.
    """
    events = dict.fromkeys(event for name in counters for event in events_of(name, chip))
    used = Counter(map(_block, events))
    return {block: count for block, count in used.items() if count > REGISTERS.get(block, 1)}


def _block(event: str) -> str:
    prefix = event.split("_", 1)[0]
    return _OTHER_BLOCKS.get(prefix, prefix)


def _entry(counter: str, chip: str | None) -> _Entry | None:
    entries = _catalogue()
    found = _on_chip(entries.get(counter, ()), chip)
    if found is None and (instances := _INSTANCES.fullmatch(counter)):
        found = _on_chip(entries.get(instances[1], ()), chip)
    return found


def _on_chip(forms: Sequence[_Entry], chip: str | None) -> _Entry | None:
    return next((one for one in forms if chip is None or chip in one.chips), None)


@cache
def _catalogue() -> dict[str, tuple[_Entry, ...]]:
    """Name -> its entries; a derived counter has one for each way to compute it."""
    found: dict[str, tuple[_Entry, ...]] = {}
    chips: tuple[str, ...] = ()
    for line in Path(__file__).with_name("amd_counters.txt").read_text().splitlines():
        if line.startswith("["):
            chips = tuple(line.strip("[]").split())
        elif " = " in line:
            name, events = line.split(" = ")
            found[name] = (*found.get(name, ()), _Entry(chips, tuple(events.split())))
        elif not line.startswith("#"):
            for name in line.split():
                found[name] = (*found.get(name, ()), _Entry(chips, (name,)))
    return found


Values = Mapping[str, float]

_CYCLES_PER_COUNT = 4
"""SQ counts the cycles of busy CUs, waves and waits in units of four (``counter_defs.yaml``)."""

_OPERATIONS_PER_MOP = 512
"""Operations of one unit of ``SQ_INSTS_VALU_MFMA_MOPS_*`` (``MfmaFlops`` in
``counter_defs.yaml``)."""

_MOPS = "SQ_INSTS_VALU_MFMA_MOPS_"
_FLOATS = ("F16", "BF16", "F32", "F64", "F8", "F6F4", "XF32")


class AmdGpu(Protocol):
    """GPU's numbers in the formulas, as rocprofv3 records them; a partition counts as a GPU."""

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
        """Whether the expression refers to the GPU's busy time, and so to the GPU's size."""
        return GUI_ACTIVE in self.counters


def _of_time(
    name: str, counter: str, places: Callable[[AmdGpu], tuple[int, ...]], description: str,
    *, cycles: int = 1, collected_as: str = "",
) -> AmdMetric:  # fmt: skip
    """Per cent of the dispatch's cycles at all of so many places; a count is so many `cycles`."""
    return AmdMetric(
        name=name, counters=(counter, GUI_ACTIVE), collected_as=collected_as,
        description=description,
        formula=lambda v, gpu: (
            100 * cycles * v[counter] / math.prod(places(gpu), start=v[GUI_ACTIVE] / gpu.xccs)
        ),
    )  # fmt: skip


METRICS = (
    _of_time(
        "cu_busy_percent", "SQ_BUSY_CU_CYCLES", lambda gpu: (gpu.units,),
        "share of the time in which a compute unit has work, over all of them",
        cycles=_CYCLES_PER_COUNT,
    ),
    _of_time(
        "mfma_util_percent", "SQ_VALU_MFMA_BUSY_CYCLES", lambda gpu: (gpu.simds,),
        "share of the time in which the matrix units work, over all SIMDs",
        collected_as="MfmaUtil",
    ),
    _of_time(
        "occupancy_percent", "SQ_WAVE_CYCLES", lambda gpu: (gpu.units, gpu.waves_per_unit),
        "waves on the compute units, of those that they can hold",
        cycles=_CYCLES_PER_COUNT, collected_as="OccupancyPercent",
    ),
    AmdMetric(
        name="wait_percent",
        counters=("SQ_WAIT_ANY", "SQ_WAVE_CYCLES"),
        formula=lambda v, gpu: 100 * v["SQ_WAIT_ANY"] / v["SQ_WAVE_CYCLES"],
        description="share of the waves' time in which they wait for anything",
    ),
    _of_time(
        "lds_conflict_percent", "SQ_LDS_BANK_CONFLICT", lambda gpu: (gpu.units,),
        "share of the time in which the LDS is stalled by bank conflicts",
        collected_as="LDSBankConflict",
    ),
    AmdMetric(
        name="l2_hit_percent",
        counters=("TCC_HIT_sum", "TCC_MISS_sum"),
        formula=lambda v, gpu: 100 * v["TCC_HIT_sum"] / (v["TCC_HIT_sum"] + v["TCC_MISS_sum"]),
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
"""Metrics in the order in which they are shown."""

NEED_TIME = frozenset(
    name for one in METRICS if one.needs_time for name in one.counters if name != GUI_ACTIVE
)
"""Counters that show a percentage only if :data:`~.amd_counters.GUI_ACTIVE` is collected with
them."""


def matrix_flop(values: Values) -> float | None:
    """Floating-point operations on matrix units; None if no counter of them was collected."""
    found = [values[_MOPS + kind] for kind in _FLOATS if _MOPS + kind in values]
    return _OPERATIONS_PER_MOP * sum(found) if found else None
