"""The rows of a sweep's analysis: ``analysis.json``, tables, data frames and pages are made from
these declarations. None: the traces do not show it. Times are in µs or ms, as names state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from gemmetry.domain.record import flat_fields
from gemmetry.domain.rows import Row, Rows, derived, fact, inline
from gemmetry.domain.units import format_change, format_memory, format_percent, plural
from gemmetry.hardware.amd_counters import METRICS
from gemmetry.results.emit import Result
from gemmetry.statistics.comparison import Comparison, Difference

if TYPE_CHECKING:
    from gemmetry.sweeps.folder import Point
    from gemmetry.sweeps.points import Best, PointAnalysis, SweepAnalysis

CONFIDENCE = 0.95

DELAYS, NO_DELAY_SHOWN, UNDECIDED = "delays the others", "no delay shown", "undecided"
"""Verdicts on a rank of a point."""


@dataclass(frozen=True, slots=True)
class SweepConfiguration:
    """The settings that distinguish a point from others, without the repeat."""

    threads: int | None = None
    channels: int | None = None
    axes: tuple[tuple[str, str], ...] = ()
    """Further axes with their values, by name."""

    @property
    def settings(self) -> list[str]:
        """Each setting, for people: ``256 threads``, ``NCCL_ALGO=Ring``."""
        numbers = (("thread", self.threads), ("channel", self.channels))
        parts = [plural(value, name) for name, value in numbers if value is not None]
        return [*parts, *(f"{name}={value}" for name, value in self.axes)]

    @property
    def label(self) -> str:
        """``256 threads, 8 channels, NCCL_ALGO=Ring``."""
        return ", ".join(self.settings) or "the only configuration"

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorts by threads, channels and axes; numbers by value, missing ones first."""
        numbers = (-1 if one is None else one for one in (self.threads, self.channels))
        return (*numbers, tuple((name, natural(value)) for name, value in self.axes))


def natural(value: str) -> tuple[float, str]:
    """Sorts the values of a setting: numbers by value, then other texts."""
    try:
        return float(value), ""
    except ValueError:
        return float("inf"), value


def configuration_of(entry: Mapping[str, Any]) -> SweepConfiguration:
    """The configuration of an entry of ``analysis.json``."""
    return SweepConfiguration(
        entry["threads"], entry["channels"], tuple(sorted(entry["axes"].items()))
    )


def configuration_entry(one: SweepConfiguration) -> dict[str, Any]:
    """The keys that identify a configuration."""
    return {"threads": one.threads, "channels": one.channels, "axes": dict(one.axes)}


def _shown(show: Callable[[Any], str], unit: str = "", **usual: Any) -> Callable[..., Any]:
    """Declares facts that pages with a heading for them show in one way."""
    return lambda text, page="", **more: fact(
        text, unit, page=page, show=show if page else None, **usual | more
    )


_count, _change = _shown("{:,}".format), _shown(format_change)
_us, _whole_us = _shown("{:,.1f}".format, "µs"), _shown("{:,.0f}".format, "µs")
_ms = _shown("{:,.2f}".format, "ms", default=None)
_ms_of_step = _shown("{:,.3f}".format, "ms")
_bytes, _size, _gbps = _shown(format_memory, "B"), _shown(format_memory), _shown("{:,.1f}".format)


def _end(which: str, key: str, show: Callable[[Any], str] | None = None, unit: str = "") -> Any:
    page = {"lower": "low", "upper": "high"}[which] if show else ""
    return fact(f"{which} end of its interval", unit, key=key, page=page, show=show)


class _Row(Row, digits=6):
    """Without the digits that come from binary fractions: a ns of a µs has three."""


class Configuration(_Row):
    """The settings that distinguish points."""

    threads: int | None = fact("NCCL threads per block, as requested")
    channels: int | None = fact("NCCL channels, as requested")
    axes: dict[str, str] = fact("further axes with their values")

    @property
    def label(self) -> str:
        """The configuration, for people."""
        return configuration_of(vars(self)).label


class PointKeys(Configuration):
    """Keys that identify a point."""

    repeat: int = fact("number of the repeat")


class GemmKind(_Row):
    """A kernel with a shape; None: the trace does not record it."""

    kernel: str = fact("name of the kernel", page="kernel")
    """Full name; the operator's name in a trace without work on a GPU."""
    short: str = ""
    """A readable form of the name."""
    m: int | None = fact("rows of the result", default=None)
    n: int | None = fact("columns of the result", default=None)
    k: int | None = fact("length of the sums", default=None)
    batch: int | None = fact("number of products", default=None)
    dtype: str | None = fact("format of A and B", default=None)
    layout: str | None = fact("of A and B: t row-major, n column-major", default=None)
    is_helper: bool = False
    """A helper pass, such as the sum over the slices of split-k."""

    @classmethod
    def of_shape(cls, shape: Sequence[Any] | None, **names: Any) -> GemmKind:
        """The kernel with the sizes that a shape begins with; without them where it is None."""
        return cls(**dict(zip(("m", "n", "k", "batch"), shape or (), strict=False)), **names)

    @property
    def shape(self) -> str:
        """``4096x4096x16384``, with the batch in front where it is not 1; "" if not known."""
        if self.m is None:
            return ""
        sizes = (self.m, self.n, self.k) if self.batch in (None, 1) else (
            self.batch, self.m, self.n, self.k
        )  # fmt: skip
        return "x".join(map(str, sizes))


class DoseResponse(_Row):
    """Dependence of the duration on the overlapped share of an instance.

    The factor is the Theil-Sen slope of the logarithm of the duration over the share.
    """

    full_overlap_slowdown: float | None = _change(
        "factor from no overlap to full overlap", "full overlap"
    )
    low: float | None = _end("lower", "full_overlap_ci_low")
    high: float | None = _end("upper", "full_overlap_ci_high")
    count: int
    note: str = fact(
        "why there is no such factor, though enough instances overlap",
        key="full_overlap_note", default="",
    )  # fmt: skip
    highest_share: float | None = fact(
        "highest overlapped share of an instance, 0 to 1", key="highest_overlap_share",
        page="highest overlap", show=format_percent,
    )  # fmt: skip


class CollectiveEffect(_Row):
    """The instances that ran mostly next to one kind of collective, compared with those alone."""

    op: str = fact("operation; ``unknown`` without one")
    count: int = fact("instances")
    median_us: float = fact("their median", "µs")
    slowdown: float | None = fact("ratio to the median alone")
    low: float | None = _end("lower", "slowdown_ci_low")
    high: float | None = _end("upper", "slowdown_ci_high")
    verdict: str = fact("as of all instances")


class _Effect(_Row):
    """The effect of communication on one GEMM."""

    overlapped_count: int = _count("instances during which communication ran", "n with comm.")
    alone_count: int = _count("instances without", "n alone")
    overlapped_median_us: float | None = _us("median of the former", "with comm. µs")
    alone_median_us: float | None = _us("median of the latter", "alone µs")
    slowdown: float | None = _change(
        "ratio of the two; over several ranks, the median over the pairs of instances of one rank",
        "slowdown",
    )
    low: float | None = _end("lower", "slowdown_ci_low", format_change)
    high: float | None = _end("upper", "slowdown_ci_high", format_change)
    verdict: str = fact(
        "slower, faster, no difference shown, undecided, no control group or not overlapped",
        page="verdict",
    )
    cost_ms_per_step: float | None = _ms_of_step(
        "time that overlapped instances took longer, per step", "ms/step"
    )
    dose: DoseResponse | None = inline()
    note: str | None = fact("why there is no verdict", page="note")

    @property
    def is_slowed(self) -> bool:
        """Whether a slowdown is shown."""
        return self.verdict == Difference.SLOWER


class Cause(_Effect):
    """The effect of communication on one GEMM of a rank. The intervals of all GEMMs of the rank
    hold together with 95 %."""

    by_collective: tuple[CollectiveEffect, ...] = fact("by the kind of collective", column="")
    """Effects by count; empty where nothing overlaps."""


class GemmStatistics(_Row):
    """All instances of one GEMM in the trace of one rank."""

    kind: GemmKind = inline()
    index: int
    """Index of the kind in :attr:`~gemmetry.sweeps.ranks.RankFacts.gemm_kinds`."""
    count: int = fact("instances")
    sum_us: float = fact("total time", "µs")
    median_us: float = fact("median time", "µs")
    p5_us: float = fact("5th percentile", "µs")
    p95_us: float = fact("95th percentile", "µs")
    mad_us: float = fact("median absolute deviation from the median", "µs")
    cv: float | None = fact("standard deviation over mean")
    """With n - 1; None of a single instance."""
    min_us: float = fact("shortest time", "µs")
    max_us: float = fact("longest time", "µs")
    max_minus_min_us: float = fact("longest less shortest time", "µs")
    first_step_median_us: float | None = fact("median in the first recorded step", "µs")
    """Median of a step that may have run on cold caches, at another clock or during autotuning."""
    later_steps_median_us: float | None = fact("median in later steps", "µs")
    first_step_ratio: float | None = fact("ratio of the two")
    cause: Cause = inline()


class ShareOfOverlap(_Row):
    """The instances whose overlapped share of the time is in a range (low excluded)."""

    low: float = fact("lower end of the range")
    high: float = fact("upper end")
    count: int = fact("instances")
    slowdown: float = fact("median duration, as a multiple of the median alone on the same rank")


class _Instances(_Row):
    kind: GemmKind = inline()
    ranks: tuple[int | None, ...] = fact("those that run it", column="")
    count: int = fact("instances")
    sum_us: float = fact("total time", "µs")


class PooledGemm(_Effect, _Instances):
    """One GEMM on all ranks of a point. The intervals of all GEMMs of all points hold together with
    95 %, and costs are means over the ranks whose cost is known."""

    by_share: tuple[ShareOfOverlap, ...] = fact("slowdown by overlapped share", column="")
    """One entry per range of shares that has instances; empty without a control group."""


class CollectiveVerdict(_Row):
    """Whether a setting took effect on one kind of collective."""

    operation: str | None = fact("operation")
    algorithm: str | None = fact("algorithm, where the kernel's name states it")
    protocol: str | None = fact("protocol, where the kernel's name states it")
    bytes: int | None = fact("largest message, on which the setting is judged", "B")
    launches: int = fact("launches over all ranks")
    channels: int | None = fact("grid.x of those launches")
    block: int | None = fact("block.x of those launches")
    seen: str | None = fact("value in the traces")
    verdict: str = fact("as of the setting")
    reason: str = fact("why, in a sentence")


class SettingVerdict(_Row):
    """Whether one requested setting took effect at a point."""

    name: str = fact("``channels``, ``threads``, or an axis", page="setting")
    requested: str | None = fact("value in the request", key="asked", page="requested")
    seen: str | None = fact("value in the traces", page="seen")
    verdict: str = fact(
        "in effect, clamped to N, not applicable, not in effect or unknown", page="verdict"
    )
    reason: str | None = fact("why, in a sentence", page="reason", default=None)
    collectives: tuple[CollectiveVerdict, ...] = fact("of each kind of collective", default=())


class SweepSetting(_Row):
    """Effect of one setting with several values, over a whole sweep."""

    name: str = fact("setting")
    values: tuple[str, ...] = fact("requested values")
    verdict: str = fact("in effect, partly in effect, no effect or unknown")
    reason: str = fact("a sentence for the top of a report")


class PointStraggler(_Row):
    """Delay of a point's other ranks by one rank."""

    rank: int = _count("rank", "rank")
    collectives: int | None = _count("its matched collectives", "collectives")
    last_share: float = fact(
        "share of them that the rank entered last", page="came last", show=format_percent
    )
    waited_us: float = _whole_us("how long it waited for others, over all collectives", "waited µs")
    delayed_us: float = _us(
        "how long all others waited for this rank alone, in the median step", default=0.0
    )
    """The time between the second to last start and its own, over the collectives of a step that it
    entered last."""
    lost_in: str | None = fact(
        "kernel in which it lost time against ranks that merely wait", page="lost time in",
        default=None,
    )  # fmt: skip
    """Or :data:`~gemmetry.sweeps.collectives.IDLE`,
    :data:`~gemmetry.sweeps.collectives.EVERYWHERE`; None if nothing is shown."""
    lost_us: float | None = _whole_us(
        "time lost there, in the median step", "lost µs/step", default=None
    )
    since_step: int | None = _count(
        "step from which on it delays the others", "since step", default=None
    )
    is_straggler: bool = fact("whether it is shown to delay the others", default=False)
    verdict: str = fact(
        "delays the others, no delay shown or undecided", page="verdict", default=UNDECIDED
    )


class RecordedCollective(_Row):
    """The collectives of a point with the same operation, size and number of ranks, as NCCL
    recorded them over the whole run, and as the traces show those of the profiled steps."""

    operation: str = fact("operation", key="op", page="operation")
    bytes: int = _bytes("of the whole message", "size")
    ranks: int = _count("ranks", "ranks", key="group_size")
    nodes: int | None = fact("nodes")
    channels: int | None = _count("channels", "channels")
    count: int = _count("collectives, each recorded by several ranks", "count")
    is_complete: bool = fact("whether every rank recorded each of them")
    """Otherwise latencies are upper bounds."""
    timing: str | None = fact("clock of most records")
    latencies_us: tuple[float, ...]
    """Latency of each collective: the shortest duration on any rank, which did not wait for
    others."""
    latency_us: float = _us("median, as NCCL Inspector recorded it", "latency µs")
    low: float | None = _end("lower", "latency_ci_low_us", unit="µs")
    high: float | None = _end("upper", "latency_ci_high_us", unit="µs")
    busbw_gbps: float | None = _gbps(
        "bus bandwidth at the median latency, in 10⁹ bytes per second", "bus GB/s"
    )
    traced_count: int = fact("the same collectives in the traces")
    traced_latency_us: float | None = _us(
        "median of the same collectives in the traces", "latency in traces µs"
    )
    traced_busbw_gbps: float | None = _gbps("their bus bandwidth, in 10⁹ bytes per second")

    @property
    def key(self) -> tuple[str | None, int | None, int | None]:
        """Key that identifies the collective in traces as well."""
        return self.operation, self.bytes, self.ranks


class PointCollective(_Row):
    """The collectives of one point with the same operation, type, size and group size."""

    op: str | None = fact("operation", page="operation")
    dtype: str | None = fact("type", page="type")
    bytes: int | None = _bytes("of the whole message", "size")
    group_size: int | None = _count("ranks", "ranks")
    count: int = _count("collectives", "count")
    latency_us: float | None = _us(
        "median, from the last rank's start to the last end", "latency µs"
    )
    busbw_gbps: float | None = _gbps("median bus bandwidth, in 10⁹ bytes per second", "bus GB/s")
    duration_us: float = _us("median of the kernels, waits included", "duration µs")
    is_complete: bool = fact("whether every rank of the groups has a trace")
    """Otherwise latencies are upper bounds and bandwidths lower bounds."""


_HEADINGS = {"cu_busy_percent": "CU busy %", "mfma_util_percent": "matrix %",
             "occupancy_percent": "occupancy %", "waves": "waves"}  # fmt: skip

if TYPE_CHECKING:

    class RocprofMetrics(_Row):
        """Figures of a kernel by the names of :data:`~gemmetry.hardware.amd_counters.METRICS`."""

else:
    RocprofMetrics = type("RocprofMetrics", (_Row,), {
        "__annotations__": dict.fromkeys((one.name for one in METRICS), float | None),
        "__module__": __name__,
        **{one.name: fact(one.description, one.unit, page=_HEADINGS.get(one.name, ""),
                          show="{:,}".format if one.name == "waves" else "{:,.1f}".format)
           for one in METRICS},
    })  # fmt: skip


class RocprofKernel(_Row):
    """Kernel with one grid on one rank, as recorded by rocprofv3. Figures of a dispatch are
    medians; None where the files do not show them."""

    rank: int | None = _count("rank; empty where the files do not state it", "rank")
    rank_source: str | None = fact("file name, environment, command line, trace or gpu")
    """``trace``: torch's profiler recorded the same process; ``gpu``: the process used the same GPU
    in another pass."""
    pids: tuple[int, ...] = fact("its process in each pass")
    host: str | None = fact("name of the node")
    device: int | None = fact("number of the GPU")
    chip: str | None = fact("such as gfx942")
    kernel: str = fact("name of the kernel", page="kernel")
    workgroups: int | None = _count("of the grid", "workgroups")
    workgroup_size: int | None = fact("work-items of a workgroup")
    count: int = _count("dispatches", "count")
    """Dispatches of the pass with the fewest."""
    passes: int = fact("passes that have the kernel")
    median_us: float | None = _us("median time", "µs")
    is_serialised: bool = fact(
        "counters were collected: the time is not comparable with a trace", page="serialised"
    )
    """Counting runs kernels one after the other."""
    metrics: RocprofMetrics = inline()
    matrix_gflop: float | None = fact("work of the matrix units per dispatch", "10⁹ FLOP")
    vgprs: int | None = _count("vector registers of a work-item", "VGPR")
    accum_vgprs: int | None = _count("its accumulation registers", "AGPR")
    sgprs: int | None = _count("scalar registers of a wave", "SGPR")
    lds_bytes: int | None = _size("LDS of a workgroup", "LDS")
    scratch_bytes: int | None = fact("scratch memory of a work-item")
    counters: dict[str, float] = fact("medians of all counters, each a sum over its instances")


def _compared(text: str, name: str, kind: Any = float | None) -> Any:
    """A fact of the comparison; None without one."""
    return derived(text, type=kind)(lambda one: getattr(one.comparison, name, None))


class Ratio(Row):
    """A ratio of times and what it shows."""

    comparison: Comparison | None
    ratio = _compared("after over before", "ratio")
    ratio_ci_low = _compared("lower end of its interval", "ratio_low")
    ratio_ci_high = _compared("upper end of its interval", "ratio_high")
    verdict = _compared("slower, faster, no difference shown or undecided", "verdict", str | None)


class SettingEffect(_Row, Ratio):
    """The time of a step with one value of a setting, compared with another value. The intervals of
    all effects of the sweep hold together with 95 %."""

    name: str = fact("``threads``, ``channels``, or the name of an axis")
    before: str = fact("value before")
    after: str = fact("value after")
    pairs: int = fact("pairs of points that differ in nothing else")


class Ranked(Configuration, Ratio):
    """A configuration compared with the best one, which itself has no ratio."""

    mean_ms: float = fact("mean step over its runs", "ms", key="step_ms")
    """Geometric, of the run's median step, so that quotients are the ratios that are compared."""
    runs: int = fact("runs")
    note: str | None = fact("why it is undecided")
    steps: int
    configuration: SweepConfiguration

    @property
    def verdict_of_best(self) -> str:
        """How the best compares with it: ``faster``, ``no difference shown``, ``undecided``."""
        assert self.comparison is not None  # the best itself is not compared
        found = self.comparison.verdict
        return Difference.FASTER if found is Difference.SLOWER else found


class StepMedian(_Row):
    """The median step of a point."""

    median: float | None = _ms(
        "median step: the longest window of any rank", "step ms", column="step_ms"
    )
    ci_low: float | None = _ms("lower end of its 95 % interval", "low", column="step_ms_ci_low")
    """Lower end; None for fewer than 6 steps."""
    ci_high: float | None = _ms("upper end of its 95 % interval", "high", column="step_ms_ci_high")
    n: int = _count("steps that all ranks recorded", "steps", column="steps")


class StepSummary(_Row):
    """Parts of the median step, which add up to it: those of that step, or means of the two middle
    ones."""

    step_ms: StepMedian = fact("median step", "ms")
    compute_ms: float | None = _ms("computing, as if nothing were slowed", "compute ms")
    slowed_compute_ms: float | None = _ms("by how much communication lengthened GEMMs", "slowed ms")
    exposed_comm_ms: float | None = _ms(
        "communication while nothing is computed", "exposed comm. ms"
    )
    exposed_copy_ms: float | None = _ms("copies while nothing else runs", "exposed copies ms")
    idle_ms: float | None = _ms("nothing runs", "idle ms")


class StepRow(_Row):
    """One step of a point."""

    step: int = fact("number")
    slowest_rank: int | None = fact("the rank with the longest window")
    awaited_rank: int | None = fact("the rank that waits least; the parts of the step are its")
    window_ms: float = fact("the longest window", "ms")


class PointRow(PointKeys):
    """A point: how its run ended, its steps, and what was found of its ranks."""

    world_size: int | None = fact("ranks of the run")
    outcome: str = fact("ok, failed, no_traces or not_run", page="outcome")
    reason: str | None = fact("why it is not ok")
    left_out: str | None = fact("why its steps are not compared with those of other points")
    folder: str = fact("folder", column="")
    ranks: tuple[int | None, ...] = fact("ranks with a trace", column="")
    device: str | None = fact("product name of the GPU", column="")
    versions: dict[str, str] = fact("versions that the traces record", column="")
    settings: tuple[SettingVerdict, ...] = fact("whether settings took effect")
    parts: StepSummary = inline()
    steps: tuple[StepRow, ...] = fact("each step")
    stragglers: tuple[PointStraggler, ...] = fact("each rank")
    nccl_records: tuple[RecordedCollective, ...] = fact("what NCCL Inspector recorded")
    problems: tuple[str, ...] = fact("what is missing or damaged", column="")


class GemmRow(PointKeys):
    """A kernel with a shape on one rank of a point."""

    rank: int | None = fact("rank")
    gemm: GemmStatistics = inline()


class PooledRow(PointKeys):
    """A kernel with a shape on all ranks of a point."""

    PAGE_LAST = (
        "with comm. µs", "slowdown", "low", "high", "verdict", "ms/step", "full overlap",
        "highest overlap", "n alone", "n with comm.", "note",
    )  # fmt: skip
    gemm: PooledGemm = inline()


class CollectiveRow(PointKeys):
    """The collectives of a point by operation, type and size."""

    collective: PointCollective = inline()


class RocprofRow(PointKeys):
    """A kernel with one grid on one rank of a point, as rocprofv3 recorded it."""

    kernel: RocprofKernel = inline()


def sweep_result(analysis: SweepAnalysis) -> Result:
    """Everything that a sweep shows; its document is ``analysis.json``."""
    points = analysis.points
    keys = {id(one): _keys(one.point) for one in points}

    def of_points(kind: Any, name: str, found: str) -> Rows:
        find = attrgetter(found)
        return Rows(kind, [
            kind(**keys[id(one)], **{name: item}) for one in points for item in find(one)
        ])  # fmt: skip

    gemms = [
        GemmRow(**keys[id(one)], rank=rank.facts.rank, gemm=gemm)
        for one in points
        for rank in one.ranks
        for gemm in rank.gemms
    ]
    left_out = [{**keys[id(one)], "reason": one.left_out} for one in points if one.left_out]
    return Result(
        kind="sweep",
        rows={
            "points": Rows(PointRow, list(map(_point, points))),
            "gemms": Rows(GemmRow, gemms),
            "pooled_gemms": of_points(PooledRow, "gemm", "pooled"),
            "settings": Rows(SweepSetting, analysis.settings),
            "collectives": of_points(CollectiveRow, "collective", "collectives"),
            "rocprof": of_points(RocprofRow, "kernel", "rocprof.kernels"),
            "effects": Rows(SettingEffect, analysis.effects),
        },
        notes={
            "sweep": str(analysis.sweep.folder),
            "best": {**_best(analysis.best), "left_out": left_out},
            "environment": environment_entry(analysis.sweep.manifest),
            "problems": analysis.all_problems,
        },
    )  # fmt: skip


def _keys(point: Point) -> dict[str, Any]:
    """The facts of :class:`PointKeys`."""
    return {**configuration_entry(point.configuration), "repeat": point.repeat}


def _point(one: PointAnalysis) -> PointRow:
    first = one.ranks[0].facts if one.ranks else None
    return PointRow(
        **_keys(one.point),
        world_size=one.world_size,
        outcome=one.point.outcome,
        reason=one.point.reason,
        left_out=one.left_out,
        folder=str(one.point.folder),
        ranks=tuple(rank.facts.rank for rank in one.ranks),
        device=first.device if first else None,
        versions=first.versions if first else {},
        settings=one.settings,
        parts=one.summary or StepSummary(step_ms=StepMedian(n=0)),
        steps=tuple(
            StepRow(
                step=step.facts.number,
                slowest_rank=step.rank,
                awaited_rank=step.awaited_rank,
                window_ms=step.facts.window_ns / 1e6,
            )
            for step in one.steps
        ),
        stragglers=one.stragglers,
        nccl_records=one.recorded,
        problems=one.problems,
    )


def _best(best: Best | None) -> Mapping[str, Any]:
    """The entry ``best``; its verdict is ``no steps`` where no point has any."""
    if best is None:
        return {"threads": None, "channels": None, "axes": {}, "step_ms": None, "runs": 0,
                "verdict": "no steps", "next": None, "as_good": [], "others": []}  # fmt: skip
    first, *others = (one.record() for one in best.ranked)
    return {
        **{key: first[key] for key in ("threads", "channels", "axes", "step_ms", "runs")},
        "verdict": str(best.verdict),
        "next": others[0] if others else None,
        "as_good": [configuration_entry(one.configuration) for one in best.as_good],
        "others": others,
    }


def environment_entry(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Machine, software and workload as the manifest of the sweep records them, with one entry for
    each value: ``environment.packages.torch``."""
    found = flat_fields({part: manifest.get(part) for part in ("environment", "identity")})
    return {name: value for name, value in found.items() if value not in (None, "", ())}
