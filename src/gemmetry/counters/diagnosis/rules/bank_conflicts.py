"""Accesses to shared memory that are repeated because of bank conflicts."""

from __future__ import annotations

from collections.abc import Iterator

from gemmetry.counters.diagnosis.facts import Facts, share_of, without
from gemmetry.counters.diagnosis.model import Claim, Confidence, Dismissed, Gate, Judgement, Rule

_SHARE = 10.0
"""Percent of the accesses (NVIDIA's SharedMemoryConflicts, there of one kind of access)."""
_IMPACT = 5.0
"""Percent of the time of shared memory below which conflicts do not matter."""
_CAUSES = 50.0


def _judge(facts: Facts) -> Iterator[Judgement]:
    share = share_of(
        "bank conflicts", facts.get("shared_conflicts"), facts.get("shared_wavefronts")
    )
    if share is None:
        return
    stage = facts.utilisation.get("l1")
    busy = stage.value if stage is not None else None
    if busy is not None and not facts.is_amd and facts.shared_percent is not None:
        busy = min(busy, facts.shared_percent)
    of_kind = [
        (word, part)
        for word in ("load", "store")
        if (part := share_of(
            f"bank conflicts of {word}s", facts.get(f"shared_conflicts_{word}"),
            facts.get(f"shared_wavefronts_{word}"),
        )) and part.value >= _SHARE
    ]  # fmt: skip
    if share.value < _SHARE:
        for word, part in of_kind:
            yield Dismissed(
                "shared_bank_conflicts",
                f"{part.value:.1f} % of the accesses of shared-memory {word}s are bank conflicts",
                f"all bank conflicts are {share.value:.1f} % of the accesses to shared memory",
            )
        return
    claim = f"{share.value:.1f} % of the accesses to shared memory are bank conflicts"
    impact = None if busy is None else share.value * busy / 100
    is_waited_for = facts.waits_for("mio_throttle", "short_scoreboard")
    if impact is not None and impact < _IMPACT and not is_waited_for:
        yield Dismissed(
            "shared_bank_conflicts", claim,
            f"they take {impact:.1f} % of the time of shared memory, and warps do not wait for it",
        )  # fmt: skip
        return
    # What warps wait for may also be special functions, which use the same queue.
    other = facts.utilisation.get("xu")
    is_felt = (impact is None or impact >= _IMPACT) and (
        busy is None or other is None or other.value <= busy
    )
    yield Claim(
        id="shared_bank_conflicts",
        claim=claim,
        evidence=[share, *(part for _, part in of_kind)],
        weight=share.value / 100,
        confidence=Confidence.HIGH
        if share.value >= _CAUSES and is_felt
        else Confidence.MEDIUM
        if is_felt
        else Confidence.LOW,
        against=""
        if is_felt
        else "Shared memory is busy for little of the time, or special functions are busier",
        remedy="Pad the rows of the tile, or swizzle its addresses.",
        ceiling=f"{without(share)} for shared memory",
        units=frozenset({"l1", "mio"}),
        stalls=frozenset({"mio_throttle", "short_scoreboard"}),
        explains=share.value >= _CAUSES and is_felt,
    )


RULE = Rule(
    gate=Gate.COST,
    verdicts={"shared_bank_conflicts": "accesses to shared memory are repeated, as several threads "
              "of a warp use the same bank"},
    needs=("shared_conflicts", "shared_wavefronts"),
    threshold=f"{_SHARE:.0f} % of all accesses to shared memory; the cause of a limit from "
    f"{_CAUSES:.0f} %",
    threshold_source="NVIDIA's rule SharedMemoryConflicts, which compares with the accesses of one "
    "kind only",
    judge=_judge,
)  # fmt: skip
