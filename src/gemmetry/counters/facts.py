"""The units of a GPU that can work at their limit, and the metrics that show how busy they are.

What warps wait for: a share is ``smsp__average_warps_issue_stalled_<reason>_per_issue_active``
divided by ``smsp__average_warp_latency_per_inst_issued``, which is their sum: the part of the time
between two instructions of a warp that it spends in a state. (The ``.pct`` form of the same metric
is 100 times the ratio, not a share; it is used where the report lacks the ratio.)

Numbers that findings rest on, and how they are combined.

How busy the units of AMD GPUs are, and what their waves wait for, in the terms of the rules.

Cycles of a dispatch are ``GRBM_GUI_ACTIVE`` divided by the number of XCCs, as rocprofv3 adds them
up. Formulas: ``counter_defs.yaml`` of rocprofiler-sdk and the analysis configurations of
rocprofiler-compute (ROCm/rocm-systems, commit 1b1610fc).

What the rules need of a launch: how busy units are, shares of stalls, concepts.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from gemmetry.counters.catalogue import Concept, chip_of, concept_of, flags_for, listed, reading_of
from gemmetry.counters.model import COUNTER, CounterEvidence, WorkCheck
from gemmetry.counters.work import OPERATIONS, GemmWork, check_work
from gemmetry.domain.errors import UnknownNameError
from gemmetry.formats.counters.launches import ProfiledLaunch
from gemmetry.hardware.devices import DeviceSpec, devices_of, find_device
from gemmetry.traces.names import KernelName, classify

SUFFIX = ".avg.pct_of_peak_sustained_elapsed"

SM = "sm__throughput" + SUFFIX
"""The busiest unit of a multiprocessor."""
MEMORY = "gpu__compute_memory_throughput" + SUFFIX
"""The busiest unit of the memory system."""
BREAKDOWN = "breakdown:"
"""Prefix of a metric's name: the names of the metrics whose maximum it is."""


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
    """Metrics, of which the largest counts."""
    parents: tuple[str, ...]
    """Metrics that cannot be below it; none: it is not part of them."""
    section: str
    """The section of Nsight Compute that collects the metric."""
    rank: int = 1
    """Rank. 0: the unit's limit is the verdict whatever else is busy; 2: only if no other unit is
    at a limit."""
    lead: float = 0.0
    """Percentage points by which another unit of the rank has to be busier to come before it."""
    is_key: bool = True
    """Whether a verdict about units requires this metric."""
    queues: tuple[str, ...] = ()
    """Stall reasons of warps that find its queue full."""
    waits: tuple[str, ...] = ()
    """Stall reasons of warps that wait for its results: longer where it is busy, but there without
    that, too."""
    remedy: str = ""


UNITS: Mapping[str, Unit] = {unit.id: unit for unit in listed("units.csv", Unit)}
"""Units in the order in which the document of a diagnosis lists them."""


TOTAL = "smsp__average_warp_latency_per_inst_issued.ratio"


@dataclass(frozen=True, slots=True, kw_only=True)
class StallReason:
    """Meaning of a warp's state, and what helps."""

    name: str
    where: str
    """``all``: in every report; ``some``: on some chips; ``states``: a warp that can issue, which
    is no stall; ``amd``: not of NVIDIA."""
    is_hideable: bool = False
    """Whether more warps would hide it: a latency, not a queue that is full, nor instructions or
    constants that all warps fetch."""
    meaning: str = ""
    remedy: str = ""


_STATES = listed("stalls.csv", StallReason)
MEANINGS: Mapping[str, StallReason] = {one.name: one for one in _STATES if one.meaning}
REASONS = tuple(one.name for one in _STATES if one.where != "amd")
ISSUING = frozenset(one.name for one in _STATES if one.where == "states")
"""States of a warp that can issue; they are no stalls."""


def metric_of(reason: str) -> str:
    """The metric with the warps that wait for `reason`, per issue."""
    return f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"


def warps_waiting(launch: ProfiledLaunch, reason: str) -> tuple[float, str] | None:
    """The warps that wait for `reason`, per issue, and the metric or formula that shows it; None
    where the report does not have it."""
    metric = metric_of(reason)
    percent = metric.removesuffix("ratio") + "pct"
    if (value := launch.value(metric)) is not None:
        return value, metric
    value = launch.value(percent)
    return None if value is None else (value * 0.01, f"0.01 * {percent}")


@dataclass(frozen=True, slots=True)
class StallShares:
    """Shares of the time between two instructions of a warp."""

    shares: Mapping[str, float]
    """Reason -> share from 0 to 1, with the states that can issue."""
    metrics: Mapping[str, str]
    """Reason -> the metric that it was computed from."""
    total: str
    """Name of the divisor of the metrics."""
    unknown: float = 0.0
    """Share that no reason of the report accounts for."""
    missing: tuple[str, ...] = ()
    """Reasons that the report lacks, where that leaves the shares unknown."""
    opcodes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Reason -> opcode -> samples."""

    def ranked(self) -> list[tuple[str, float]]:
        """The stalls, the largest share first."""
        stalls = [(name, share) for name, share in self.shares.items() if name not in ISSUING]
        return sorted(stalls, key=lambda one: -one[1])


def stall_shares(launch: ProfiledLaunch) -> StallShares | None:
    """The shares of an NVIDIA launch; None where the report has no stall reasons."""
    found = {reason: warps_waiting(launch, reason) for reason in REASONS}
    ratios = {reason: one[0] for reason, one in found.items() if one is not None}
    known = sum(ratios.values())
    if known <= 0:
        return None
    total = launch.value(TOTAL)
    missing: tuple[str, ...] = ()
    if total is None or total <= 0:
        is_hopper = launch.info.capability.startswith("9.")
        expected = [one.name for one in _STATES if one.where in ("all", "states")]
        expected += ["gmma"] if is_hopper else []
        missing = tuple(name for name in expected if name not in ratios)
        total, divisor = known, "the sum of all stall reasons"
    else:
        divisor = TOTAL
    # Reasons and their sum come from different passes, so that they differ slightly.
    total = max(total, known)
    shares = {reason: value / total for reason, value in ratios.items()}
    metrics = {reason: one[1] for reason, one in found.items() if one is not None}
    return StallShares(shares, metrics, divisor, 1 - known / total, missing, _opcodes(launch))


_SAMPLED = {"warpgroup_arrive": "gmma", "no_instructions": "no_instruction"}
"""Name among the samples -> the reason, where they differ."""


def _opcodes(launch: ProfiledLaunch) -> Mapping[str, Mapping[str, int]]:
    """Samples of each reason, by the opcode of the instruction."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for sample in launch.info.samples:
        # ``WARPGROUP.DEPBAR.LE`` of ``@P0 WARPGROUP.DEPBAR.LE gsb0, 0x0``.
        words = re.sub(r"\A\s*@\S*", "", sample.instruction).split()
        opcode = words[0].rstrip(";,") if words else ""
        for name, count in sample.counts.items():
            if opcode and count:
                found[_SAMPLED.get(name, name)][opcode] += count
    return found


def share_of(
    name: str, part: CounterEvidence | None, whole: CounterEvidence | None
) -> CounterEvidence | None:
    """`part` of `whole` in percent; None where one is missing or `whole` is zero."""
    if part is None or whole is None or whole.value <= 0:
        return None
    return CounterEvidence(
        name, 100 * part.value / whole.value, "%", f"{term(part)} ÷ {term(whole)}"
    )


def percent(share: float) -> str:
    """A share from 0 to 1 in whole percent."""
    return f"{100 * share:.0f} %"


def term(value: CounterEvidence) -> str:
    """`value` as a part of a formula."""
    return value.metric if value.source == COUNTER else f"({value.source})"


def without(share: CounterEvidence) -> str:
    """Limit of the speedup without a share in percent; within the last percent, counts of
    different passes are too inexact for a figure."""
    rest = 100 - share.value
    return "more than 100×" if rest < 1 else f"at most {100 / rest:.3g}×"


NAMES = {"tensor": "the matrix unit", "fma": "the vector unit", "l1": "the LDS"}
"""Units whose names differ from those of NVIDIA's."""

_CYCLES = "GRBM_GUI_ACTIVE / num_xcc"


_VALU, _LDS = (
    Concept(name=name, unit="%", meaning=f"the use of the {units}",
            expressions=(f"100 * {busy} / ({_CYCLES} * {count})",))
    for name, units, busy, count in (
        ("valu_percent", "vector units", "4 * SQ_ACTIVE_INST_VALU", "simd_count"),
        ("lds_percent", "LDS", "SQ_LDS_IDX_ACTIVE", "cu_count"),
    )
)  # fmt: skip


CONCEPTS: Mapping[str, tuple[str | Concept, ...]] = {
    "tensor": ("tensor_pipe_percent",), "fma": (_VALU,), "l1": (_LDS,),
    "dram": ("dram_read_bytes", "dram_write_bytes"),
}  # fmt: skip
"""Unit -> what shows how busy it is, of those that have to be known for a verdict about latency."""


def device_of(facts: Facts) -> DeviceSpec | None:
    """The row of the table of GPUs; None where it is not certain."""
    info = facts.launch.info
    named = find_device(info.device) if info.device else None
    if named is not None:
        return named
    rows = devices_of(info.capability) if facts.is_amd and info.capability else ()
    return rows[0] if len(rows) == 1 else None


def utilisation(facts: Facts) -> dict[str, CounterEvidence]:
    """Id of a unit -> how busy it is, in percent of its peak."""
    found = {}
    for unit in ("tensor", "fma", "l1"):
        if (reading := reading_of(facts.launch, CONCEPTS[unit][0])) is not None:
            found[unit] = reading
    read, written = facts.get("dram_read_bytes"), facts.get("dram_write_bytes")
    device, time = device_of(facts), facts.duration_ns
    if read is not None and written is not None and device is not None and time:
        rate = (read.value + written.value) / time * 1e9
        found["dram"] = CounterEvidence(
            "memory bandwidth", 100 * rate / device.bandwidth_bytes_per_s, "%",
            f"({read.source} + {written.source}) ÷ time ÷ bandwidth of {device.name}",
        )  # fmt: skip
    return found


def open_question(facts: Facts, unit: str) -> tuple[str, str] | None:
    """Missing counter where those of `unit` are known but its use is not, and the option of
    rocprofv3 that records it."""
    if unit != "dram" or facts.lacks("dram_read_bytes", "dram_write_bytes"):
        return None
    if not facts.duration_ns:
        return "for how long the kernel ran", "--kernel-trace"
    return "which GPU it ran on", ""


def amd_stall_shares(facts: Facts) -> StallShares | None:
    """Shares of the waves' time; None where they were not counted."""
    waits, issue = facts.get("wait_percent"), facts.get("issue_wait_percent")
    if waits is None:
        return None
    shares = {"any": waits.value / 100}
    if issue is not None:
        shares["inst_issue"] = issue.value / 100
    metrics = {"any": "SQ_WAIT_ANY", "inst_issue": "SQ_WAIT_INST_ANY"}
    return StallShares(shares, metrics, "SQ_WAVE_CYCLES")


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
"""Bytes of a sector, the part of a line that caches move."""

SHORT_NS = 10_000
"""Duration below which starting the kernel is a large part of it."""

_ROUNDING = 0.5
"""Percentage points by which two executions of a kernel, in different passes, differ."""


class Facts:
    """A launch as the rules see it. Everything is computed once, when it is first needed."""

    def __init__(self, launch: ProfiledLaunch, work: GemmWork | None = None) -> None:
        self.launch, self.work = launch, work
        self.is_amd = launch.table.tool != "ncu"
        self.processor, self.block, self.warps = (
            ("compute unit", "workgroup", "Waves") if self.is_amd
            else ("multiprocessor", "block", "Warps")
        )  # fmt: skip
        """Vendor's names for multiprocessors, blocks of threads and warps."""
        self._known: dict[str, CounterEvidence | None] = {}

    @cached_property
    def kernel(self) -> KernelName:
        """Facts from the kernel's name."""
        return classify(self.launch.name)

    def metric(self, name: str) -> CounterEvidence | None:
        """A metric of the report, by its id; None where the report lacks it."""
        if (value := self.launch.value(name)) is None:
            return None
        return CounterEvidence(name, value, self.launch.unit(name), COUNTER)

    def get(self, concept: str) -> CounterEvidence | None:
        """The value of a concept of the catalogue; None where the report lacks it."""
        if concept not in self._known:
            self._known[concept] = reading_of(self.launch, concept)
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
        """Concepts that the report does not have."""
        return tuple(name for name in concepts if self.get(name) is None)

    @cached_property
    def sections(self) -> frozenset[str]:
        """The sections of Nsight Compute that were collected."""
        marked = (name for name, marks in SECTION_MARKS.items()
                  if None not in map(self.launch.value, marks))  # fmt: skip
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
            return "gfx942" if self.is_amd else "GH100"

    @cached_property
    def work_checks(self) -> tuple[WorkCheck, ...]:
        """Comparison of counted work with the model of the work."""
        return tuple(check_work(self, self.work))

    def differing_work(
        self, *verdicts: str
    ) -> Iterator[tuple[WorkCheck, float, list[CounterEvidence]]]:
        """Checks of the work with one of the verdicts: with the ratio of what was counted to what
        was expected, and both as evidence."""
        for one in self.work_checks:
            if one.verdict in verdicts and one.measured and one.expected:
                names = ("operations", "operations counted", "2·M·N·K")
                if one.quantity != OPERATIONS:
                    names = ("bytes moved", "dram_read_bytes + dram_write_bytes",
                             "compulsory bytes")  # fmt: skip
                unit = "" if one.quantity == OPERATIONS else "byte"
                yield one, one.measured / one.expected, [
                    CounterEvidence(names[0], one.measured, unit, names[1]),
                    CounterEvidence(names[2], one.expected, unit, "the shape"),
                ]  # fmt: skip

    @cached_property
    def utilisation(self) -> dict[str, CounterEvidence]:
        """Id of a unit -> how busy it is, in percent of its peak over the whole launch."""
        if self.is_amd:
            return utilisation(self)
        found = {}
        for unit in UNITS.values():
            values = [one for one in (self.metric(m + SUFFIX) for m in unit.metrics) if one]
            # What exceeds the busiest unit of the whole is none of the rates that bound it, such as
            # the part of `lts__throughput` that follows from the traffic of device memory.
            bounding = []
            for one in values:
                whole = self.launch.value(SM if one.metric.startswith("sm__") else MEMORY)
                if one.value <= (100.0 if whole is None else whole) + _ROUNDING:
                    bounding.append(one)
            usable = bounding or [one for one in values if "throughput" not in one.metric]
            if usable:
                found[unit.id] = max(usable, key=lambda one: one.value)
        return found

    def named(self, unit: Unit) -> str:
        """Name of a unit."""
        return NAMES.get(unit.id, unit.name) if self.is_amd else unit.name

    def unit_flags(self, unit: Unit) -> str:
        """The options of the profiler that show how busy `unit` is."""
        if not self.is_amd:
            return self.collect(sections=[unit.section])
        question = open_question(self, unit.id)
        return self.collect(CONCEPTS.get(unit.id, ())) if question is None else question[1]

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
        known = [one.value for one in self.utilisation.values()]
        top = reached[0][1].value if reached else max(known, default=0.0)
        found = []
        for unit in UNITS.values():
            matters = unit.id in CONCEPTS if self.is_amd else unit.is_key
            if unit.id in self.utilisation or not matters:
                continue
            wholes = [one for one in map(self.metric, unit.parents) if one is not None]
            # What a unit cannot exceed, in percent.
            limit = 100.0 if self.is_amd else min((one.value for one in wholes), default=100.0)
            is_explained = any(self._explains(one.metric, one.value) for one in wholes)
            lead = TENSOR_LEAD if unit.rank == 0 else -1 if is_explained else 1
            is_busier = limit >= NEAR and limit + lead > top and (not reached or unit.rank <= rank)
            if is_busier or (limit >= REACHED and unit.rank < rank):
                found.append(unit)
        return found

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
        """Upper limit of a kernel's speedup by `factor`, given how busy units are."""
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
        """Percent of the time that shared memory keeps L1's data stage busy; None where unknown."""
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
        """Use of the busiest part of the memory system in percent; None where unknown."""
        units = ("l1", "l2", "dram", "lsu", "texture")
        found = [one for name in units if (one := self.utilisation.get(name)) is not None]
        whole = None if self.is_amd else self.metric(MEMORY)
        return max([*found, *([whole] if whole else [])], key=lambda one: one.value, default=None)

    @cached_property
    def stalls(self) -> StallShares | None:
        """Stalls of the warps; None where the report does not have them."""
        return amd_stall_shares(self) if self.is_amd else stall_shares(self.launch)

    def waits_for(self, *reasons: str) -> bool:
        """Whether one of the reasons is the most frequent stall, or takes 20 % of the time."""
        ranked = self.stalls.ranked() if self.stalls is not None else []
        longest = [name for place, (name, share) in enumerate(ranked) if share >= 0.2 or not place]
        return not set(reasons).isdisjoint(longest)

    @cached_property
    def uses_async_copies(self) -> bool | None:
        """Whether the kernel feeds tensor cores through the tensor memory accelerator or
        asynchronous multiplications, so that few warps are normal; None where that was not
        counted."""
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
