"""The checklist of the Nsight Compute document, and NVIDIA's rules, next to a diagnosis.

The document gives targets (80, 70 and 60 percent), thresholds of stalls (30, 20 and 25 percent of
what it calls warp stalls) and of occupancy (50 percent), and what it expects to find. Here each is
answered from the counters as the document words it, with what the diagnosis says about it.

A diagnosis as a JSON document, and as a table with a row per finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from gemmetry.counters.facts import Facts, share_of, warps_waiting
from gemmetry.counters.model import LaunchDiagnosis
from gemmetry.counters.roofline import LaunchRoofline
from gemmetry.counters.work import GemmWork
from gemmetry.domain.rows import Row, fact
from gemmetry.formats.counters.launches import ProfiledLaunch

_MEMORY_STALLS = ("long_scoreboard", "lg_throttle")
"""Stalls that the document calls memory throttle: waiting for TMA and global loads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecklistItem:
    """One line of the checklist."""

    item: str
    target: str
    """The target or threshold as the document gives it; "" where it gives none."""
    measured: float | None
    """Measured value; None where the report lacks it."""
    unit: str
    answer: str
    """Conclusion of the document; "not in the report" where it lacks the counters."""
    remark: str = ""
    """Remark of the diagnosis on the conclusion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRemark:
    """Remark of a rule of NVIDIA's on a launch."""

    rule: str
    title: str
    speedup_percent: float | None
    speedup_kind: str
    remark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """The checklist, what the document expects, and NVIDIA's rules."""

    checklist: Sequence[ChecklistItem]
    insights: Sequence[ChecklistItem]
    rules: Sequence[RuleRemark]

    @property
    def conclusions(self) -> list[str]:
        """Conclusions of the document's thresholds, without values that are only shown."""
        return [one.answer for one in self.checklist if one.answer.endswith(" bound")]


_NO_SHARE = (
    "no share of the time, but 100 times the warps that wait when an instruction is issued; "
    "--section WarpStateStats collects the shares"
)
_ABSENT = "not in the report"


def side_by_side(
    launch: ProfiledLaunch, diagnosis: LaunchDiagnosis, work: GemmWork | None = None
) -> SideBySide:
    """The answers of the document and of NVIDIA's rules for a launch with its diagnosis."""
    facts = Facts(launch, work)
    return SideBySide(
        checklist=list(_checklist(facts, diagnosis)),
        insights=list(_insights(facts)),
        rules=[
            RuleRemark(
                rule=one.identifier,
                title=one.title or one.message.partition(". ")[0],
                speedup_percent=one.speedup_percent,
                speedup_kind=one.speedup_kind or "",
                remark=_suppressed(diagnosis, _ABOUT.get(one.identifier, ())),
            )
            for one in launch.info.rules
            if one.kind in ("optimization", "warning")
        ],
    )


def _suppressed(diagnosis: LaunchDiagnosis, prefixes: str | tuple[str, ...]) -> str:
    """Reason why a finding whose id begins so was suppressed; "" if none was."""
    return next((f"suppressed: {one.reason}" for one in diagnosis.suppressed
                 if one.id.startswith(prefixes)), "")  # fmt: skip


def _reason(diagnosis: LaunchDiagnosis, *prefixes: str) -> str:
    """Reason why such findings are suppressed, or the one that agrees; "" without either."""
    agreeing = (f"agrees: {one.id}" for one in diagnosis.findings if one.id.startswith(prefixes))
    return _suppressed(diagnosis, prefixes) or next(agreeing, "")


def _checklist(facts: Facts, diagnosis: LaunchDiagnosis) -> Iterator[ChecklistItem]:
    sm = facts.value("compute_percent")
    units = [one for one, _ in sorted(facts.busiest(at_least=0.0), key=lambda one: -one[1].value)]
    busiest = f"the busiest unit is {facts.named(units[0])}" if units else ""
    inside = next((one for one in units if one.id in ("dram", "l2", "l1", "lsu")), None)
    is_other = inside is not None and inside.id != "dram"
    other = f"it is {inside.name}, not device memory" if is_other and inside else ""
    for item, target, found, above, remark in (
        ("SM throughput", 80, sm, "target met", busiest),
        ("Memory throughput", 70, facts.value("memory_percent"), "memory bound", other),
        ("Compute throughput", 60, sm, "target met", "the same metric as SM throughput"),
    ):
        answer = above if found is not None and found > target else "target missed"
        yield _item(item, found, f"> {target} %", answer=answer, remark=remark)
    for item, threshold, reasons, answer, ids in (
        ("Stalls on memory", 30, _MEMORY_STALLS, "memory bound",
         ("latency_long_scoreboard", "latency_lg_throttle", "latency_tma")),
        ("Stalls on the math pipe", 20, ("math_pipe_throttle",), "compute bound",
         ("latency_math",)),
        ("Stalls on barriers", 25, ("barrier",), "sync bound",
         ("latency_barrier", "latency_gmma")),
        ("Stalls on MIO", None, ("mio_throttle",), "", ()),
    ):  # fmt: skip
        share = _stall_share(facts, reasons)
        value = _warps_waiting(facts, reasons) if share is None else share
        fires = None not in (threshold, value) and value > threshold  # type: ignore[operator]
        yield _item(
            item, value, "" if threshold is None else f"> {threshold} %",
            answer=answer if fires else "",
            remark=_NO_SHARE if share is None else _reason(diagnosis, *ids) if fires else "",
        )  # fmt: skip
    yield from _occupancy(facts, diagnosis)
    conflicts = share_of(
        "bank conflicts", facts.get("shared_conflicts"), facts.get("shared_wavefronts")
    )
    for item, part, remark in (
        ("L2 hit rate", facts.get("l2_hit_percent"), ""),
        ("Shared-memory bank conflicts", conflicts, "of all accesses to shared memory"),
    ):
        measured, unit = (None, "") if part is None else (part.value, part.unit)
        yield _item(item, measured, remark=remark, unit=unit)
    yield from _tma(facts)


def _item(
    item: str, measured: float | None, target: str = "", *, answer: str = "", remark: str = "",
    unit: str = "%",
) -> ChecklistItem:  # fmt: skip
    """A line; its answer and remark hold where the report has what is `measured`."""
    if measured is None:
        answer, remark = _ABSENT, ""
    return ChecklistItem(
        item=item, target=target, measured=measured, unit=unit, answer=answer, remark=remark
    )


def _warps_waiting(facts: Facts, reasons: Sequence[str]) -> float | None:
    """The metrics as the document requests them; None where the report lacks one of them."""
    found = [warps_waiting(facts.launch, name) for name in reasons]
    known = [100 * one[0] for one in found if one is not None]
    return sum(known) if len(known) == len(found) else None


def _stall_share(facts: Facts, reasons: Sequence[str]) -> float | None:
    """The share of the stall reasons together, in percent of the warps' time."""
    if facts.stalls is None or facts.stalls.missing:
        return None
    found = [facts.stalls.shares[name] for name in reasons if name in facts.stalls.shares]
    return 100 * sum(found) if found else None


def _occupancy(facts: Facts, diagnosis: LaunchDiagnosis) -> Iterator[ChecklistItem]:
    for word in ("theoretical", "achieved"):
        found = facts.value(f"occupancy_{word}_percent")
        is_low = found is not None and found < 50
        yield _item(
            f"{word.capitalize()} occupancy", found, "< 50 %",
            answer="occupancy bound" if is_low else "",
            remark=_reason(diagnosis, "occupancy") if is_low else "",
        )  # fmt: skip
    limits = {
        name: value
        for name in ("blocks", "registers", "shared_mem", "warps", "barriers")
        if (value := facts.value(f"occupancy_limit_{name}")) is not None
    }
    least = min(limits.values(), default=None)
    yield ChecklistItem(
        item="Limiting factor", target="", measured=least, unit="block",
        answer=", ".join(name for name, value in limits.items() if value == least) or _ABSENT,
    )  # fmt: skip


def _tma(facts: Facts) -> Iterator[ChecklistItem]:
    filled = [one for one in facts.work_checks if one.quantity == "bytes of tiles"]
    tma, read = facts.value("tma_load_bytes"), facts.value("l2_read_bytes_from_sm")
    remark = filled[0].reason if filled else "it needs the shape: --shape MxNxK"
    efficiency = None
    if filled and filled[0].expected and filled[0].measured:
        efficiency = 100 * filled[0].expected / filled[0].measured
    if tma is not None and tma <= 0:
        remark = "the kernel has no copies by the tensor memory accelerator"
    yield ChecklistItem(
        item="TMA efficiency", target="", measured=efficiency,
        unit="%", answer="" if efficiency is not None else "not applicable",
        remark=f"bytes the tiles need over bytes moved: {remark}",
    )  # fmt: skip
    cluster = facts.value("cluster_size")
    factor = tma / read if tma and read else None
    yield ChecklistItem(
        item="TMA multicast", target="", measured=factor, unit="×",
        answer=("multicast" if factor > 1.05 else "no multicast") if factor else "not applicable",
        remark="bytes delivered over bytes read from the L2 cache"
        + (f"; a cluster has {cluster:.0f} blocks" if cluster else ""),
    )  # fmt: skip


def _insights(facts: Facts) -> Iterator[ChecklistItem]:
    memory, barrier = _stall_share(facts, _MEMORY_STALLS), _stall_share(facts, ("barrier",))
    tensor = facts.utilisation.get("tensor")
    for item, low, high, value in (
        ("Memory stalls", 60.0, 70.0, memory),
        ("Barrier stalls", 15.0, 25.0, barrier),
        ("Tensor cores in use", 70.0, 100.0, None if tensor is None else tensor.value),
    ):
        target = f"> {low:.0f} %" if high == 100.0 else f"{low:.0f}–{high:.0f} %"
        is_expected = value is not None and low <= value <= high
        yield _item(item, value, target, answer="as expected" if is_expected else "not as expected")


_ABOUT = {
    "TheoreticalOccupancy": "occupancy", "AchievedOccupancy": "occupancy",
    "CPIStall": "latency", "SharedMemoryConflicts": "shared_bank_conflicts",
    "UncoalescedGlobalAccess": "uncoalesced_access", "IssueSlotUtilization": "latency",
}  # fmt: skip
"""NVIDIA's rule -> the beginning of the findings about the same thing."""


BRIEF_FINDINGS = 3
"""Findings of a brief diagnosis."""
_BRIEF = ("id", "claim", "confidence", "remedy", "collect")


def launch_document(
    diagnosis: LaunchDiagnosis,
    roofline: LaunchRoofline | None = None,
    checklists: SideBySide | None = None,
) -> dict[str, Any]:
    """One launch, whole."""
    found = {**asdict(diagnosis), "roofline": None}
    if roofline is not None:
        found["roofline"] = {**asdict(roofline), "attainable": roofline.attainable}
    if checklists is not None:
        found["side_by_side"] = asdict(checklists)
    return found


def brief_document(diagnosis: LaunchDiagnosis) -> dict[str, Any]:
    """One launch with its verdict and the first findings, without evidence."""
    return {
        "kernel": diagnosis.kernel,
        "device": diagnosis.device,
        "duration_ns": diagnosis.duration_ns,
        "verdict": asdict(diagnosis.verdict),
        "findings": [{name: getattr(one, name) for name in _BRIEF}
                     for one in diagnosis.findings[:BRIEF_FINDINGS]],
    }  # fmt: skip


class DiagnosisRow(Row):
    """A verdict, finding or suppressed finding of a launch."""

    launch: int = fact("position in the report, from 0")
    kernel: str = fact("its name")
    device: str = fact()
    duration_ns: float | None = fact("time on the GPU", "ns")
    kind: str = fact("verdict, finding or suppressed")
    id: str = fact("of the verdict or finding")
    claim: str = fact()
    confidence: str | None = fact(default=None)
    evidence: str | None = fact("metrics with their values", default=None)
    threshold: str | None = fact(default=None)
    against: str | None = fact("what speaks against it, or why it is suppressed", default=None)
    remedy: str | None = fact(default=None)
    ceiling: str | None = fact("what can be gained at most", default=None)
    collect: str | None = fact("options of the profiler that collect what is missing", default=None)


def diagnosis_rows(diagnoses: Iterable[LaunchDiagnosis]) -> Iterator[DiagnosisRow]:
    """A row for each verdict, finding and suppressed finding."""
    for number, launch in enumerate(diagnoses):
        row = partial(DiagnosisRow, launch=number, kernel=launch.kernel, device=launch.device,
                      duration_ns=launch.duration_ns)  # fmt: skip
        verdict = launch.verdict
        yield row(kind="verdict", id=verdict.id, claim=verdict.claim, confidence=verdict.confidence)
        for one in launch.findings:
            evidence = "; ".join(f"{e.metric} = {e.value:.6g} {e.unit}" for e in one.evidence)
            yield row(kind="finding", id=one.id, claim=one.claim, confidence=one.confidence,
                      evidence=evidence, threshold=one.threshold, against=one.against,
                      remedy=one.remedy, ceiling=one.ceiling, collect=one.collect)  # fmt: skip
        for void in launch.suppressed:
            yield row(kind="suppressed", id=void.id, claim=void.claim, against=void.reason)
