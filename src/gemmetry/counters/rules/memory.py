"""Rules of costs in the memory system, which explain a limit or follow the verdict."""

from __future__ import annotations

from collections.abc import Iterator

from gemmetry.counters.facts import NEAR, SECTOR_BYTES, Facts, share_of, term, without
from gemmetry.counters.model import (
    HIGH,
    LOW,
    MEDIUM,
    Claim,
    CounterEvidence,
    Gate,
    Judgement,
    Suppressed,
    rule,
)

_SHARE = 10.0
_ATOMICS_CAUSE = 33.0
_OF_L2 = 1.0
"""Percent of the bytes that multiprocessors exchange with the L2 cache below which atomic
operations do not matter, even where all other traffic is copies of tiles."""
_REQUESTS = ("global_load_requests", "global_store_requests")
_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared"
_ATOMIC_STALLS = frozenset({
    "long_scoreboard", "lg_throttle", "drain", "membar", "short_scoreboard", "mio_throttle",
})  # fmt: skip


@rule(
    gate=Gate.COST,
    verdicts={"atomics": "atomic operations are at their limit, or cause one"},
    needs=("atomic_requests", "atomic_sectors", *_REQUESTS),
    threshold=f"{_SHARE:.0f} % of the requests to global memory, or of the accesses to shared "
    f"memory; the cause of a limit from {_ATOMICS_CAUSE:.0f} %",
    threshold_source="an atomic operation occupies the L2 cache for longer than a load, so that a "
    "third of the requests can be most of the work",
)
def atomics(facts: Facts) -> Iterator[Claim]:
    """Atomic operations, which the L2 cache or shared memory performs one after the other."""
    requests = share_of(
        "atomic requests", facts.get("atomic_requests"), facts.total("atomic_requests", *_REQUESTS)
    )
    sectors = facts.value("atomic_sectors")
    exchanged = facts.total("l2_read_bytes_from_sm", "l2_write_bytes_from_sm")
    little = 0.0 if exchanged is None else _OF_L2 * exchanged.value
    is_small = sectors is not None and 100 * SECTOR_BYTES * sectors < little
    if requests is not None and requests.value >= _SHARE and not is_small:
        yield _atomics(requests, "requests to global memory", frozenset({"atomics", "l2"}))
    shared = share_of(
        "atomic accesses to shared memory", facts.metric(f"{_WAVEFRONTS}_op_atom.sum"),
        facts.metric(f"{_WAVEFRONTS}.sum"),
    )  # fmt: skip
    if shared is not None and shared.value >= _SHARE:
        yield _atomics(shared, "accesses to shared memory", frozenset({"l1", "mio"}))


def _atomics(share: CounterEvidence, place: str, units: frozenset[str]) -> Claim:
    return Claim(
        id="atomics",
        claim=f"{share.value:.0f} % of the {place} are atomic operations",
        evidence=[share],
        weight=share.value / 100,
        remedy="Reduce within the warp and the block first, and spread atomic operations over more "
        "addresses.",
        units=units,
        stalls=_ATOMIC_STALLS,
        explains=share.value >= _ATOMICS_CAUSE,
    )


_IMPACT = 5.0
"""Percent of the time of shared memory below which conflicts do not matter."""
_CAUSES = 50.0


@rule(
    gate=Gate.COST,
    verdicts={"shared_bank_conflicts": "accesses to shared memory are repeated, as several threads "
              "of a warp use the same bank"},
    needs=("shared_conflicts", "shared_wavefronts"),
    threshold=f"{_SHARE:.0f} % of all accesses to shared memory; the cause of a limit from "
    f"{_CAUSES:.0f} %",
    threshold_source="NVIDIA's rule SharedMemoryConflicts, which compares with the accesses of one "
    "kind only",
)  # fmt: skip
def bank_conflicts(facts: Facts) -> Iterator[Judgement]:
    """Accesses to shared memory that are repeated because of bank conflicts."""
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
            yield Suppressed(
                "shared_bank_conflicts",
                f"{part.value:.1f} % of the accesses of shared-memory {word}s are bank conflicts",
                f"all bank conflicts are {share.value:.1f} % of the accesses to shared memory",
            )
        return
    claim = f"{share.value:.1f} % of the accesses to shared memory are bank conflicts"
    impact = None if busy is None else share.value * busy / 100
    is_waited_for = facts.waits_for("mio_throttle", "short_scoreboard")
    if impact is not None and impact < _IMPACT and not is_waited_for:
        yield Suppressed(
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
        confidence=HIGH if share.value >= _CAUSES and is_felt else MEDIUM if is_felt else LOW,
        against=""
        if is_felt
        else "Shared memory is busy for little of the time, or special functions are busier",
        remedy="Pad the rows of the tile, or swizzle its addresses.",
        ceiling=f"{without(share)} for shared memory",
        units=frozenset({"l1", "mio"}),
        stalls=frozenset({"mio_throttle", "short_scoreboard"}),
        explains=share.value >= _CAUSES and is_felt,
    )


_LOCAL = ("local_load_sectors", "local_store_sectors")
_GLOBAL = ("global_load_sectors", "global_store_sectors")


@rule(
    gate=Gate.COST,
    verdicts={"local_memory": "spilled registers or arrays with computed indices are in local "
              "memory"},
    needs=(*_LOCAL, *_GLOBAL),
    threshold=f"{_SHARE:.0f} % of the sectors of loads and stores; the cause of a limit from "
    f"{_CAUSES:.0f} %",
    threshold_source="its part of the traffic; a few spills outside of loops cost nothing",
)  # fmt: skip
def local_memory(facts: Facts) -> Iterator[Judgement]:
    """Registers and arrays in local memory."""
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
        yield Suppressed("local_memory", claim, f"it is less than {_SHARE:.0f} %")
        return
    part = facts.share_of_l2(local)
    if part is not None and part < 5:
        yield Suppressed(
            "local_memory", claim, f"they are {part:.1f} % of the traffic of the L2 cache at most"
        )
        return
    yield Claim(
        id="local_memory",
        claim=claim,
        evidence=[share, local],
        weight=share.value / 100,
        confidence=HIGH if share.value >= _CAUSES else MEDIUM,
        remedy="Give a thread less work or allow it more registers, and index local arrays by "
        "constants only.",
        ceiling=f"{without(share)} less traffic of loads and stores",
        units=frozenset({"l1", "l2", "dram", "lsu"}),
        stalls=frozenset({"long_scoreboard", "lg_throttle"}),
        explains=share.value >= _CAUSES,
    )


_REREAD = 1.5
_REREAD_CAUSES = 2.0
_BUSY = 30.0
"""Percent of the bandwidth below which its bytes cause no waits."""


@rule(
    gate=Gate.COST,
    verdicts={"l2_reuse": "device memory moves the inputs more than once"},
    needs=("dram_read_bytes", "dram_write_bytes"),
    threshold=f"{_REREAD:g} times the compulsory bytes; the cause of a limit from "
    f"{_REREAD_CAUSES:g} times",
    threshold_source="the compulsory traffic of the shape: each input and the result once",
)
def rereads(facts: Facts) -> Iterator[Claim]:
    """Inputs that are read from device memory more than once."""
    for _, ratio, evidence in facts.differing_work("reread"):
        busy = facts.utilisation.get("dram")
        if ratio >= _REREAD:
            yield Claim(
                id="l2_reuse",
                claim=f"Device memory moves {ratio:.3g} times the bytes of the inputs and the "
                "result",
                evidence=evidence,
                weight=1 - 1 / ratio,
                remedy="Let blocks that run together share rows and columns: another order of "
                "tiles, or larger tiles.",
                ceiling=f"at most {ratio:.3g}× less traffic",
                units=frozenset({"dram"}),
                stalls=frozenset({"long_scoreboard", "any"}),
                explains=ratio >= _REREAD_CAUSES and (busy is None or busy.value >= _BUSY),
            )  # fmt: skip


_UNUSED = 25.0
_COALESCED = 4.0
"""Sectors of a request in which 32 threads access four bytes each."""
_WIDEST = 16.0
"""Sectors of a request with 16-byte accesses, the widest of a thread."""
_THEORETICAL = "memory_l2_theoretical_sectors_global"
_BYTES = "smsp__sass_average_data_bytes_per_sector_mem_global_op_{}.ratio"


@rule(
    gate=Gate.COST,
    verdicts={"uncoalesced_access": "sectors of global memory are moved of which few bytes are "
              "used"},
    needs=("global_sectors_excess", "global_load_sectors", "global_load_requests",
           "global_store_sectors", "global_store_requests"),
    threshold=f"{_UNUSED:.0f} % of the bytes of global accesses are not used; the cause of a limit "
    f"from {_CAUSES:.0f} %, where the memory is at {_BUSY:.0f} % of its rate",
    threshold_source="a fourth of the traffic; NVIDIA's rule UncoalescedGlobalAccess reports any "
    "excess",
)  # fmt: skip
def uncoalesced(facts: Facts) -> Iterator[Judgement]:
    """Sectors of global memory that are moved although few of their bytes are used."""
    share = share_of(
        "sectors not needed", facts.get("global_sectors_excess"), facts.metric(_THEORETICAL)
    ) or _unused(facts)
    if share is None or share.value < _UNUSED:
        return
    sectors = facts.total("global_load_sectors", "global_store_sectors")
    part = facts.share_of_l2(sectors)
    claim = f"{share.value:.0f} % of the bytes that global accesses move are not used"
    if part is not None and part < 5:
        yield Suppressed(
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
        confidence=HIGH if share.value >= _CAUSES and is_waste_felt else MEDIUM,
        against=against,
        remedy="Let neighbouring threads access neighbouring addresses, or go through shared "
        "memory.",
        ceiling=f"{without(share)} less traffic",
        units=frozenset({"l1", "l2", "dram"}),
        stalls=frozenset({"long_scoreboard", "lg_throttle"}),
        explains=share.value >= _CAUSES and (busy is None or busy.value >= _BUSY),
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
