"""Registers and arrays in local memory."""

from __future__ import annotations

from collections.abc import Iterator

from gemmetry.counters.diagnosis.facts import SECTOR_BYTES, Facts, share_of, term, without
from gemmetry.counters.diagnosis.model import (
    Claim,
    Confidence,
    CounterEvidence,
    Dismissed,
    Gate,
    Judgement,
    Rule,
)

_SHARE = 10.0
_CAUSES = 50.0
_LOCAL = ("local_load_sectors", "local_store_sectors")
_GLOBAL = ("global_load_sectors", "global_store_sectors")


def _judge(facts: Facts) -> Iterator[Judgement]:
    local = facts.total(*_LOCAL)
    if local is None or local.value <= 0:
        return
    moved = facts.total(*_LOCAL, *_GLOBAL)
    copied = facts.total("tma_load_bytes", "tma_store_bytes")
    if moved is not None and copied is not None and copied.value > 0:
        moved = CounterEvidence(
            "sectors", moved.value + copied.value / SECTOR_BYTES, "sector",
            f"{term(moved)} + {term(copied)} ÷ {SECTOR_BYTES}",
        )  # fmt: skip
    share = share_of("sectors of local memory", local, moved)
    if share is None:
        return
    claim = f"{share.value:.0f} % of the sectors that multiprocessors move are of local memory"
    if share.value < _SHARE:
        yield Dismissed("local_memory", claim, f"it is less than {_SHARE:.0f} %")
        return
    part = facts.share_of_l2(local)
    if part is not None and part < 5:
        yield Dismissed(
            "local_memory", claim, f"they are {part:.1f} % of the traffic of the L2 cache at most"
        )
        return
    yield Claim(
        id="local_memory",
        claim=claim,
        evidence=[share, local],
        weight=share.value / 100,
        confidence=Confidence.HIGH if share.value >= _CAUSES else Confidence.MEDIUM,
        remedy="Give a thread less work or allow it more registers, and index local arrays by "
        "constants only.",
        ceiling=f"{without(share)} less traffic of loads and stores",
        units=frozenset({"l1", "l2", "dram", "lsu"}),
        stalls=frozenset({"long_scoreboard", "lg_throttle"}),
        explains=share.value >= _CAUSES,
    )


RULE = Rule(
    gate=Gate.COST,
    verdicts={"local_memory": "spilled registers or arrays with computed indices are in local "
              "memory"},
    needs=(*_LOCAL, *_GLOBAL),
    threshold=f"{_SHARE:.0f} % of the sectors of loads and stores; the cause of a limit from "
    f"{_CAUSES:.0f} %",
    threshold_source="its part of the traffic; a few spills outside of loops cost nothing",
    judge=_judge,
)  # fmt: skip
