"""Whether a setting took effect on one kind of collective, judged by its launch sizes and kernels.

Every rule is that of the library's sources (:mod:`.rules`). What they leave open is ``unknown``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from gemmetry.analysis.sweeps.collectives.kinds import COPY, HOST, CollectiveKind
from gemmetry.analysis.sweeps.collectives.rules import (
    MOST_NTHREADS,
    MOST_THREADS,
    Execution,
    channel_limit,
    executions,
    obeyed_rccl_threads,
    obeyed_threads,
    small_below,
)
from gemmetry.domain.units import counted, format_memory

IN_EFFECT, NOT_IN_EFFECT = "in effect", "not in effect"
NOT_APPLICABLE, UNKNOWN = "not applicable", "unknown"
CLAMPED = "clamped to "
"""Is followed by the value."""

COPY_ENGINE_OPERATIONS = ("all_gather", "all_to_all", "gather", "scatter")
"""Collectives that copy engines can carry out, as they move bytes and compute nothing."""
SYMMETRIC_OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter")
"""Collectives for which NCCL has kernels for symmetric memory (``src/device/symmetric/
generate.py`` of 2.28.9)."""

_OF_NCCL = ("nccl", "rccl", "symmetric")


class Judgement(NamedTuple):
    """What one kind of collective shows of a setting."""

    verdict: str
    seen: str | None = None
    reason: str = ""


class Run(NamedTuple):
    """What holds for a whole point."""

    threads: int = MOST_NTHREADS
    """NCCL_NTHREADS as requested; its upper bound, which is the default, where it is not."""
    ll128_threads: int = MOST_THREADS
    """NCCL_LL128_NTHREADS, or its default."""
    version: str | None = None
    """Of NCCL."""


Judge: TypeAlias = Callable[[CollectiveKind, str, Run], Judgement]
"""Judges the value of a setting."""


def clamped(value: int) -> str:
    """The verdict that the library limits a setting to `value`."""
    return f"{CLAMPED}{value}"


def judge_channels(kind: CollectiveKind, value: str, run: Run) -> Judgement:
    """The number of channels: grid.x of a launch."""
    return _other_library(kind) or _channels(kind, int(value), run, is_most=True, is_least=True)


def judge_most_channels(kind: CollectiveKind, value: str, run: Run) -> Judgement:
    """An upper limit of the number of channels."""
    return _other_library(kind) or _channels(kind, int(value), run, is_most=True, is_least=False)


def judge_least_channels(kind: CollectiveKind, value: str, run: Run) -> Judgement:
    """A lower limit of the number of channels."""
    return _other_library(kind) or _channels(kind, int(value), run, is_most=False, is_least=True)


def _other_library(kind: CollectiveKind) -> Judgement | None:
    """The judgement of kinds that no setting of NCCL concerns."""
    if kind.library == HOST:
        return Judgement(
            NOT_APPLICABLE, None, "the host communicates, to which settings of NCCL do not apply"
        )
    if kind.library == COPY:
        return Judgement(NOT_APPLICABLE, None, "copy engines communicate, without a kernel")
    if kind.library not in _OF_NCCL:
        owner = kind.library or "another library"
        return Judgement(NOT_APPLICABLE, None, f"these kernels are of {owner}")
    return None


def _channels(
    kind: CollectiveKind, requested: int, run: Run, *, is_most: bool, is_least: bool
) -> Judgement:
    seen = kind.channels
    if kind.is_point_to_point:
        reason = "sends and receives use a power of two, from NCCL_MIN_P2P_NCHANNELS up"
        return Judgement(NOT_APPLICABLE, _text(seen), reason)
    if seen is None:
        return Judgement(UNKNOWN, None, "the trace records no grid")
    text, blocks = str(seen), counted(seen, "block")
    if seen == requested:
        return Judgement(IN_EFFECT, text, _launches(kind, blocks))
    if seen > requested:
        if not is_most:
            what = f"{blocks}, more than the least"
            return Judgement(IN_EFFECT, text, _launches(kind, what))
        return Judgement(NOT_IN_EFFECT, text, _launches(kind, blocks) + _nvls(kind))
    if not is_least:
        return Judgement(IN_EFFECT, text, _launches(kind, f"{blocks}, fewer than the most"))
    limit = channel_limit(run.version)
    if kind.library == "nccl" and requested > limit == seen:
        return Judgement(clamped(seen), text, f"NCCL has at most {limit} channels")
    small = small_below(requested, _possible(kind, run), run.threads, kind.ranks or 2)
    if kind.bytes is None:
        reason = f"{blocks}; the trace records no size, and small messages use fewer channels"
        return Judgement(UNKNOWN, text, reason)
    if kind.bytes < small:
        reason = f"{blocks}: messages below {format_memory(small)} may use fewer channels"
        return Judgement(UNKNOWN, text, reason)
    return Judgement(clamped(seen), text, _launches(kind, blocks) + _nvls(kind))


def _nvls(kind: CollectiveKind) -> str:
    """A note for kinds that may have run on NVLS, which has channels of its own."""
    if kind.library != "nccl" or kind.block != MOST_THREADS:
        return ""
    return "; NVLS uses NCCL_NVLS_NCHANNELS, within NCCL_MIN_CTAS and NCCL_MAX_CTAS"


def judge_threads(kind: CollectiveKind, value: str, run: Run) -> Judgement:
    """The number of threads of a block: NCCL_NTHREADS, RCCL_THREADS_PER_BLOCK."""
    other = _other_library(kind)
    if other is not None:
        return other
    requested, block = int(value), kind.block
    if block is None:
        return Judgement(UNKNOWN, None, "the trace records no block")
    if kind.library == "rccl":
        return _rccl_threads(kind, requested, block)
    if kind.library == "symmetric":
        reason = f"kernels for symmetric memory always have {block} threads"
        return Judgement(NOT_APPLICABLE, str(block), reason)
    if kind.is_point_to_point:
        reason = f"sends and receives always have {MOST_THREADS} threads"
        return Judgement(NOT_APPLICABLE, str(block), reason)
    obeyed = obeyed_threads(requested)
    possible = _possible(kind, run._replace(threads=requested))
    found = [one for one in possible if one.block == block]
    whole = [one for one in found if not one.is_halved]
    if whole and all(one.is_set_by_threads for one in whole):
        reason = _launches(kind, f"blocks of {block} threads ({_ways(whole)})")
        if obeyed != requested:
            return Judgement(clamped(obeyed), str(obeyed), f"{reason}; {_bounds(requested)}")
        return Judgement(IN_EFFECT, str(requested), reason)
    if whole and not any(one.is_set_by_threads for one in whole):
        return Judgement(NOT_APPLICABLE, str(block), _fixed(block, whole))
    if whole:
        return Judgement(UNKNOWN, str(block), f"{block} threads fit {_ways(whole)}")
    if found and kind.channels == 1:
        reason = f"{block} threads: small messages use one channel and fewer threads"
        return Judgement(UNKNOWN, str(block), reason)
    expected = sorted({(one.block, _ways([one])) for one in possible if not one.is_halved})
    texts = ", ".join(f"{count} ({way})" for count, way in expected if count != MOST_THREADS)
    reason = _launches(kind, f"blocks of {block} threads") + (f", not {texts}" if texts else "")
    return Judgement(NOT_IN_EFFECT, str(block), reason)


def _rccl_threads(kind: CollectiveKind, requested: int, block: int) -> Judgement:
    obeyed = obeyed_rccl_threads(requested)
    reason = _launches(kind, f"blocks of {block} threads")
    if block == requested:
        return Judgement(IN_EFFECT, str(block), reason)
    if block == obeyed:
        return Judgement(clamped(block), str(block), f"{reason}; RCCL rounds to wavefronts and "
                         f"limits the number")  # fmt: skip
    return Judgement(NOT_IN_EFFECT, str(block), f"{reason}; older versions of RCCL read "
                     "NCCL_NTHREADS alone")  # fmt: skip


def _bounds(requested: int) -> str:
    if requested % 32:
        return f"NCCL takes values that are no multiple of 32 as {MOST_NTHREADS}"
    return f"NCCL_NTHREADS is at least 64 and at most {MOST_NTHREADS}"


def _fixed(block: int, ways: Sequence[Execution]) -> str:
    if all(one.protocol == "ll128" and one.algorithm == "ring" for one in ways):
        return f"{block} threads: the protocol LL128 uses NCCL_LL128_NTHREADS"
    return f"{block} threads, as {_ways(ways)} has whatever NCCL_NTHREADS is"


def judge_algorithm(kind: CollectiveKind, value: str, run: Run) -> Judgement:
    """NCCL_ALGO with the name of one algorithm."""
    return _judge_way(kind, value, run, 0)


def judge_protocol(kind: CollectiveKind, value: str, run: Run) -> Judgement:
    """NCCL_PROTO with the name of one protocol."""
    return _judge_way(kind, value, run, 1)


_WAYS = (
    {"ring", "tree", "pat", "nvls", "collnet_direct", "collnet_chain", "nvls_tree"},
    {"ll", "ll128", "simple"},
)
_SPELLINGS = {"collnetdirect": "collnet_direct", "collnetchain": "collnet_chain",
              "nvlstree": "nvls_tree"}  # fmt: skip


def _judge_way(kind: CollectiveKind, value: str, run: Run, place: int) -> Judgement:
    other = _other_library(kind)
    if other is not None:
        return other
    wanted = _SPELLINGS.get(value.lower(), value.lower())
    if kind.is_point_to_point:
        return Judgement(NOT_APPLICABLE, None, "sends and receives have no algorithm to choose")
    if kind.library == "symmetric":
        return Judgement(NOT_APPLICABLE, None, "kernels for symmetric memory have their own")
    if wanted not in _WAYS[place]:
        return Judgement(UNKNOWN, None, "only the name of a single one can be checked")
    named = (kind.algorithm, kind.protocol)[place]
    if named is not None:
        verdict = IN_EFFECT if named == wanted else NOT_IN_EFFECT
        return Judgement(verdict, named, "its kernel's name")
    if not any(one[place] == wanted for one in _ways_of_operation(kind, run)):
        return Judgement(NOT_APPLICABLE, None, "the collective has no such implementation")
    if kind.block is None or kind.library != "nccl":
        return Judgement(UNKNOWN, None, "neither name nor block distinguishes it")
    possible = _possible(kind, run)
    found = sorted({str(one[place]) for one in possible if one.block == kind.block})
    reason = f"its blocks have {kind.block} threads"
    if found == [wanted]:
        return Judgement(IN_EFFECT, wanted, reason)
    if found and wanted not in found:
        return Judgement(NOT_IN_EFFECT, " or ".join(found), reason)
    return Judgement(UNKNOWN, " or ".join(found) or None, f"{reason}, which leaves it open")


def _ways_of_operation(kind: CollectiveKind, run: Run) -> list[Execution]:
    return executions(kind.operation, None, None, run.threads)


def judge_path(kind: CollectiveKind, value: str, run: Run) -> Judgement:
    """How the bytes move: ``kernel``, ``symmetric``, ``copy_engine``."""
    if kind.library == HOST:
        return Judgement(NOT_APPLICABLE, None, "the host communicates")
    seen = {COPY: "copy_engine", "symmetric": "symmetric"}.get(kind.library, "kernel")
    what = {"copy_engine": "copies between GPUs", "symmetric": "kernels for symmetric memory",
            "kernel": "ordinary kernels"}[seen]  # fmt: skip
    reason = f"{kind.launches} {what}"
    if seen == value:
        return Judgement(IN_EFFECT, seen, reason)
    if kind.library == COPY:
        return Judgement(NOT_APPLICABLE, seen, f"{reason}, which need not be a collective's")
    if value == "copy_engine" and kind.operation not in COPY_ENGINE_OPERATIONS:
        reason = f"{reason}: copy engines only move bytes"
        return Judgement(NOT_APPLICABLE, seen, reason)
    if value == "symmetric" and kind.operation not in SYMMETRIC_OPERATIONS:
        reason = f"{reason}: there is none for symmetric memory"
        return Judgement(NOT_APPLICABLE, seen, reason)
    return Judgement(NOT_IN_EFFECT, seen, reason)


def judge_policy(kind: CollectiveKind, value: str, run: Run) -> Judgement:
    """NCCL_CTA_POLICY: ``ZERO`` (2) requests copy engines; the others leave no trace."""
    if value.upper() in ("ZERO", "2"):
        return judge_path(kind, "copy_engine", run)
    return _other_library(kind) or Judgement(UNKNOWN, None, "only ZERO shows in a trace")


def _possible(kind: CollectiveKind, run: Run) -> list[Execution]:
    return executions(kind.operation, kind.algorithm, kind.protocol, run.threads,
                      is_no_tree=kind.is_no_tree, ll128_threads=run.ll128_threads)  # fmt: skip


def _ways(ways: Sequence[Execution]) -> str:
    """``the ring with LL128, PAT or NVLS``."""
    by_algorithm: dict[str, list[str]] = {}
    for one in ways:
        protocols = by_algorithm.setdefault(one.algorithm, [])
        if one.protocol not in protocols:
            protocols.append(one.protocol)
    texts = [
        f"the ring with {' or '.join(_TITLES[one] for one in protocols)}"
        if algorithm == "ring"
        else _TITLES[algorithm]
        for algorithm, protocols in by_algorithm.items()
    ]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"


_TITLES = {
    "tree": "the tree", "pat": "PAT", "nvls": "NVLS", "nvls_tree": "NVLS tree",
    "collnet_direct": "CollNet direct", "collnet_chain": "CollNet chain",
    "ll": "LL", "ll128": "LL128", "simple": "simple",
}  # fmt: skip


def _launches(kind: CollectiveKind, what: str) -> str:
    alike = f"{kind.judged - kind.unlike:,} of " if kind.unlike else ""
    return f"{what} in {alike}{counted(kind.judged, 'launch', 'launches')}"


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)
