"""Sectors of global memory that are moved although few of their bytes are used."""

from __future__ import annotations

from collections.abc import Iterator

from gemmetry.counters.diagnosis.facts import NEAR, SECTOR_BYTES, Facts, share_of, without
from gemmetry.counters.diagnosis.model import (
    Claim,
    Confidence,
    CounterEvidence,
    Dismissed,
    Gate,
    Judgement,
    Rule,
)

_SHARE = 25.0
_CAUSES = 50.0
_BUSY = 30.0
"""Percent of the rate of the memory system below which its bytes cause no waits."""
_COALESCED = 4.0
"""Sectors of a request in which 32 threads access four bytes each."""
_WIDEST = 16.0
"""The same with sixteen bytes each, the most that a thread can access."""
_THEORETICAL = "memory_l2_theoretical_sectors_global"
_BYTES = "smsp__sass_average_data_bytes_per_sector_mem_global_op_{}.ratio"


def _judge(facts: Facts) -> Iterator[Judgement]:
    share = _excess(facts) or _unused(facts)
    if share is None:
        return
    if share.value < _SHARE:
        return
    sectors = facts.total("global_load_sectors", "global_store_sectors")
    part = facts.share_of_l2(sectors)
    claim = f"{share.value:.0f} % of the bytes that global accesses move are not used"
    if part is not None and part < 5:
        yield Dismissed(
            "uncoalesced_access", claim,
            f"global accesses are {part:.1f} % of the traffic of the L2 cache",
        )  # fmt: skip
        return
    busy = facts.memory_use
    # Where the memory has little to do, warps wait for latencies, not for these bytes.
    is_waste_felt = busy is not None and busy.value >= NEAR
    against = ""
    if busy is not None and not is_waste_felt:
        against = (
            f"The memory is at {busy.value:.0f} % of its rate at most, so that fewer bytes alone "
            "gain little. Accesses to many pages also wait for the translation of their addresses, "
            "which is not counted"
        )
    yield Claim(
        id="uncoalesced_access",
        claim=claim,
        evidence=[share, *([sectors] if sectors is not None else [])],
        weight=share.value / 100,
        confidence=Confidence.HIGH
        if share.value >= _CAUSES and is_waste_felt
        else Confidence.MEDIUM,
        against=against,
        remedy="Let neighbouring threads access neighbouring addresses, or go through shared "
        "memory.",
        ceiling=f"{without(share)} less traffic",
        units=frozenset({"l1", "l2", "dram"}),
        stalls=frozenset({"long_scoreboard", "lg_throttle"}),
        explains=share.value >= _CAUSES and (busy is None or busy.value >= _BUSY),
    )


def _excess(facts: Facts) -> CounterEvidence | None:
    """Sectors beyond those that the data needs, of all of them."""
    return share_of(
        "sectors not needed", facts.get("global_sectors_excess"), facts.metric(_THEORETICAL)
    )


def _unused(facts: Facts) -> CounterEvidence | None:
    """Bytes of sectors that no thread uses, over loads and stores. A value that all threads of a
    warp share uses one sector, of which it needs few bytes, so that it does not count."""
    moved = wasted = 0.0
    formulas = []
    for word, op in (("load", "ld"), ("store", "st")):
        sectors = facts.value(f"global_{word}_sectors") or 0.0
        requests = facts.value(f"global_{word}_requests") or 0.0
        moved += sectors
        if not requests or sectors / requests <= _COALESCED:
            continue
        used = facts.metric(_BYTES.format(op))
        if used is not None:
            wasted += sectors * (1 - used.value / SECTOR_BYTES)
            formulas.append(f"1 - {used.metric} ÷ {SECTOR_BYTES}")
        elif sectors / requests > _WIDEST:
            wasted += sectors - _WIDEST * requests
            formulas.append(f"1 - {_WIDEST:.0f} ÷ sectors per request of {word}s")
    if not wasted:
        return None
    return CounterEvidence("unused bytes", 100 * wasted / moved, "%", "; ".join(formulas))


RULE = Rule(
    gate=Gate.COST,
    verdicts={"uncoalesced_access": "sectors of global memory are moved of which few bytes are "
              "used"},
    needs=("global_sectors_excess", "global_load_sectors", "global_load_requests",
           "global_store_sectors", "global_store_requests"),
    threshold=f"{_SHARE:.0f} % of the bytes of global accesses are not used; the cause of a limit "
    f"from {_CAUSES:.0f} %, where the memory is at {_BUSY:.0f} % of its rate",
    threshold_source="a fourth of the traffic; NVIDIA's rule UncoalescedGlobalAccess reports any "
    "excess",
    judge=_judge,
)  # fmt: skip
