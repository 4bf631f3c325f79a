"""Whether the requested settings of a sweep's points took effect, as the traces show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gemmetry.analysis.sweeps.collectives.judging import (
    CLAMPED,
    IN_EFFECT,
    NOT_APPLICABLE,
    NOT_IN_EFFECT,
    UNKNOWN,
    Judge,
    Judgement,
    Run,
    judge_algorithm,
    judge_channels,
    judge_least_channels,
    judge_most_channels,
    judge_path,
    judge_policy,
    judge_protocol,
    judge_threads,
)
from gemmetry.analysis.sweeps.collectives.kinds import COPY, CollectiveKind, collective_kinds
from gemmetry.analysis.sweeps.model import (
    CollectiveVerdict,
    Point,
    RankFacts,
    SettingVerdict,
    natural,
)

_JUDGES: Mapping[str, Judge] = {
    "channels": judge_channels,
    "threads": judge_threads,
    "path": judge_path,
    "NCCL_NTHREADS": judge_threads,
    "RCCL_THREADS_PER_BLOCK": judge_threads,
    "NCCL_MIN_CTAS": judge_least_channels,
    "NCCL_MIN_NCHANNELS": judge_least_channels,
    "NCCL_MIN_NRINGS": judge_least_channels,
    "NCCL_MAX_CTAS": judge_most_channels,
    "NCCL_MAX_NCHANNELS": judge_most_channels,
    "NCCL_MAX_NRINGS": judge_most_channels,
    "NCCL_ALGO": judge_algorithm,
    "NCCL_PROTO": judge_protocol,
    "NCCL_CTA_POLICY": judge_policy,
}
_NUMERIC = (judge_channels, judge_threads, judge_least_channels, judge_most_channels)

_ORDER = (NOT_IN_EFFECT, CLAMPED, IN_EFFECT, NOT_APPLICABLE, UNKNOWN)
"""The verdict of a point is the first of these that any kind of collective has."""


def setting_verdicts(point: Point, ranks: Sequence[RankFacts]) -> list[SettingVerdict]:
    """The verdict on each setting of `point`, from the facts of its traces.

    A setting is judged on each kind of collective by its largest messages, and the verdict on the
    point is that of the kinds together: one that shows no effect outweighs those that show one, and
    these outweigh those that the setting does not concern.
    """
    kinds = collective_kinds(ranks)
    requested = list(requested_settings(point))
    run = run_of_point(point, ranks)
    return [_verdict(name, value, kinds, run, has_traces=bool(ranks)) for name, value in requested]


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
    """What holds for the whole of `point`: requested threads, version of NCCL."""
    requested = dict(requested_settings(point))
    run = Run()
    for name in ("threads", "NCCL_NTHREADS"):
        if requested.get(name, "").isdigit():
            run = run._replace(threads=int(requested[name]))
    if requested.get("NCCL_LL128_NTHREADS", "").isdigit():
        run = run._replace(ll128_threads=int(requested["NCCL_LL128_NTHREADS"]))
    versions = {facts.versions.get("nccl_version") for facts in ranks} - {None}
    return run._replace(version=versions.pop() if len(versions) == 1 else None)


def _verdict(
    name: str, value: str, kinds: Sequence[CollectiveKind], run: Run, *, has_traces: bool
) -> SettingVerdict:
    judge = _JUDGES.get(name)
    if judge is None:
        return SettingVerdict(name, value, None, UNKNOWN, "a single trace does not show it")
    if judge in _NUMERIC and not value.isdigit():
        return SettingVerdict(name, value, None, UNKNOWN, "its value is not a whole number")
    if not kinds:
        reason = "the traces contain no communication" if has_traces else "there are no traces"
        return SettingVerdict(name, value, None, UNKNOWN, reason)
    judged = [(kind, judge(kind, value, run)) for kind in kinds]
    collectives = tuple(_of_kind(kind, one) for kind, one in judged)
    rank = min(_place(one.verdict) for _, one in judged)
    deciding = [(kind, one) for kind, one in judged if _place(one.verdict) == rank]
    first = deciding[0][1]
    if first.verdict.startswith(CLAMPED):
        # The kind with the most time names the value.
        deciding = [pair for pair in deciding if pair[1].verdict == first.verdict]
    reasons: dict[str, list[str]] = {}
    for kind, one in deciding:
        reasons.setdefault(one.reason, []).append(kind.label)
    texts = [f"{_joined(labels)}: {reason}" for reason, labels in reasons.items()]
    return SettingVerdict(name, value, _seen(deciding), first.verdict, "; ".join(texts[:3]),
                          collectives)  # fmt: skip


def _place(verdict: str) -> int:
    return next(index for index, one in enumerate(_ORDER) if verdict.startswith(one))


def _seen(deciding: Sequence[tuple[CollectiveKind, Judgement]]) -> str | None:
    found = dict.fromkeys(one.seen for _, one in deciding if one.seen is not None)
    return ", ".join(found) or None


def _joined(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"


def _of_kind(kind: CollectiveKind, one: Judgement) -> CollectiveVerdict:
    return CollectiveVerdict(
        operation=kind.operation,
        algorithm=kind.algorithm,
        protocol=kind.protocol,
        bytes=kind.bytes,
        launches=kind.launches,
        channels=kind.channels,
        block=kind.block,
        seen=one.seen,
        verdict=one.verdict,
        reason=one.reason,
    )


@dataclass(frozen=True, slots=True)
class SweepSetting:
    """What the points of a whole sweep show of one setting with several values."""

    name: str
    values: tuple[str, ...]
    """The requested values."""
    verdict: str
    """``in effect``, ``partly in effect``, ``no effect`` or ``unknown``."""
    reason: str
    """A sentence for the top of a report."""


def sweep_verdicts(
    points: Sequence[tuple[Point, Sequence[SettingVerdict], Sequence[RankFacts]]],
) -> list[SweepSetting]:
    """The verdict on each setting with more than one value, over all points with traces.

    A setting whose effect the rules cannot show is judged by comparison: where points that differ
    in nothing else run other kernels or messages of other sizes, it has an effect.
    """
    found: dict[str, list[SettingVerdict]] = {}
    for _, verdicts, ranks in points:
        for one in verdicts:
            if ranks:
                found.setdefault(one.name, []).append(one)
    result = []
    for name, ones in found.items():
        values = tuple(sorted({one.requested or "" for one in ones}, key=natural))
        if len(values) > 1:
            result.append(_sweep_setting(name, values, ones, points))
    return result


def _sweep_setting(
    name: str,
    values: tuple[str, ...],
    ones: Sequence[SettingVerdict],
    points: Sequence[tuple[Point, Sequence[SettingVerdict], Sequence[RankFacts]]],
) -> SweepSetting:
    verdicts = {one.verdict for one in ones}
    reason = next((one.reason for one in ones if one.verdict == ones[0].verdict), "")
    is_effective = any(one == IN_EFFECT or one.startswith(CLAMPED) for one in verdicts)
    if not is_effective and UNKNOWN in verdicts:
        return _compared(name, values, points, reason)
    if not is_effective:
        sentence = f"{name} had no effect in the whole sweep ({reason})."
        return SweepSetting(name, values, "no effect", sentence)
    if len({_as_run(one) for one in ones}) == 1:
        sentence = f"{name} had no effect in the whole sweep: every value ran alike ({reason})."
        return SweepSetting(name, values, "no effect", sentence)
    if verdicts == {IN_EFFECT}:
        return SweepSetting(name, values, IN_EFFECT, f"{name} took effect in every point.")
    counts = [f"{_count(ones, values, verdict)}: {verdict}" for verdict in sorted(verdicts)]
    limited = {one.requested: one.verdict for one in ones if one.verdict.startswith(CLAMPED)}
    note = "".join(
        f" {name}={value} ran with {verdict.removeprefix(CLAMPED)}."
        for value, verdict in limited.items()
    )
    sentence = f"{name} took effect in part ({'; '.join(counts)}).{note}"
    return SweepSetting(name, values, "partly in effect", sentence)


def _as_run(one: SettingVerdict) -> object:
    """What the setting would change, as it ran."""
    judge = _JUDGES.get(one.name)
    if judge not in _NUMERIC:
        return one.seen
    is_threads = judge is judge_threads
    return frozenset(
        (kind.operation, kind.block if is_threads else kind.channels) for kind in one.collectives
    )


def _count(ones: Sequence[SettingVerdict], values: Sequence[str], verdict: str) -> str:
    return ", ".join(
        value
        for value in values
        if any(one.requested == value and one.verdict == verdict for one in ones)
    )


def _compared(
    name: str,
    values: tuple[str, ...],
    points: Sequence[tuple[Point, Sequence[SettingVerdict], Sequence[RankFacts]]],
    reason: str,
) -> SweepSetting:
    """The verdict from points that differ only in this setting."""
    groups: dict[object, list[tuple[str, frozenset[tuple[object, ...]]]]] = {}
    for point, _, ranks in points:
        requested = dict(requested_settings(point))
        value = requested.pop(name, None)
        if value is not None and ranks:
            group = groups.setdefault(tuple(requested.items()), [])
            group.append((value, _communication(ranks)))
    compared = differing = 0
    for group in groups.values():
        for index, (value, seen) in enumerate(group):
            for other, also in group[index + 1 :]:
                compared += value != other
                differing += value != other and seen != also
    if compared and differing == compared:
        sentence = f"{name} took effect: points with other values communicate otherwise."
        return SweepSetting(name, values, IN_EFFECT, sentence)
    why = "points with other values communicate alike" if compared and not differing else reason
    sentence = f"Whether {name} took effect is not known: {why}."
    return SweepSetting(name, values, UNKNOWN, sentence)


def _communication(ranks: Sequence[RankFacts]) -> frozenset[tuple[object, ...]]:
    """What is communicated and how, without times."""
    return frozenset(
        (one.collective.op, one.kernel, one.grid, one.block, one.collective.bytes)
        for facts in ranks
        for one in facts.communication
        if one.collective.op != COPY
    )
