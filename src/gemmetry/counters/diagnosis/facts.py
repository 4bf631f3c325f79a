"""What the rules need of a launch: how busy units are, shares of stalls, concepts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from gemmetry.counters.catalogue import Concept, concept_of, flags_for, reading_of
from gemmetry.counters.chips import chip_of
from gemmetry.counters.diagnosis import amd
from gemmetry.counters.diagnosis.evidence import COUNTER, evidence_of, term
from gemmetry.counters.diagnosis.model import CounterEvidence, WorkCheck
from gemmetry.counters.diagnosis.stalls import StallShares, stall_shares
from gemmetry.counters.diagnosis.units import (
    BREAKDOWN,
    MEMORY,
    SECTION_MARKS,
    SM,
    SUFFIX,
    UNITS,
    Unit,
)
from gemmetry.counters.diagnosis.work import GemmWork, check_work
from gemmetry.domain.errors import UnknownNameError
from gemmetry.formats.counters.launches import ProfiledLaunch
from gemmetry.kernel_names import KernelName, classify

REACHED = 80.0
"""Percent of its peak rate from which a unit is at its limit (NVIDIA's rule SOLBottleneck)."""
NEAR = 60.0
"""Percent of its peak rate from which a unit comes close (the same rule: below it, latency)."""
CLEAR = 85.0
"""Percent from which a limit is beyond doubt: the difference of several executions is smaller, and
whatever else limits the kernel, too, removing that alone gains less than a fifth."""

MAY_BE_UNLISTED = "Units that are not listed may be busier: SpeedOfLight was not collected"
"""The doubt where the busiest of all units is not known."""

TENSOR_LEAD = 10.0
"""Percentage points by which another unit has to be busier than tensor cores to be the nearest
limit: it works for them."""

SECTOR_BYTES = 32
"""Of a sector, the part of a line that caches move."""

SHORT_NS = 10_000
"""Duration below which starting the kernel is a large part of it."""

_ROUNDING = 0.5
"""Percentage points by which two executions of a kernel, in different passes, differ."""

_UNKNOWN_CHIP = "GH100"
"""Whose options are shown for a chip that is not listed."""


class Facts:
    """A launch as the rules see it. Everything is computed once, when it is first needed."""

    def __init__(self, launch: ProfiledLaunch, work: GemmWork | None = None) -> None:
        self.launch = launch
        self.work = work
        self.is_amd = launch.table.tool != "ncu"
        self._known: dict[str, CounterEvidence | None] = {}

    @cached_property
    def kernel(self) -> KernelName:
        """What its name shows."""
        return classify(self.launch.name)

    def metric(self, name: str) -> CounterEvidence | None:
        """A metric of the report, by its id; None where the report lacks it."""
        value = self.launch.value(name)
        return (
            None if value is None else CounterEvidence(name, value, self.launch.unit(name), COUNTER)
        )

    def get(self, concept: str) -> CounterEvidence | None:
        """The value of a concept of the catalogue; None where the report lacks it."""
        if concept not in self._known:
            reading = reading_of(self.launch, concept)
            self._known[concept] = None if reading is None else evidence_of(reading)
        return self._known[concept]

    def value(self, concept: str) -> float | None:
        """The value of :meth:`get`."""
        found = self.get(concept)
        return None if found is None else found.value

    def total(self, *concepts: str) -> CounterEvidence | None:
        """The sum of the concepts that the report has; None if it has none."""
        found = [one for one in map(self.get, concepts) if one is not None]
        if len(found) < 2:
            return found[0] if found else None
        parts = " + ".join(term(one) for one in found)
        return CounterEvidence("sum", sum(one.value for one in found), found[0].unit, parts)

    def lacks(self, *concepts: str) -> tuple[str, ...]:
        """Those of the concepts that the report does not have."""
        return tuple(name for name in concepts if self.get(name) is None)

    @cached_property
    def sections(self) -> frozenset[str]:
        """The sections of Nsight Compute that were collected."""
        marked = (
            name
            for name, marks in SECTION_MARKS.items()
            if all(self.launch.value(one) is not None for one in marks)
        )
        return self.launch.table.sections.union(marked)

    def collect(self, concepts: Iterable[str | Concept] = (), sections: Iterable[str] = ()) -> str:
        """The options of the profiler that collect the concepts and sections, as far as they were
        not collected: what a summary leaves out of its sections is in the report itself."""
        asked = [concept_of(one) if isinstance(one, str) else one for one in concepts]
        if self.launch.table.sections:
            asked = [one for one in asked if one.section not in self.sections]
        flags = flags_for(asked, self.chip, self.sections)
        wanted = [] if self.is_amd else [
            f"--section {name}" for name in dict.fromkeys(sections) if name not in self.sections
        ]  # fmt: skip
        return " ".join([*(one for one in wanted if one not in flags), *([flags] if flags else [])])

    @cached_property
    def chip(self) -> str:
        """The chip, as the catalogue names it; one with the same sections if it is not listed."""
        try:
            return chip_of(self.launch.info.capability)
        except UnknownNameError:
            return amd.UNKNOWN_CHIP if self.is_amd else _UNKNOWN_CHIP

    @cached_property
    def work_checks(self) -> tuple[WorkCheck, ...]:
        """What it did, next to the model of the work."""
        return tuple(check_work(self, self.work))

    @cached_property
    def utilisation(self) -> dict[str, CounterEvidence]:
        """Id of a unit -> how busy it is, in percent of its peak over the whole launch."""
        if self.is_amd:
            return amd.utilisation(self)
        found = {}
        for unit in UNITS.values():
            values = [one for one in (self.metric(m + SUFFIX) for m in unit.metrics) if one]
            # What exceeds the busiest unit of the whole is none of the rates that bound it, such as
            # the part of `lts__throughput` that follows from the traffic of device memory.
            bounding = [one for one in values if one.value <= self._whole_of(one) + _ROUNDING]
            usable = bounding or [one for one in values if "throughput" not in one.metric]
            if usable:
                found[unit.id] = max(usable, key=lambda one: one.value)
        return found

    def _whole_of(self, part: CounterEvidence) -> float:
        """The busiest of the units that `part` belongs to; 100 where that is not known."""
        whole = self.launch.value(SM if part.metric.startswith("sm__") else MEMORY)
        return 100.0 if whole is None else whole

    @cached_property
    def processor(self) -> str:
        """What a multiprocessor is called."""
        return "compute unit" if self.is_amd else "multiprocessor"

    @cached_property
    def block(self) -> str:
        """What a block of threads is called."""
        return "workgroup" if self.is_amd else "block"

    @cached_property
    def warps(self) -> str:
        """What warps are called."""
        return "Waves" if self.is_amd else "Warps"

    def named(self, unit: Unit) -> str:
        """What a unit is called."""
        return amd.NAMES.get(unit.id, unit.name) if self.is_amd else unit.name

    def unit_flags(self, unit: Unit) -> str:
        """The options of the profiler that show how busy `unit` is."""
        if not self.is_amd:
            return self.collect(sections=[unit.section])
        question = amd.open_question(self, unit.id)
        return self.collect(amd.CONCEPTS.get(unit.id, ())) if question is None else question[1]

    def _limit(self, unit: Unit) -> float:
        """What `unit` cannot exceed, in percent."""
        known = [] if self.is_amd else map(self.launch.value, unit.parents)
        return min((one for one in known if one is not None), default=100.0)

    @cached_property
    def lacks_parents(self) -> bool:
        """Whether units that are not listed could be busier than those that are."""
        return not self.is_amd and None in map(self.launch.value, (SM, MEMORY))

    def busiest(self, *, at_least: float) -> list[tuple[Unit, CounterEvidence]]:
        """Units that are busy for `at_least` so many percent: by rank, then the busiest first."""
        found = [
            (UNITS[name], value)
            for name, value in self.utilisation.items()
            if value.value >= at_least
        ]
        return sorted(found, key=lambda one: (one[0].rank, -one[1].value - one[0].lead))

    def open_units(self) -> list[Unit]:
        """Units that the report does not show but that could change the verdict: they come before
        the busiest by rank, or may be busier than all others, unless the busiest is beyond doubt at
        its limit."""
        return [unit for unit in self._uncounted if unit not in self.rivals]

    @cached_property
    def rivals(self) -> list[Unit]:
        """Units that the report does not show and that may be even busier than the one that is
        beyond doubt at its limit: they make the verdict less certain, not another one."""
        top = self.busiest(at_least=CLEAR)[:1]
        return [unit for unit in self._uncounted if top and unit.rank == top[0][0].rank]

    @cached_property
    def _uncounted(self) -> list[Unit]:
        """Units that the report does not show and that may be busier than all others, or come
        before the busiest by rank."""
        reached = self.busiest(at_least=REACHED)
        rank = reached[0][0].rank if reached else 0
        known = [value.value for _, value in reached[:1]] or [
            one.value for one in self.utilisation.values()
        ]
        top = max(known, default=0.0)
        found = []
        for unit in UNITS.values():
            if unit.id in self.utilisation or not self._matters(unit):
                continue
            limit = self._limit(unit)
            lead = TENSOR_LEAD if unit.rank == 0 else -1 if self._is_explained(unit) else 1
            is_busier = limit >= NEAR and limit + lead > top and (not reached or unit.rank <= rank)
            if is_busier or (limit >= REACHED and unit.rank < rank):
                found.append(unit)
        return found

    def _is_explained(self, unit: Unit) -> bool:
        """Whether a unit that is known is as busy as a whole that `unit` is a part of, too."""
        wholes = ((parent, self.launch.value(parent)) for parent in unit.parents)
        return any(value is not None and self._explains(name, value) for name, value in wholes)

    def _matters(self, unit: Unit) -> bool:
        return unit.id in amd.KEY_UNITS if self.is_amd else unit.is_key

    @cached_property
    def unlisted(self) -> CounterEvidence | None:
        """The busiest unit of the GPU that is none of :data:`~.units.UNITS`; or a whole none of
        whose known parts is as busy."""
        known = {metric + SUFFIX for unit in UNITS.values() for metric in unit.metrics}
        found = []
        for parent in (SM, MEMORY):
            whole = self.metric(parent)
            if whole is None or self._explains(parent, whole.value):
                continue
            names = self.launch.text(BREAKDOWN + parent).split(",")
            parts = [self.metric(name.strip()) for name in names if name.strip() not in known]
            best = max((one for one in parts if one), key=lambda one: one.value, default=whole)
            found.append(best if best.value >= whole.value - 1 else whole)
        return max(found, key=lambda one: one.value, default=None)

    def _explains(self, parent: str, value: float) -> bool:
        """Whether a unit that is known is as busy as the whole that it is a part of."""
        parts = [v.value for n, v in self.utilisation.items() if parent in UNITS[n].parents]
        return max(parts, default=0.0) >= value - 1

    @cached_property
    def nearest(self) -> tuple[str, float] | None:
        """The unit that is at its limit first, if each does as much for the kernel as now, and how
        busy it is in percent."""
        busy = self.busiest(at_least=1)
        found = []
        if busy:
            unit, value = max(busy, key=lambda one: one[1].value + one[0].lead)
            found.append((self.named(unit), value.value))
        if self.unlisted is not None:
            found.append(("a unit of the GPU", self.unlisted.value))
        return max(found, key=lambda one: one[1], default=None)

    def at_most(self, factor: float) -> str:
        """How much faster a kernel becomes by `factor` at most, given how busy units are."""
        if self.nearest is None or self.nearest[1] <= 0:
            return f"at most {factor:.3g}×, until a unit is at its limit"
        name, value = self.nearest
        if factor * value <= 100:
            return f"at most {factor:.3g}×"
        return f"at most {100 / value:.3g}×, when {name} is at its limit"

    def share_of_l2(self, sectors: CounterEvidence | None) -> float | None:
        """The part of the traffic of the L2 cache that `sectors` are, in percent, if all of them
        reach it; None where that is not known."""
        handled = self.value("l2_bytes")
        if sectors is None or not handled or handled <= 0:
            return None
        return 100 * SECTOR_BYTES * sectors.value / handled

    @cached_property
    def shared_percent(self) -> float | None:
        """How busy shared memory keeps the data stage of L1, in percent; None where that is not
        known."""
        shared = self.launch.value(
            "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed"
        )
        count, cycles = self.value("shared_wavefronts"), self.value("elapsed_cycles")
        units = self.value("sm_count")
        if shared is None and count is not None and cycles and units and cycles * units >= 1:
            return 100 * count / (cycles * units)
        return shared

    @cached_property
    def memory_use(self) -> CounterEvidence | None:
        """How busy the busiest part of the memory system is, in percent; None where it is not
        known."""
        units = ("l1", "l2", "dram", "lsu", "texture")
        found = [one for name in units if (one := self.utilisation.get(name)) is not None]
        whole = None if self.is_amd else self.metric(MEMORY)
        return max([*found, *([whole] if whole else [])], key=lambda one: one.value, default=None)

    @cached_property
    def stalls(self) -> StallShares | None:
        """What its warps waited for; None where the report does not have it."""
        return amd.stall_shares(self) if self.is_amd else stall_shares(self.launch)

    def waits_for(self, *reasons: str) -> bool:
        """Whether one of the reasons is the most frequent stall, or takes 20 % of the time."""
        ranked = self.stalls.ranked() if self.stalls is not None else []
        longest = [name for place, (name, share) in enumerate(ranked) if share >= 0.2 or not place]
        return not set(reasons).isdisjoint(longest)

    @cached_property
    def uses_async_copies(self) -> bool | None:
        """Whether it feeds tensor cores through the tensor memory accelerator or asynchronous
        multiplications, so that few warps are normal; None where that was not counted."""
        names = (
            "smsp__inst_executed_op_tma_ld.sum", "smsp__sass_inst_executed_op_tma_ld.sum",
            "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum",
            "sm__inst_executed_pipe_tensor_op_gmma.sum", "sm__inst_executed_pipe_tc.sum",
            "smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio",
            "sm__pipe_tma_cycles_active" + SUFFIX,
        )  # fmt: skip
        found = [one for one in map(self.launch.value, names) if one is not None]
        if any(found):
            return True
        if found or self.launch.info.capability.startswith(("6.", "7.", "8.")):
            return False
        return None

    @cached_property
    def duration_ns(self) -> float | None:
        """Time on the GPU."""
        if self.launch.duration_ns is not None:
            return self.launch.duration_ns
        cycles, rate = self.value("elapsed_cycles"), self.value("sm_clock")
        return cycles / rate * 1e9 if cycles and rate else None
