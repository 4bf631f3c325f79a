"""Atomic operations, which the L2 cache or shared memory performs one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from gemmetry.counters.diagnosis.facts import Facts, share_of
from gemmetry.counters.diagnosis.model import Claim, Confidence, CounterEvidence, Gate, Rule

_SHARE = 10.0
_CAUSES = 33.0
_OF_L2 = 1.0
"""Percent of the bytes that multiprocessors exchange with the L2 cache below which atomic
operations do not matter, even where all other traffic is copies of tiles."""
_OTHERS = ("global_load_requests", "global_store_requests")
_SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared"
_STALLS = frozenset({
    "long_scoreboard", "lg_throttle", "drain", "membar", "short_scoreboard", "mio_throttle",
})  # fmt: skip


def _judge(facts: Facts) -> Iterator[Claim]:
    requests = share_of(
        "atomic requests", facts.get("atomic_requests"), facts.total("atomic_requests", *_OTHERS)
    )
    sectors = facts.value("atomic_sectors")
    exchanged = facts.total("l2_read_bytes_from_sm", "l2_write_bytes_from_sm")
    is_small = (
        sectors is not None
        and exchanged is not None
        and 100 * 32 * sectors < _OF_L2 * exchanged.value
    )
    if requests is not None and requests.value >= _SHARE and not is_small:
        yield _claim(requests, "requests to global memory", frozenset({"atomics", "l2"}))
    shared = share_of(
        "atomic accesses to shared memory", facts.metric(f"{_SHARED}_op_atom.sum"),
        facts.metric(f"{_SHARED}.sum"),
    )  # fmt: skip
    if shared is not None and shared.value >= _SHARE:
        yield _claim(shared, "accesses to shared memory", frozenset({"l1", "mio"}))


def _claim(share: CounterEvidence, place: str, units: frozenset[str]) -> Claim:
    return Claim(
        id="atomics",
        claim=f"{share.value:.0f} % of the {place} are atomic operations",
        evidence=[share],
        weight=share.value / 100,
        confidence=Confidence.MEDIUM,
        remedy="Reduce within the warp and the block first, and spread atomic operations over more "
        "addresses.",
        units=units,
        stalls=_STALLS,
        explains=share.value >= _CAUSES,
    )


RULE = Rule(
    gate=Gate.COST,
    verdicts={"atomics": "atomic operations are at their limit, or cause one"},
    needs=("atomic_requests", "atomic_sectors", *_OTHERS),
    threshold=f"{_SHARE:.0f} % of the requests to global memory, or of the accesses to shared "
    f"memory; the cause of a limit from {_CAUSES:.0f} %",
    threshold_source="an atomic operation occupies the L2 cache for longer than a load, so that a "
    "third of the requests can be most of the work",
    judge=_judge,
)
