"""Whether the requested settings of a sweep's points took effect, judged by the launch sizes and
kernels of the collectives, in groups that the library runs in one way. A setting is judged on the
largest messages of a group, as small ones use fewer channels and threads.

Every rule is that of the sources of NCCL and RCCL; what they leave open is ``unknown``:
NVIDIA/nccl 2.28.9 and 2.30.7, ``src/graph/tuning.cc`` (getNthreads, maxThreads, threadThresholds),
``src/enqueue.cc`` (topoGetAlgoInfo, scheduleP2pTasksToPlan), ``src/graph/connect.cc``
(MAXCHANNELS), ``src/device/generate.py`` (best_kernel), ``src/sym_kernels.cc``; ROCm/rccl 2.21.5
``src/graph/tuning.cc`` and ROCm/rocm-systems 2026 ``projects/rccl/src/rccl_wrap.cc``
(rcclOptThreadBlockSize), ``rccl_common.h``. The table of ``docs/sweep-settings.md`` follows them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from gemmetry.domain.errors import alternatives
from gemmetry.domain.tables import grouped
from gemmetry.domain.units import format_memory, plural
from gemmetry.sweeps.folder import Point
from gemmetry.sweeps.ranks import CommunicationKernel, RankFacts
from gemmetry.sweeps.rows import CollectiveVerdict, SettingVerdict, SweepSetting, natural
from gemmetry.traces.names import classify

WARP = 32
MOST_THREADS = 640
"""Threads of a block where NCCL_NTHREADS does not count: NCCL_MAX_NTHREADS."""
MOST_NTHREADS, LEAST_NTHREADS = 512, 64
"""Bounds of NCCL_NTHREADS; values that are no multiple of 32 count as the upper one."""
LEAST_BLOCK = 128
MOST_CHANNELS, MOST_CHANNELS_BEFORE_2_25 = 64, 32

BYTES_PER_THREAD = {"simple": 64, "ll128": 8, "ll": 8}
"""A message with fewer bytes per thread of all channels runs on fewer channels, and on a single
one with fewer threads; times the number of ranks for the ring with LL."""
LEAST_BYTES_A_CHANNEL = 16 << 10

RCCL_WARP = 64
RCCL_MOST_THREADS = 256
"""Threads of a block of RCCL on all architectures of these sources."""

FIXED_ALGORITHMS = {
    "tree": ("all_reduce",),
    "pat": ("all_gather", "reduce_scatter"),
    "nvls": ("all_reduce", "all_gather", "reduce_scatter"),
    "nvls_tree": ("all_reduce",),
    "collnet_direct": ("all_reduce", "all_gather", "reduce_scatter"),
    "collnet_chain": ("all_reduce",),
}
"""Algorithms whose blocks have :data:`MOST_THREADS` threads whatever NCCL_NTHREADS is, with the
collectives that they implement. The ring implements all."""


class Execution(NamedTuple):
    """One way to run a collective, with its block."""

    algorithm: str
    protocol: str
    block: int
    is_set_by_threads: bool
    """Whether NCCL_NTHREADS decides the number of threads."""
    is_halved: bool = False
    """Fewer threads than set, as for a small message on a single channel."""


def obeyed_threads(requested: int) -> int:
    """The number of threads that NCCL uses for a value of NCCL_NTHREADS."""
    if requested % WARP or requested > MOST_NTHREADS:
        return MOST_NTHREADS
    return max(requested, LEAST_NTHREADS)


def obeyed_rccl_threads(requested: int) -> int:
    """The number of threads that RCCL uses for a value of RCCL_THREADS_PER_BLOCK: rounded up to
    wavefronts of 64, three at least."""
    rounded = -(-requested // RCCL_WARP) * RCCL_WARP
    return min(max(rounded, 3 * RCCL_WARP), RCCL_MOST_THREADS)


def channel_limit(version: str | None) -> int:
    """The most channels of NCCL; that of today where the version is not known."""
    numbers = version_numbers(version)
    return MOST_CHANNELS_BEFORE_2_25 if numbers and numbers < (2, 25) else MOST_CHANNELS


def version_numbers(version: str | None) -> tuple[int, ...]:
    """(2, 28, 9) for ``2.28.9``; () where it is not known."""
    parts = (version or "").split(".")
    return tuple(map(int, parts)) if all(part.isdigit() for part in parts) else ()


def executions(
    operation: str | None,
    algorithm: str | None,
    protocol: str | None,
    threads: int,
    *,
    is_no_tree: bool = False,
    ll128_threads: int = MOST_THREADS,
) -> list[Execution]:
    """The ways in which a collective can run, with their blocks under NCCL_NTHREADS = `threads`.

    `algorithm` and `protocol` restrict them where they are known. `is_no_tree`: the kernel's name
    excludes the tree.
    """
    found: list[Execution] = []
    for index, count in enumerate(_halvings(obeyed_threads(threads))):
        for one, size in (("simple", count + WARP), ("ll", count)):
            found.append(Execution("ring", one, max(size, LEAST_BLOCK), True, index > 0))
    for index, count in enumerate(_halvings(ll128_threads)):
        found.append(Execution("ring", "ll128", count, False, index > 0))
    for name, operations in FIXED_ALGORITHMS.items():
        if operation is not None and operation not in operations:
            continue
        protocols = ("simple", "ll", "ll128") if name == "tree" else ("simple",)
        if not (name == "tree" and is_no_tree):
            found += [Execution(name, one, MOST_THREADS, False) for one in protocols]
        if name == "collnet_chain":
            found.append(Execution(name, "simple", MOST_THREADS // 2, False, True))
    return [
        one
        for one in found
        if algorithm in (None, one.algorithm) and protocol in (None, one.protocol)
    ]


def _halvings(threads: int) -> Iterator[int]:
    """`threads`, and what NCCL reduces it to for small messages."""
    yield threads
    while threads % (4 * WARP) == 0:
        threads //= 2
        yield threads


def small_below(channels: int, executed: Sequence[Execution], threads: int, ranks: int) -> int:
    """Messages with fewer bytes than this may use fewer than `channels` channels, by the protocols
    that are possible."""
    most = LEAST_BYTES_A_CHANNEL
    for one in executed:
        factor = ranks if (one.algorithm, one.protocol) == ("ring", "ll") else 1
        count = obeyed_threads(threads) if one.is_set_by_threads else one.block
        most = max(most, count * BYTES_PER_THREAD[one.protocol] * factor)
    return channels * most


COPY = "copy"
"""The operation of a copy between GPUs, and the library of such groups."""
HOST = "host"
"""The library of collectives that the host runs, as gloo does."""

_SPECIALISED = ("all_reduce", "reduce_scatter", "reduce")
"""Collectives whose kernel's name distinguishes trees from all other algorithms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveKind:
    """Collectives of one point with the same operation, algorithm and protocol. The fields up to
    :attr:`is_point_to_point` are what they have in common."""

    operation: str | None
    algorithm: str | None = None
    """Algorithm; like `protocol`, None where the kernel's name leaves it open."""
    protocol: str | None = None
    library: str = HOST
    """``nccl``, ``rccl``, ``symmetric`` (NCCL's kernels for symmetric memory), :data:`COPY`,
    :data:`HOST`, or the family of another library's kernels."""
    is_no_tree: bool = False
    """The kernel's name excludes the tree."""
    is_point_to_point: bool = False
    """A kernel of sends and receives, which also implements all-to-alls."""

    launches: int = 0
    """Over all ranks."""
    duration_ns: int = 0
    bytes: int | None = None
    """The largest message; None where no trace records one."""
    ranks: int | None = None
    """Size of the largest group."""
    judged: int = 0
    """Number of launches with messages more than half as large as the largest one; of all where
    no size is recorded."""
    channels: int | None = None
    """The most frequent grid.x among those; None where it is not recorded."""
    block: int | None = None
    """The most frequent block.x among those."""
    unlike: int = 0
    """Number of those with another grid or block."""

    @property
    def label(self) -> str:
        """``all-gather of 64 MiB``, as far as it is known."""
        name = (self.operation or "a collective").replace("_", "-")
        return name if self.bytes is None else f"{name} of {format_memory(self.bytes)}"


def collective_kinds(ranks: Iterable[RankFacts]) -> list[CollectiveKind]:
    """The groups over all ranks of a point, those with the most time first."""
    groups: dict[CollectiveKind, list[CommunicationKernel]] = {}
    for facts in ranks:
        is_amd = facts.device.startswith("AMD") or " MI" in f" {facts.device}"
        for one in facts.communication:
            groups.setdefault(_key(one, is_amd=is_amd, on_gpu=facts.on_gpu), []).append(one)
    found = [_kind(key, ones) for key, ones in groups.items()]
    return sorted(found, key=lambda kind: -kind.duration_ns)


def _key(one: CommunicationKernel, *, is_amd: bool, on_gpu: bool) -> CollectiveKind:
    collective = one.collective
    if collective.op == COPY or not on_gpu:
        return CollectiveKind(operation=collective.op, library=COPY if on_gpu else HOST)
    name = classify(one.kernel)
    library = name.family
    if name.algorithm == "symmetric":
        library = "symmetric"
    elif library == "nccl" and is_amd:
        library = "rccl"
    return CollectiveKind(
        operation=collective.op, algorithm=collective.algorithm, protocol=collective.protocol,
        library=library, is_point_to_point=name.collective == "send_recv",
        is_no_tree=name.algorithm == "ring" and name.collective in _SPECIALISED,
    )  # fmt: skip


def _kind(key: CollectiveKind, ones: Sequence[CommunicationKernel]) -> CollectiveKind:
    sizes = [one.collective.bytes for one in ones]
    largest = max((size for size in sizes if size is not None), default=None)
    judged = [
        one
        for one, size in zip(ones, sizes, strict=True)
        if largest is None or (size is not None and 2 * size > largest)
    ]
    launches = Counter((one.grid[0], one.block[0]) for one in judged)
    (channels, block), alike = max(launches.items(), key=lambda item: (item[1], item[0]))
    groups = [one.collective.group.size or 0 for one in ones if one.collective.group is not None]
    return replace(
        key,
        launches=len(ones),
        duration_ns=sum(one.collective.duration_ns for one in ones),
        bytes=largest,
        ranks=max(groups, default=0) or None,
        judged=len(judged),
        channels=channels or None,
        block=block or None,
        unlike=len(judged) - alike,
    )


IN_EFFECT, NOT_IN_EFFECT = "in effect", "not in effect"
NOT_APPLICABLE, UNKNOWN = "not applicable", "unknown"
CLAMPED = "clamped to "
"""Prefix of the value to which the library limits a setting."""

COPY_ENGINE_OPERATIONS = ("all_gather", "all_to_all", "gather", "scatter")
"""Collectives that copy engines can carry out, as they move bytes and compute nothing."""
SYMMETRIC_OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter")
"""Collectives for which NCCL has kernels for symmetric memory (``src/device/symmetric/
generate.py`` of 2.28.9)."""

_LIBRARIES = ("nccl", "rccl", "symmetric")
_NO_LIBRARY = {
    HOST: "the host communicates, to which settings of NCCL do not apply",
    COPY: "copy engines communicate, without a kernel",
}


class Judgement(NamedTuple):
    """What one kind of collective shows of a setting."""

    verdict: str
    seen: str | None = None
    reason: str = ""


class Run(NamedTuple):
    """Facts of a whole point."""

    threads: int = MOST_NTHREADS
    """NCCL_NTHREADS as requested; its upper bound, which is the default, where it is not."""
    ll128_threads: int = MOST_THREADS
    """NCCL_LL128_NTHREADS, or its default."""
    version: str | None = None
    """Version of NCCL."""


def _other_library(kind: CollectiveKind) -> Judgement | None:
    """The judgement of kinds that no setting of NCCL concerns."""
    if kind.library in _LIBRARIES:
        return None
    foreign = f"these kernels are of {kind.library or 'another library'}"
    return Judgement(NOT_APPLICABLE, None, _NO_LIBRARY.get(kind.library, foreign))


def _channels(
    kind: CollectiveKind, value: str, run: Run, *, is_most: bool = True, is_least: bool = True
) -> Judgement:
    """The number of channels, grid.x of a launch, or an upper or lower limit of it."""
    requested, seen = int(value), kind.channels
    if kind.is_point_to_point:
        reason = "sends and receives use a power of two, from NCCL_MIN_P2P_NCHANNELS up"
        return Judgement(NOT_APPLICABLE, str(seen) if seen else None, reason)
    if seen is None:
        return Judgement(UNKNOWN, None, "the trace records no grid")
    text, blocks = str(seen), plural(seen, "block")
    if seen == requested:
        return Judgement(IN_EFFECT, text, _launches(kind, blocks))
    if seen > requested and not is_most:
        return Judgement(IN_EFFECT, text, _launches(kind, f"{blocks}, more than the least"))
    if seen > requested:
        return Judgement(NOT_IN_EFFECT, text, _launches(kind, blocks) + _nvls(kind))
    if not is_least:
        return Judgement(IN_EFFECT, text, _launches(kind, f"{blocks}, fewer than the most"))
    limit = channel_limit(run.version)
    if kind.library == "nccl" and requested > limit == seen:
        return Judgement(CLAMPED + text, text, f"NCCL has at most {limit} channels")
    small = small_below(requested, possible_executions(kind, run), run.threads, kind.ranks or 2)
    if kind.bytes is None:
        reason = f"{blocks}; the trace records no size, and small messages use fewer channels"
        return Judgement(UNKNOWN, text, reason)
    if kind.bytes < small:
        reason = f"{blocks}: messages below {format_memory(small)} may use fewer channels"
        return Judgement(UNKNOWN, text, reason)
    return Judgement(CLAMPED + text, text, _launches(kind, blocks) + _nvls(kind))


def _nvls(kind: CollectiveKind) -> str:
    """A note for kinds that may have run on NVLS, which has channels of its own."""
    if kind.library != "nccl" or kind.block != MOST_THREADS:
        return ""
    return "; NVLS uses NCCL_NVLS_NCHANNELS, within NCCL_MIN_CTAS and NCCL_MAX_CTAS"


def _threads(kind: CollectiveKind, value: str, run: Run) -> Judgement:
    """The number of threads of a block: NCCL_NTHREADS, RCCL_THREADS_PER_BLOCK."""
    requested, block = int(value), kind.block
    if block is None:
        return Judgement(UNKNOWN, None, "the trace records no block")
    if kind.library == "rccl":
        reason = _launches(kind, f"blocks of {block} threads")
        if block == requested:
            return Judgement(IN_EFFECT, str(block), reason)
        if block == obeyed_rccl_threads(requested):
            reason += "; RCCL rounds to wavefronts and limits the number"
            return Judgement(f"{CLAMPED}{block}", str(block), reason)
        reason += "; older versions of RCCL read NCCL_NTHREADS alone"
        return Judgement(NOT_IN_EFFECT, str(block), reason)
    if kind.library == "symmetric":
        reason = f"kernels for symmetric memory always have {block} threads"
        return Judgement(NOT_APPLICABLE, str(block), reason)
    if kind.is_point_to_point:
        reason = f"sends and receives always have {MOST_THREADS} threads"
        return Judgement(NOT_APPLICABLE, str(block), reason)
    obeyed = obeyed_threads(requested)
    possible = possible_executions(kind, run._replace(threads=requested))
    found = [one for one in possible if one.block == block]
    whole = [one for one in found if not one.is_halved]
    if whole and all(one.is_set_by_threads for one in whole):
        reason = _launches(kind, f"blocks of {block} threads ({_ways(whole)})")
        if obeyed == requested:
            return Judgement(IN_EFFECT, str(requested), reason)
        rule = f"NCCL_NTHREADS is at least 64 and at most {MOST_NTHREADS}"
        if requested % WARP:
            rule = f"NCCL takes values that are no multiple of {WARP} as {MOST_NTHREADS}"
        return Judgement(f"{CLAMPED}{obeyed}", str(obeyed), f"{reason}; {rule}")
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


def _fixed(block: int, ways: Sequence[Execution]) -> str:
    if all(one.protocol == "ll128" and one.algorithm == "ring" for one in ways):
        return f"{block} threads: the protocol LL128 uses NCCL_LL128_NTHREADS"
    return f"{block} threads, as {_ways(ways)} has whatever NCCL_NTHREADS is"


_WAYS = ({"ring", *FIXED_ALGORITHMS}, {*BYTES_PER_THREAD})
_SPELLINGS = {name.replace("_", ""): name for name in FIXED_ALGORITHMS}


def _way(kind: CollectiveKind, value: str, run: Run, place: int) -> Judgement:
    """NCCL_ALGO (`place` 0) or NCCL_PROTO (1) with the name of a single one."""
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
    if not any(one[place] == wanted for one in executions(kind.operation, None, None, run.threads)):
        return Judgement(NOT_APPLICABLE, None, "the collective has no such implementation")
    if kind.block is None or kind.library != "nccl":
        return Judgement(UNKNOWN, None, "neither name nor block distinguishes it")
    found = sorted(
        {str(one[place]) for one in possible_executions(kind, run) if one.block == kind.block}
    )
    reason = f"its blocks have {kind.block} threads"
    if found == [wanted]:
        return Judgement(IN_EFFECT, wanted, reason)
    if found and wanted not in found:
        return Judgement(NOT_IN_EFFECT, " or ".join(found), reason)
    return Judgement(UNKNOWN, " or ".join(found) or None, f"{reason}, which leaves it open")


def _path(kind: CollectiveKind, value: str, run: Run) -> Judgement:
    """Path of the bytes: ``kernel``, ``symmetric``, ``copy_engine``."""
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


def _policy(kind: CollectiveKind, value: str, run: Run) -> Judgement:
    """NCCL_CTA_POLICY: ``ZERO`` (2) requests copy engines; the others leave no trace."""
    if value.upper() in ("ZERO", "2"):
        return _path(kind, "copy_engine", run)
    return _other_library(kind) or Judgement(UNKNOWN, None, "only ZERO shows in a trace")


def possible_executions(kind: CollectiveKind, run: Run) -> list[Execution]:
    """The ways in which a kind can have run, as far as its kernel's name shows."""
    return executions(kind.operation, kind.algorithm, kind.protocol, run.threads,
                      is_no_tree=kind.is_no_tree, ll128_threads=run.ll128_threads)  # fmt: skip


def _ways(ways: Sequence[Execution]) -> str:
    """``the ring with LL128, PAT or NVLS``."""
    protocols = dict.fromkeys(one.protocol for one in ways if one.algorithm == "ring")
    titles = {**_TITLES, "ring": f"the ring with {' or '.join(_TITLES[one] for one in protocols)}"}
    return alternatives([titles[one] for one in dict.fromkeys(one.algorithm for one in ways)])


_TITLES = {
    "tree": "the tree", "pat": "PAT", "nvls": "NVLS", "nvls_tree": "NVLS tree",
    "collnet_direct": "CollNet direct", "collnet_chain": "CollNet chain",
    "ll": "LL", "ll128": "LL128", "simple": "simple",
}  # fmt: skip


def _launches(kind: CollectiveKind, what: str) -> str:
    alike = f"{kind.judged - kind.unlike:,} of " if kind.unlike else ""
    return f"{what} in {alike}{plural(kind.judged, 'launch', 'launches')}"


_LEAST, _MOST = partial(_channels, is_most=False), partial(_channels, is_least=False)
_JUDGES: Mapping[str, Callable[[CollectiveKind, str, Run], Judgement]] = {
    "channels": _channels,
    "threads": _threads,
    "path": _path,
    **dict.fromkeys(("NCCL_NTHREADS", "RCCL_THREADS_PER_BLOCK"), _threads),
    **dict.fromkeys(("NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MIN_NRINGS"), _LEAST),
    **dict.fromkeys(("NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS", "NCCL_MAX_NRINGS"), _MOST),
    "NCCL_ALGO": partial(_way, place=0),
    "NCCL_PROTO": partial(_way, place=1),
    "NCCL_CTA_POLICY": _policy,
}
_NUMERIC = (_channels, _threads, _LEAST, _MOST)
_OF_ANY_LIBRARY = (_path, _policy)
"""Judges that also apply to kinds without NCCL's settings."""

Judged: TypeAlias = Sequence[tuple[Point, Sequence[SettingVerdict], Sequence[RankFacts]]]

_ORDER = (NOT_IN_EFFECT, CLAMPED, IN_EFFECT, NOT_APPLICABLE, UNKNOWN)
"""The verdict of a point is the first of these that any kind of collective has."""


def setting_verdicts(point: Point, ranks: Sequence[RankFacts]) -> list[SettingVerdict]:
    """The verdict on each setting of `point`, from the facts of its traces.

    A setting is judged on each kind of collective by its largest messages, and the verdict on the
    point is that of the kinds together: one that shows no effect outweighs those that show one, and
    these outweigh those that the setting does not concern.
    """
    kinds = collective_kinds(ranks)
    run = run_of_point(point, ranks)
    return [_verdict(*setting, kinds, run, has_traces=bool(ranks))
            for setting in requested_settings(point)]  # fmt: skip


def requested_settings(point: Point) -> Iterator[tuple[str, str]]:
    """Name and value of each setting of `point`: the two of the folder layout, its axes, and how
    bytes move where the sweep records it."""
    chosen = point.configuration
    if chosen.channels is not None:
        yield "channels", str(chosen.channels)
    if chosen.threads is not None:
        yield "threads", str(chosen.threads)
    yield from chosen.axes
    path = point.facts.get("path")
    if isinstance(path, str) and "path" not in dict(chosen.axes):
        yield "path", path


def run_of_point(point: Point, ranks: Sequence[RankFacts]) -> Run:
    """Facts of the whole of `point`: requested threads, version of NCCL."""
    numbers = {name: int(value) for name, value in requested_settings(point) if value.isdecimal()}
    versions = {facts.versions.get("nccl_version") for facts in ranks} - {None}
    return Run(
        numbers.get("NCCL_NTHREADS", numbers.get("threads", MOST_NTHREADS)),
        numbers.get("NCCL_LL128_NTHREADS", MOST_THREADS),
        versions.pop() if len(versions) == 1 else None,
    )


def _verdict(
    name: str, value: str, kinds: Sequence[CollectiveKind], run: Run, *, has_traces: bool
) -> SettingVerdict:
    judge, why = _JUDGES.get(name), ""
    if judge is None:
        why = "a single trace does not show it"
    elif judge in _NUMERIC and not value.isdigit():
        why = "its value is not a whole number"
    elif not kinds:
        why = "the traces contain no communication" if has_traces else "there are no traces"
    if judge is None or why:
        return SettingVerdict(name=name, requested=value, seen=None, verdict=UNKNOWN, reason=why)
    judged = []
    for kind in kinds:
        other = None if judge in _OF_ANY_LIBRARY else _other_library(kind)
        judged.append((kind, other or judge(kind, value, run)))
    # The kind with the most time names the value to which a setting is clamped.
    verdict = next(one.verdict for start in _ORDER for _, one in judged
                   if one.verdict.startswith(start))  # fmt: skip
    reasons: dict[str, list[str]] = {}
    seen: dict[str, None] = {}
    for kind, one in judged:
        if one.verdict == verdict:
            reasons.setdefault(one.reason, []).append(kind.label)
            seen |= {} if one.seen is None else {one.seen: None}
    texts = [f"{_joined(labels)}: {reason}" for reason, labels in reasons.items()]
    own = ("operation", "algorithm", "protocol", "bytes", "launches", "channels", "block")
    return SettingVerdict(
        name=name, requested=value, seen=", ".join(seen) or None, verdict=verdict,
        reason="; ".join(texts[:3]), collectives=tuple(
            CollectiveVerdict(**{name: getattr(kind, name) for name in own}, **one._asdict())
            for kind, one in judged
        ),
    )  # fmt: skip


def _joined(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"


def sweep_verdicts(points: Judged) -> list[SweepSetting]:
    """The verdict on each setting with more than one value, over all points with traces.

    A setting whose effect the rules cannot show is judged by comparison: where points that differ
    in nothing else run other kernels or messages of other sizes, it has an effect.
    """
    found = (one for _, verdicts, ranks in points if ranks for one in verdicts)
    result = []
    for name, ones in grouped(found, attrgetter("name")).items():
        values = tuple(sorted({one.requested or "" for one in ones}, key=natural))
        if len(values) > 1:
            verdict, reason = _of_sweep(name, values, ones, points)
            result.append(SweepSetting(name=name, values=values, verdict=verdict, reason=reason))
    return result


def _of_sweep(
    name: str, values: tuple[str, ...], ones: Sequence[SettingVerdict], points: Judged
) -> tuple[str, str]:
    """The verdict on a setting, and the sentence."""
    verdicts = {one.verdict for one in ones}
    reason = next((one.reason for one in ones if one.verdict == ones[0].verdict), None) or ""
    is_effective = any(one == IN_EFFECT or one.startswith(CLAMPED) for one in verdicts)
    if not is_effective and UNKNOWN in verdicts:
        return _compared(name, points, reason)
    if not is_effective:
        return "no effect", f"{name} had no effect in the whole sweep ({reason})."
    if len({_as_run(one) for one in ones}) == 1:
        why = f"every value ran alike ({reason})"
        return "no effect", f"{name} had no effect in the whole sweep: {why}."
    if verdicts == {IN_EFFECT}:
        return IN_EFFECT, f"{name} took effect in every point."
    having = {(one.requested, one.verdict) for one in ones}
    counts = [
        f"{', '.join(value for value in values if (value, verdict) in having)}: {verdict}"
        for verdict in sorted(verdicts)
    ]
    limited = {one.requested: one.verdict for one in ones if one.verdict.startswith(CLAMPED)}
    note = "".join(
        f" {name}={value} ran with {verdict.removeprefix(CLAMPED)}."
        for value, verdict in limited.items()
    )
    return "partly in effect", f"{name} took effect in part ({'; '.join(counts)}).{note}"


def _as_run(one: SettingVerdict) -> object:
    """What the setting would change, as it ran."""
    judge = _JUDGES.get(one.name)
    if judge not in _NUMERIC:
        return one.seen
    field = "block" if judge is _threads else "channels"
    return frozenset((kind.operation, getattr(kind, field)) for kind in one.collectives)


def _compared(name: str, points: Judged, reason: str) -> tuple[str, str]:
    """The verdict from points that differ only in this setting."""
    groups: dict[object, list[tuple[str, frozenset[tuple[object, ...]]]]] = {}
    for point, _, ranks in points:
        requested = dict(requested_settings(point))
        value = requested.pop(name, None)
        if value is not None and ranks:
            group = groups.setdefault(tuple(requested.items()), [])
            group.append((value, _communication(ranks)))
    pairs = (pair for group in groups.values() for pair in combinations(group, 2))
    differs = [one[1] != other[1] for one, other in pairs if one[0] != other[0]]
    if differs and all(differs):
        return IN_EFFECT, f"{name} took effect: points with other values communicate otherwise."
    why = "points with other values communicate alike" if differs and not any(differs) else reason
    return UNKNOWN, f"Whether {name} took effect is not known: {why}."


def _communication(ranks: Sequence[RankFacts]) -> frozenset[tuple[object, ...]]:
    """Communication of the ranks, without times."""
    return frozenset(
        (one.collective.op, one.kernel, one.grid, one.block, one.collective.bytes)
        for facts in ranks
        for one in facts.communication
        if one.collective.op != COPY
    )
