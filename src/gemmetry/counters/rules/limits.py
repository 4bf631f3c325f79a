"""Rules of limits: what a verdict can be, from counters that mean nothing to latencies."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from functools import partial

from gemmetry.counters import facts as amd
from gemmetry.counters.facts import (
    CLEAR,
    ISSUING,
    MAY_BE_UNLISTED,
    MEANINGS,
    MEMORY,
    NEAR,
    REACHED,
    REASONS,
    SHORT_NS,
    SM,
    TENSOR_LEAD,
    UNITS,
    Facts,
    StallShares,
    Unit,
    percent,
)
from gemmetry.counters.gates import ROOF_VERDICTS, at_its_rate, roof_claim
from gemmetry.counters.model import (
    CANNOT_TELL,
    COUNTER,
    HIGH,
    LOW,
    MEDIUM,
    WORK_MISMATCH,
    Claim,
    CounterEvidence,
    Gate,
    Judgement,
    NotCounted,
    Suppressed,
    rule,
)
from gemmetry.counters.work import MISMATCHES, OPERATIONS, TOLERANCE, counters_of
from gemmetry.domain.units import plural
from gemmetry.traces.names import KernelKind

_EVERYTHING = frozenset(Gate) - {Gate.VALIDITY}
_COUNTERS = ("sm__", "smsp__", "l1tex__", "lts__", "dram__", "fbpa__", "gpu__", "idc__", "SQ_",
             "TCC_", "TCP_", "TA_", "TD_", "FETCH_SIZE", "WRITE_SIZE")  # fmt: skip
"""Prefixes of counters' names."""
_OF_TIME = ("cycles_elapsed", "time_", "maximum", "peak_sustained.", "per_second")
"""Parts of the names of metrics that are not zero although nothing was counted."""
_MANY = 5
"""Number of units of which a kernel uses one."""
_SLACK = 10.0
"""Percentage points that passes of one kernel can differ by."""


@rule(
    gate=Gate.VALIDITY,
    verdicts={CANNOT_TELL: "the counters do not show what bounds the kernel; the reason is given"},
    needs=(),
    threshold="a collective by its name; a part above its whole; more than 105 % of a peak; zeros",
    threshold_source="definition of the metrics; issues of NCCL and of rocprofiler-sdk about "
    "kernels that are replayed alone, and about GPUs whose counters read zero",
)
def validity(facts: Facts) -> Iterator[Claim]:
    """Counters that mean nothing: communication kernels, contradictions, and reports of zeros."""
    if facts.kernel.kind is KernelKind.COLLECTIVE:
        yield _void(
            "By its name it is a communication kernel. Replayed alone, as profilers do, such a "
            "kernel waits for ranks that are not there",
            remedy="Record a trace for communication, or collect with --replay-mode range.",
        )
        return
    wrong = [one for one in facts.utilisation.values() if not 0 <= one.value <= 105]
    if wrong:
        yield _void(
            f"The counters contradict each other: {wrong[0].metric} is {wrong[0].value:.0f} %",
            evidence=wrong[:1],
            remedy="Collect again, and with --clock-control base if clocks changed.",
        )
        return
    for name, value in facts.utilisation.items():
        parents = () if facts.is_amd else UNITS[name].parents
        wholes = [one for one in map(facts.metric, parents) if one is not None]
        whole = max(wholes, key=lambda one: one.value, default=None)
        is_part = whole is not None and "throughput" not in value.metric
        if is_part and whole is not None and value.value > max(whole.value + _SLACK, NEAR):
            yield _void(
                f"The counters contradict each other: {value.metric} is {value.value:.0f} %, "
                f"but {whole.metric}, of which it is a part, {whole.value:.0f} %",
                evidence=[value, whole],
                remedy="Collect again; passes saw different executions of the kernel.",
            )
            return
    if _all_zero(facts):
        yield _void(
            "All units show zero percent, although a kernel ran",
            remedy="Check that the driver and the profiler support this GPU.",
        )


def _all_zero(facts: Facts) -> bool:
    """Whether nothing was counted. A single unit may do nothing, and a summary rounds to two
    digits: either every counter is zero, or all of the many units that a report lists."""
    counters = [
        value for name, value in facts.launch.metrics().items()
        if name.startswith(_COUNTERS) and not any(word in name for word in _OF_TIME)
    ]  # fmt: skip
    if not any(counters):
        return bool(facts.utilisation)
    wholes = [one.value for one in map(facts.metric, (SM, MEMORY)) if one is not None]
    known = [one.value for one in facts.utilisation.values()]
    is_whole = not facts.is_amd and not facts.launch.table.sections
    return is_whole and len(known) >= _MANY and len(wholes) == 2 and not any(known + wholes)


def _void(claim: str, *, remedy: str, evidence: list[CounterEvidence] | None = None) -> Claim:
    return Claim(
        id=CANNOT_TELL, claim=claim, evidence=evidence or [], weight=1.0,
        confidence=HIGH, remedy=remedy, voids=_EVERYTHING,
        because="the counters do not describe how the kernel usually runs",
    )  # fmt: skip


_OPERATIONS = ("tensor_ops_bf16", "tensor_ops_fp16", "tensor_ops_tf32", "tensor_ops_fp8",
          "vector_ops_fp32")  # fmt: skip


@rule(
    gate=Gate.WORK,
    verdicts={WORK_MISMATCH: "the operations counted are not those of the shape or the format"},
    needs=_OPERATIONS,
    threshold=f"operations differ by more than {percent(TOLERANCE)} from 2·M·N·K and from what "
    "padded tiles explain, or are on the path of another format",
    threshold_source="model of the work; counts on an H200 agree to the last digit",
)
def work_mismatch(facts: Facts) -> Iterator[Claim | NotCounted]:
    """The kernel did other work than was described."""
    checks = [one for one in facts.work_checks if one.quantity == OPERATIONS]
    if any(one.measured is None and one.expected is not None for one in checks):
        flags = facts.collect(facts.lacks(*counters_of(facts.work)))
        yield NotCounted("whether the kernel did the work described", flags)
    for check, _, evidence in facts.differing_work(*MISMATCHES):
        if check.quantity == OPERATIONS:
            yield Claim(
                id=WORK_MISMATCH,
                claim=f"The kernel did other work than described: {check.reason}",
                evidence=evidence,
                weight=1.0,
                confidence=HIGH,
                remedy="Check the shape and the format, then which algorithm was chosen.",
            )


_VOIDS = frozenset({Gate.GRID, Gate.NEAR_ROOF, Gate.LATENCY})
_OF_UNITS = ("ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis")
"""Sections that show which unit of a whole is busy."""


@rule(
    gate=Gate.ROOF,
    verdicts={
        **ROOF_VERDICTS,
        "other_roof": "a unit that is not listed here works at its limit",
    },
    needs=("tensor_pipe_percent", "compute_percent", "memory_percent", "dram_percent",
           "l2_percent", "shared_pipe_percent", "lsu_requests_percent"),
    threshold=f"{REACHED:.0f} % of the peak rate over the whole launch; tensor cores come before "
    "other units, and instruction issue after them; the busiest of the others decides",
    threshold_source="NVIDIA's rule SOLBottleneck: above 80 %, work has to move to another unit",
)  # fmt: skip
def roofs(facts: Facts) -> Iterator[Claim | NotCounted]:
    """A unit of the GPU works at its limit."""
    open_units = facts.open_units()
    for unit in open_units:
        yield NotCounted(_question(facts, unit), facts.unit_flags(unit))
    reached = facts.busiest(at_least=REACHED)
    unlisted = facts.unlisted
    if unlisted is not None and unlisted.value >= REACHED and _is_first(unlisted, reached):
        if unlisted.metric in (SM, MEMORY):
            flags = facts.collect(sections=("SpeedOfLight", *_OF_UNITS))
            yield NotCounted(at_its_rate(unlisted), flags)
        elif not open_units:
            yield Claim(
                id="other_roof",
                claim=f"{unlisted.metric} is at {unlisted.value:.1f} % of its peak",
                evidence=[unlisted],
                weight=0.995,
                ceiling=f"at most {100 / unlisted.value:.2f}×",
                voids=_VOIDS,
                because="warps wait because this unit is busy",
                units=frozenset({"other"}),
            )
    for unit, value in reached:
        is_clear = value.value >= CLEAR
        # Of the units that come second, any that was not counted may be busier.
        may_be_second = unit.rank > 0 and (facts.lacks_parents or bool(facts.rivals))
        confidence = HIGH if is_clear else MEDIUM
        if may_be_second:
            confidence = MEDIUM if is_clear else LOW
        yield roof_claim(
            facts, unit, value, confidence,
            voids=_VOIDS, doubt=_doubt(facts) if may_be_second else "",
        )  # fmt: skip


def _doubt(facts: Facts) -> str:
    """Names of units that may be busier: those not counted, and those not listed."""
    rivals = [facts.named(unit) for unit in facts.rivals]
    doubts = [f"Not counted, and possibly busier: {', '.join(rivals)}"] if rivals else []
    return ". ".join([*doubts, *([MAY_BE_UNLISTED] if facts.lacks_parents else [])])


def _is_first(unlisted: CounterEvidence, reached: Sequence[tuple[Unit, CounterEvidence]]) -> bool:
    """Whether a unit that is not listed comes before those at their limit."""
    if not reached or reached[0][0].rank == 2:
        return True
    return reached[0][0].rank == 1 and unlisted.value + 1 >= reached[0][1].value


def _question(facts: Facts, unit: Unit) -> str:
    """Open question; one for all units of a whole that is known."""
    top = max((one.value for one in facts.utilisation.values()), default=0.0)
    for whole in unit.parents:
        known = facts.metric(whole)
        if known is not None and known.value >= NEAR and known.value > top + 1:
            return at_its_rate(known)
    question = amd.open_question(facts, unit.id) if facts.is_amd else None
    return question[0] if question is not None else f"how busy {facts.named(unit)} is"


_IDLE = 0.2
"""Share of the multiprocessors' time without a warp."""


@rule(
    gate=Gate.GRID,
    verdicts={
        "grid_too_small": "the grid has fewer blocks than the GPU has multiprocessors, or too few "
        "to hide latencies",
        "tail_wave": "the last wave of blocks leaves multiprocessors without work",
        "launch_overhead": "starting and ending the kernel takes most of the time in which "
        "multiprocessors have no work",
        "block_imbalance": "blocks take differently long, so that multiprocessors run out of work",
    },
    needs=("blocks", "sm_count", "sm_active_percent", "sm_active_cycles_max", "elapsed_cycles",
           "waves_per_sm"),
    threshold=f"{percent(_IDLE)} of the multiprocessors' time without a warp",
    threshold_source="what separates the roofs' 80 % from a whole GPU; NVIDIA's rule Small Grid "
    "(waves < 1) and its tail effect, waves ÷ ⌈waves⌉, give the cause",
)  # fmt: skip
def grid(facts: Facts) -> Iterator[Judgement]:
    """Multiprocessors without work: few blocks, a last wave, blocks of unlike length, a start."""
    blocks, count = _blocks(facts), facts.get("sm_count")
    if blocks is not None and count is not None and 1 <= blocks.value <= (1 - _IDLE) * count.value:
        idle = 1 - blocks.value / count.value
        yield Claim(
            id="grid_too_small",
            claim=f"The grid has {plural(int(blocks.value), facts.block)} for "
            f"{plural(int(count.value), facts.processor)}",
            evidence=[blocks, count],
            weight=idle,
            confidence=HIGH if facts.nearest is None or facts.nearest[1] < NEAR else MEDIUM,
            remedy=f"Split the work into more {facts.block}s: smaller tiles, or slices of K.",
            ceiling=facts.at_most(count.value / blocks.value),
            voids=frozenset({Gate.LATENCY}),
            because=f"few {facts.processor}s have work at all; what they wait for comes second",
        )  # fmt: skip
        return
    active = facts.get("sm_active_percent")
    if active is None:
        if blocks is None or count is None or not facts.is_amd:
            flags = facts.collect(["sm_active_percent", "blocks"])
            yield NotCounted(f"for how long {facts.processor}s had work", flags)
        return
    if active.value <= 0:
        return  # Not counted: a kernel that ran had a multiprocessor.
    waves = facts.get("waves_per_sm")
    idle = 1 - active.value / 100
    tail = 0.0 if waves is None else 1 - waves.value / max(math.ceil(waves.value), 1)
    if idle < _IDLE:
        if tail >= _IDLE and waves is not None and waves.value > 1:
            yield Suppressed(
                "tail_wave",
                f"the last of {waves.value:.2f} waves leaves {percent(tail)} of the GPU idle",
                f"{facts.processor}s had work for {active.value:.1f} % of the time",
            )
        return
    yield _idle_claim(facts, active, idle, tail, is_known=None not in (waves, blocks, count))


def _idle_claim(
    facts: Facts, active: CounterEvidence, idle: float, tail: float, *, is_known: bool
) -> Claim:  # fmt: skip
    """Claim why multiprocessors are idle although there are blocks for all of them."""
    waves, longest = facts.get("waves_per_sm"), facts.get("sm_active_cycles_max")
    elapsed = facts.value("elapsed_cycles")
    # Before the first and after the last block, no multiprocessor has work.
    overhead = 1 - longest.value / elapsed if longest is not None and elapsed else 0.0
    confidence = MEDIUM if is_known and longest is not None else LOW
    without_work = f"{facts.processor}s have no work for {percent(idle)} of the time"
    is_short = longest is None and (facts.duration_ns or math.inf) < SHORT_NS
    name = "block_imbalance"
    claim = (
        f"{facts.block.capitalize()}s take differently long: {without_work}"
        if longest is not None
        else f"{without_work.capitalize()}: {facts.block}s take differently long, or starting "
        "takes long"
    )
    remedy = f"Give each {facts.block} the same work, or let idle {facts.block}s take work from "
    remedy += "a queue."
    if 2 * overhead > idle or is_short:
        name = "launch_overhead"
        claim = f"Starting and ending the kernel takes {percent(overhead)} of the time"
        if is_short:
            claim = f"{without_work.capitalize()}, probably while the kernel starts and ends"
        remedy = "Give it more work, fuse it with its neighbours, or launch it in a graph."
    elif waves is not None and waves.value > 1 and 2 * tail >= idle:
        name = "tail_wave"
        claim = f"The last of {waves.value:.2f} waves fills a part of the GPU: {without_work}"
        confidence = HIGH if tail >= _IDLE and confidence is not LOW else confidence
        remedy = f"Choose a {facts.block} size or a tile with which the waves are whole, or "
        remedy += f"persistent {facts.block}s that share the rest."
    return Claim(
        id=name,
        claim=claim,
        evidence=[one for one in (active, waves, longest) if one is not None],
        weight=idle,
        confidence=confidence,
        remedy=remedy,
        ceiling=facts.at_most(100 / active.value),
    )


def _blocks(facts: Facts) -> CounterEvidence | None:
    found = facts.get("blocks")
    if found is None and facts.launch.info.grid is not None:
        return CounterEvidence(
            "grid", float(math.prod(facts.launch.info.grid)), facts.block, COUNTER
        )
    return found


LIKELY = 70.0
"""Percent from which the unit is more likely the reason than the latencies that remain."""
_UNSPECIFIC = "any", "inst_issue"
"""Waits on AMD: the counters do not show for what."""
_BY_DESIGN = "barrier", "long_scoreboard", "tma", "sleeping"
"""Stalls of warps that only start copies and multiplications."""


@rule(
    gate=Gate.NEAR_ROOF,
    verdicts={},
    needs=("tensor_pipe_percent", "compute_percent", "memory_percent"),
    threshold=f"{NEAR:.0f} % of the peak rate over the whole launch; {LIKELY:.0f} % for more than "
    f"a low confidence; tensor cores, unless another unit is {TENSOR_LEAD:.0f} points busier. A "
    "stall with a higher confidence that the unit does not cause comes first",
    threshold_source="NVIDIA's rule SOLBottleneck: below 60 % of both peaks, latency is the limit",
)
def near_roof(facts: Facts) -> Iterator[Claim | NotCounted]:
    """A unit comes close to its limit, and none is at it."""
    near = facts.busiest(at_least=NEAR)
    if any(value.value >= REACHED for _, value in near):
        return
    unlisted = facts.unlisted
    top = max((value.value for _, value in near), default=0.0)
    if unlisted is not None and unlisted.value >= NEAR and unlisted.value + 1 > top:
        yield NotCounted(at_its_rate(unlisted), facts.collect(sections=_OF_UNITS))
    for unit, value in sorted(near, key=_nearness)[:1]:
        its_own = frozenset(_waits(facts, unit, True))
        is_sure = not (facts.lacks_parents or _may_be_a_clear_wait(facts, its_own))
        is_likely = value.value >= LIKELY and is_sure
        yield roof_claim(
            facts, unit, value, MEDIUM if is_likely else LOW,
            agrees=frozenset(f"latency_{name}" for name in _waits(facts, unit, is_likely)),
        )  # fmt: skip


def _waits(facts: Facts, unit: Unit, is_likely: bool) -> Iterator[str]:
    """Waits of warps if `unit` is the limit."""
    yield from _UNSPECIFIC
    yield from unit.queues
    if is_likely:
        yield from unit.waits
    if unit.rank == 0 and facts.uses_async_copies is not False:
        yield from _BY_DESIGN


def _may_be_a_clear_wait(facts: Facts, its_own: Set[str]) -> bool:
    """Whether one stall reason, none of a unit's `its_own`, would dominate if the report had all
    others."""
    stalls = facts.stalls
    if stalls is None or not (ranked := stalls.ranked()):
        return False
    (reason, share), second = ranked[0], ranked[1][1] if ranked[1:] else 0.0
    is_clear = share >= _STALLED_MOST and 2 * second <= share < 2 * stalls.unknown
    return is_clear and _attribute(facts, stalls, reason)[0] not in its_own


def _nearness(one: tuple[Unit, CounterEvidence]) -> tuple[bool, float]:
    unit, value = one
    return unit.rank == 2, -(value.value + (TENSOR_LEAD if unit.rank == 0 else unit.lead))


_STALLED = 0.3
"""Share of the time between two instructions from which a reason counts (NVIDIA's CPIStall)."""
_STALLED_MOST = 0.5
_ATTRIBUTED = 0.5
"""Share of a reason's samples at one kind of instruction from which that is its cause."""
_SAMPLED_AT = {
    ("barrier", "WARPGROUP.DEPBAR"): (
        "gmma", "the tensor cores: the samples are at WARPGROUP.DEPBAR, not at a barrier"
    ),
    ("long_scoreboard", "SYNCS"): (
        "tma", "copies of the tensor memory accelerator: the samples are at SYNCS"
    ),
    ("long_scoreboard", "NANOSLEEP"): (
        "tma", "copies of the tensor memory accelerator: the samples are at NANOSLEEP"
    ),
    ("long_scoreboard", "LDL"): ("local_memory", "local memory: the samples are at users of LDL"),
}  # fmt: skip
"""Reason and opcode -> the real cause of waiting, as samples of a product on an H200 show."""


@rule(
    gate=Gate.LATENCY,
    verdicts={
        **{
            f"latency_{reason}": f"warps wait {MEANINGS[reason].meaning}"
            for reason in REASONS
            if reason not in ISSUING
        },
        "latency_tma": "warps wait for copies of the tensor memory accelerator (by samples)",
        "latency_local_memory": "warps wait for local memory (by samples)",
        "latency_any": "AMD: waves wait; the counters do not show for what",
        "latency_inst_issue": "AMD: waves wait to issue an instruction",
        "latency_mixed": "warps wait for several things, none of which dominates",
    },
    needs=("warp_latency", "stall_barrier", "stall_long_scoreboard", "issue_active"),
    threshold=f"a stall reason takes {percent(_STALLED)} of the time between two instructions of a "
    f"warp (high confidence: {percent(_STALLED_MOST)}, and twice the next); shares are ratios over "
    "their sum, without the states selected and not_selected",
    threshold_source="NVIDIA's rule CPIStall: more than 30 %, with issue slots below 80 %",
)
def latency(facts: Facts) -> Iterator[Claim | NotCounted]:
    """What warps wait for, where no unit is near its limit."""
    stalls = facts.stalls
    ranked = stalls.ranked() if stalls is not None else []
    if stalls is None or not ranked:
        concepts = ["wait_percent"] if facts.is_amd else []
        yield NotCounted("what warps wait for", facts.collect(concepts, ["WarpStateStats"]))
        return
    reason, share = ranked[0]
    if stalls.missing or stalls.unknown > share:
        named = ", ".join(stalls.missing) or f"{percent(stalls.unknown)} of their time"
        flags = facts.collect(sections=["WarpStateStats"])
        yield NotCounted(f"what the other stall reasons are ({named})", flags)
        return
    second = ranked[1][1] if ranked[1:] else 0.0
    yield _latency(facts, stalls, reason, share, max(second, stalls.unknown))


def _latency(
    facts: Facts, stalls: StallShares, reason: str, share: float, second: float
) -> Claim:  # fmt: skip
    meaning = MEANINGS[reason]
    evidence = [
        CounterEvidence(
            f"share of {name}", 100 * part, "%", f"{stalls.metrics[name]} ÷ {stalls.total}"
        )
        for name, part in stalls.ranked()[:3]
        if part >= 0.05
    ]
    issue = facts.get("issue_active")
    others = ", ".join(
        f"{name.replace('_', ' ')} {percent(part)}"
        for name, part in stalls.ranked()[1:4]
        if part >= 0.1
    )
    common = partial(
        Claim, evidence=[*evidence, *([issue] if issue is not None else [])], weight=share,
        against=f"also: {others}" if others else "",
    )  # fmt: skip
    if share < _STALLED:
        return common(
            id="latency_mixed",
            claim=f"{facts.warps} wait for several things; the most, {percent(share)} of the time, "
            f"{meaning.meaning}",
            confidence=LOW,
            remedy=meaning.remedy,
        )
    is_clear = share >= _STALLED_MOST and share >= 2 * second
    name, what, attributed = _attribute(facts, stalls, reason)
    return common(
        id=f"latency_{name}",
        claim=f"{facts.warps} spend {percent(share)} of their time waiting "
        f"{what or meaning.meaning}",
        confidence=(HIGH if is_clear else MEDIUM) if attributed else LOW,
        remedy=MEANINGS[name].remedy if name in MEANINGS else meaning.remedy,
        ceiling=facts.at_most(math.inf)
        if facts.nearest
        else "unknown: it depends on which wait comes next",
        stalls=frozenset({reason}),
    )


def _attribute(facts: Facts, stalls: StallShares, reason: str) -> tuple[str, str, bool]:
    """The cause of a reason by the instructions at which it was sampled, its words, and whether
    the reason can be believed."""
    opcodes = stalls.opcodes.get(reason, {})
    total = sum(opcodes.values())
    for (of_reason, opcode), (cause, words) in _SAMPLED_AT.items():
        if of_reason != reason or not total:
            continue
        at = sum(count for name, count in opcodes.items() if name.startswith(opcode))
        if at >= _ATTRIBUTED * total:
            return cause, f"for {words}", True
    tensor = facts.utilisation.get("tensor")
    may_multiply = facts.uses_async_copies is not False and (tensor is None or tensor.value > 1)
    return reason, "", bool(reason != "barrier" or total or not may_multiply)
