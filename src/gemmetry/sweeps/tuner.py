"""The best way to run each collective of each size, over the points of a sweep: on a terminal, and
in the file of NCCL's tuner plugin.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gemmetry.dispatches.terminal import print_table
from gemmetry.domain.tables import Column, ColumnType, Table, grouped
from gemmetry.domain.units import format_memory, plural
from gemmetry.formats.nccl import ANY, COLLECTIVES, TunerLine, tuner_config
from gemmetry.sweeps.collectives import CollectiveKey, kind_of
from gemmetry.sweeps.nccl_settings import collective_kinds, possible_executions, run_of_point
from gemmetry.sweeps.points import PointAnalysis, SweepAnalysis, find_best
from gemmetry.sweeps.ranks import CommunicationKernel, RankFacts
from gemmetry.sweeps.report import number, print_sentences, shown_table
from gemmetry.sweeps.rows import Ranked, SweepConfiguration

if TYPE_CHECKING:
    from rich.console import Console


REACH = 2
"""A measured size stands for sizes from half of it to twice it, as far as no other measured size
is nearer (in the ratio)."""


class Way(NamedTuple):
    """Algorithm, protocol and channels of a collective at a point, which a tuner can set."""

    algorithm: str | None
    protocol: str | None
    channels: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedCollective:
    """A collective of one size, and the best way to run it that the sweep shows."""

    operation: str
    bytes: int
    """Size of the whole message."""
    ranks: int
    nodes: int | None
    source: str
    """``nccl_records`` where NCCL Inspector recorded it at every point, else ``traces``."""
    way: Way
    best: Ranked
    rival: Ranked | None
    """The best configuration that runs it in another way; None if there is none."""

    @property
    def name(self) -> str:
        """The operation, for people."""
        return self.operation.replace("_", "-")

    @property
    def verdict(self) -> str:
        """How the best compares with its rival: ``faster``, ``no difference shown``,
        ``undecided``; ``the only one``."""
        return self.rival.verdict_of_best if self.rival else "the only one"

    @property
    def obstacle(self) -> str:
        """Reason why there is no line for it; "" where there is one."""
        if self.operation not in COLLECTIVES:
            return "the plugin does not tune this operation"
        if self.rival is None:
            return "every point ran it in the same way"
        if self.verdict != "faster":
            return self.verdict + (f" ({self.rival.note})" if self.rival.note else "")
        if self.way.algorithm is None or self.way.protocol is None:
            return "the traces leave its algorithm or protocol open"
        return ""


def tuned_collectives(analysis: SweepAnalysis) -> list[TunedCollective]:
    """Each collective of each size that occurs at a point which ran well, by operation and size.

    The runs of a configuration are its repeats, each with the median latency of the run, compared
    like the steps of points (:func:`~gemmetry.sweeps.points.find_best`): without
    repeats everything is undecided.
    """
    found = [_measured(one) for one in analysis.points if one.ranks and one.point.outcome == "ok"]
    keys = {key for one in found for key in one.traced if None not in key}
    tuned = [_tuned(key, [one for one in found if key in one.traced]) for key in keys]
    return sorted(tuned, key=lambda one: (one.operation, one.ranks, one.bytes))


class _Measured(NamedTuple):
    """The collectives of one run."""

    configuration: SweepConfiguration
    traced: Mapping[CollectiveKey, list[float]]
    recorded: Mapping[CollectiveKey, Sequence[float]]
    ways: Mapping[CollectiveKey, Way]
    nodes: Mapping[CollectiveKey, int | None]


def _measured(one: PointAnalysis) -> _Measured:
    facts = [rank.facts for rank in one.ranks]
    matched = grouped((m for m in one.job.matching.matched if m.is_complete), kind_of)
    nodes: dict[CollectiveKey, int | None] = {}
    hosts = {rank.rank: rank.host for rank in facts}
    for key, same in matched.items():
        # Without host names, numbers of devices do not show whether ranks share a node.
        of_ranks = {hosts.get(rank) for rank, _ in same[-1].members}
        nodes[key] = None if None in of_ranks else len(of_ranks)
    kernels = {
        (rank.rank, kernel.collective.row): kernel
        for rank in facts
        if rank.rank is not None
        for kernel in rank.communication
    }
    rows = {key: sorted({(rank, kernel.row) for m in same for rank, kernel in m.members})
            for key, same in matched.items()}  # fmt: skip
    ways = {key: _way(one, facts[0], [kernels[row] for row in of]) for key, of in rows.items()}
    traced = {key: [m.latency_ns / 1e6 for m in same] for key, same in matched.items()}
    recorded: dict[CollectiveKey, Sequence[float]] = {
        kind.key: [latency / 1e3 for latency in kind.latencies_us]
        for kind in one.recorded
        if kind.is_complete
    }
    nodes.update({kind.key: kind.nodes for kind in one.recorded if kind.nodes})
    return _Measured(one.point.configuration, traced, recorded, ways, nodes)


def _way(one: PointAnalysis, facts: RankFacts, kernels: Sequence[CommunicationKernel]) -> Way:
    """Algorithm and protocol where name or block show a single one, and the channels."""
    kind = collective_kinds([msgspec.structs.replace(facts, communication=tuple(kernels))])[0]
    if kind.library != "nccl" or kind.is_point_to_point:
        return Way(None, None, kind.channels)
    possible = {
        (found.algorithm, found.protocol)
        for found in possible_executions(kind, run_of_point(one.point, [facts]))
        if found.block == kind.block
    }
    algorithm, protocol = possible.pop() if len(possible) == 1 else (None, None)
    return Way(algorithm, protocol, kind.channels)


def _tuned(key: CollectiveKey, runs: Sequence[_Measured]) -> TunedCollective:
    operation, size, ranks = key
    assert operation is not None and size is not None and ranks is not None
    is_recorded = all(key in one.recorded for one in runs)
    latencies: dict[SweepConfiguration, list[Sequence[float]]] = {}
    ways: dict[SweepConfiguration, Way] = {}
    for one in runs:
        source = one.recorded if is_recorded else one.traced
        latencies.setdefault(one.configuration, []).append(source[key])
        ways.setdefault(one.configuration, one.ways[key])
    best = find_best(latencies)
    assert best is not None  # every run has latencies of it
    way = ways[best.first.configuration]
    return TunedCollective(
        operation=operation,
        bytes=size,
        ranks=ranks,
        nodes=runs[0].nodes.get(key),
        source="nccl_records" if is_recorded else "traces",
        way=way,
        best=best.first,
        rival=next((one for one in best.ranked[1:] if ways[one.configuration] != way), None),
    )


def tuner_lines(tuned: Sequence[TunedCollective]) -> list[TunerLine | None]:
    """The line of each collective whose best way is shown; None for the others."""
    return [
        None if one.obstacle else TunerLine(
            operation=one.operation, min_bytes=low, max_bytes=high,
            algorithm=one.way.algorithm or "", protocol=one.way.protocol or "",
            channels=one.way.channels or ANY, nodes=one.nodes or ANY, ranks=one.ranks,
        )
        for one, (low, high) in zip(tuned, size_ranges(tuned), strict=True)
    ]  # fmt: skip


def tuned_entry(one: TunedCollective) -> dict[str, Any]:
    """The keys of one collective in JSON."""
    best, rival = one.best, one.rival
    after: dict[str, Any] = dict.fromkeys(
        ("next", "next_latency_us", "next_runs", "ratio", "ratio_ci_low", "ratio_ci_high")
    )
    if rival is not None:
        values = (rival.configuration.label, rival.mean_ms * 1e3, rival.runs, rival.ratio,
                  rival.ratio_ci_low, rival.ratio_ci_high)  # fmt: skip
        after = dict(zip(after, values, strict=True))
    return {
        "op": one.operation,
        "bytes": one.bytes,
        "group_size": one.ranks,
        "nodes": one.nodes,
        "source": one.source,
        **one.way._asdict(),
        "best": best.configuration.label,
        "latency_us": best.mean_ms * 1e3,
        "runs": best.runs,
        "count": best.steps,
        **after,
        "verdict": one.verdict,
        "is_set": not one.obstacle,
        "obstacle": one.obstacle or None,
    }


def size_ranges(tuned: Sequence[TunedCollective]) -> list[tuple[int, int]]:
    """The sizes in bytes, both ends included, that each entry stands for (:data:`REACH`)."""
    alike = grouped(tuned, attrgetter("operation", "ranks"))
    found = []
    for one in tuned:
        size, others = one.bytes, [other.bytes for other in alike[one.operation, one.ranks]]
        lows = [math.isqrt(size * other) + 1 for other in others if other < size]
        highs = [math.isqrt(size * other) for other in others if other > size]
        found.append((max([-(-size // REACH), *lows]), min([size * REACH, *highs])))
    return found


def print_tuned(tuned: Sequence[TunedCollective], console: Console) -> None:
    """Print what is set and what is not, then a table of all collectives."""
    print_sentences(tuned_sentences(tuned), console)
    if tuned:
        print_table(_table(tuned), console)


def tuned_sentences(tuned: Sequence[TunedCollective]) -> list[str]:
    """For how many collectives a setting is shown, and why there is none for the others."""
    if not tuned:
        return ["The traces have no collective that could be matched between all ranks."]
    count = sum(not one.obstacle for one in tuned)
    found = [f"A best setting is shown for {count} of {plural(len(tuned), 'collective')}."]
    reasons = Counter(one.obstacle for one in tuned if one.obstacle)
    return found + [f"Without one: {number}, {reason}." for reason, number in reasons.items()]


def tuner_text(sweep: str, tuned: Sequence[TunedCollective]) -> str:
    """The content of ``nccl_tuner.conf``: a line for each collective whose best way is shown, and
    the evidence for all of them as comments. `sweep`: its name."""
    title = (
        f"Settings of collectives from the sweep {sweep}. Each line is the fastest way to run one "
        "collective; whether steps are shorter with it is for another run to show."
    )
    return tuner_config(title, zip(map(evidence, tuned), tuner_lines(tuned), strict=True))


def evidence(one: TunedCollective) -> str:
    """Evidence of the sweep on one collective, in sentences for a comment."""
    source = "NCCL's records" if one.source == "nccl_records" else "traces"
    best, rival = one.best, one.rival
    text = (
        f"{one.name} of {format_memory(one.bytes)} on {plural(one.ranks, 'rank')}: "
        f"{best.mean_ms * 1e3:.1f} us with {best.configuration.label} ({_counts(best)}, from "
        f"{source})"
    )
    if rival is not None:
        text += f"; {rival.configuration.label} takes {rival.mean_ms * 1e3:.1f} us"
        if rival.ratio_ci_low is not None:
            low, high = (100 * (end - 1) for end in (rival.ratio_ci_low, rival.ratio_ci_high))
            text += f", {low:+.1f} % to {high:+.1f} % ({_counts(rival)})"
    return f"{text}.\n" + (f"Not set: {one.obstacle}." if one.obstacle else "Set: faster.")


def _counts(one: Ranked) -> str:
    return f"{plural(one.runs, 'run')}, {plural(one.steps, 'collective')}"


def _table(tuned: Sequence[TunedCollective]) -> Table:
    channels = Column("channels", ColumnType.INTEGER, absent="?")
    columns = ("collective", "size", number("us", "{:,.1f}"), "way", channels, "next %", "verdict")
    rows = [
        [
            one.name, format_memory(one.bytes), one.best.mean_ms * 1e3,
            f"{one.way.algorithm or '?'}, {one.way.protocol or '?'}", one.way.channels,
            _next(one), one.verdict,
        ]
        for one in tuned
    ]  # fmt: skip
    return shown_table("collectives", *columns, rows=rows)


def _next(one: TunedCollective) -> str:
    """``+9 (+8 to +10)``: by how much the next best way takes longer."""
    if one.rival is None:
        return "-"
    ratios = (one.rival.ratio, one.rival.ratio_ci_low, one.rival.ratio_ci_high)
    middle, *ends = (f"{100 * (ratio - 1):+.0f}" for ratio in ratios if ratio is not None)
    return f"{middle} ({ends[0]} to {ends[1]})" if ends else middle
