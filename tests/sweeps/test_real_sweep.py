"""The sweep of 8 configurations on 4 H200s, recomputed from its traces with numpy.

The recomputation shares no code with the analysis. GEMMs and communication are known by the names
that occur in these traces. Overlaps and steps are found instance by instance. Times agree to the
nanosecond, and so do the figures of ``docs/sweep-analysis.md`` to their last digit. Reading 208 MB
of JSON twice takes most of the time.
"""

from __future__ import annotations

import gzip
import os
import re
from bisect import bisect_left, bisect_right
from pathlib import Path

import msgspec
import numpy as np
import pytest

from gemmetry.sweeps.points import analyse_sweep

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("GEMMETRY_TRACES", "") or ROOT.parent / "shared" / "data")
SWEEP = FOLDER / "sweep_h200x4"

pytestmark = pytest.mark.skipif(not SWEEP.is_dir(), reason="needs the traces of sweep_h200x4")

PAGE = (ROOT / "docs" / "sweep-analysis.md").read_text()
POINTS = [(threads, channels) for threads in (256, 512) for channels in (4, 8, 16, 32)]


def _ns(microseconds: float) -> int:
    # Floats are half a ns apart at the times of these traces, so that rounding finds the ns.
    return round(microseconds * 1000)


class _Arguments(msgspec.Struct):
    correlation: int | None = None


class _Event(msgspec.Struct):
    ph: str
    name: str = ""
    cat: str = ""
    ts: float = 0.0
    dur: float = 0.0
    args: _Arguments = msgspec.field(default_factory=_Arguments)


class _Document(msgspec.Struct):
    traceEvents: list[_Event]  # noqa: N815


_DECODER = msgspec.json.Decoder(_Document)


class _Recomputed:
    """One trace: GEMMs as (kernel, duration, overlap, correlation), by start; steps."""

    def __init__(self, path: Path) -> None:
        content = gzip.decompress(path.read_bytes())
        events = [one for one in _DECODER.decode(content).traceEvents if one.ph == "X"]
        gpu = [one for one in events if one.cat in ("kernel", "gpu_memcpy", "gpu_memset")]
        rows = [
            (_ns(one.ts), _ns(one.ts) + _ns(one.dur), one.name, one.cat, one.args.correlation)
            for one in gpu
        ]
        self.rows = sorted(rows)
        self.comm = [row for row in self.rows if row[2].startswith("nccl")]
        self.copies = [row for row in self.rows if row[3] == "gpu_memcpy"]
        self.gemms = [row for row in self.rows if row[2].startswith(("nvjet", "cutlass", "gemm"))]
        self.calls = {
            one.args.correlation: _ns(one.ts)
            for one in events
            if one.cat in ("cuda_runtime", "cuda_driver") and one.args.correlation is not None
        }
        self.marks = {
            int(one.name.partition("#")[2]): (_ns(one.ts), _ns(one.ts) + _ns(one.dur))
            for one in events
            if one.cat == "user_annotation" and re.fullmatch(r"ProfilerStep#\d+", one.name)
        }

    def overlap(self, start: int, end: int) -> int:
        """Time of communication in [start, end); no two collectives run at once in these traces."""
        first = bisect_right(self.comm, start, key=lambda row: row[1])
        last = bisect_left(self.comm, end, key=lambda row: row[0])
        return sum(min(end, e) - max(start, s) for s, e, *_ in self.comm[first:last])

    def windows(self) -> dict[int, tuple[int, int]]:
        """First start and last end of the work launched within each mark."""
        found = {}
        for number, (begin, end) in self.marks.items():
            own = [row for row in self.rows
                   if row[4] in self.calls and begin <= self.calls[row[4]] < end]  # fmt: skip
            found[number] = (min(row[0] for row in own), max(row[1] for row in own))
        return found

    def step_of(self, row: tuple[int, int, str, str, int | None]) -> int | None:
        """Number of the step in whose mark the row was launched."""
        launch = self.calls.get(row[4], -1)
        return next((n for n, (begin, end) in self.marks.items() if begin <= launch < end), None)

    def excess(self, window: tuple[int, int], facts, kinds) -> int:
        """What the GEMMs of these `kinds` that were launched in the step took longer than the
        median one alone; which instance has which shape is the only thing taken from `facts`."""
        number = next(n for n, found in self.windows().items() if found == window)
        chosen = [facts.gemm_kinds[kind] for kind in facts.gemms.kind.tolist()]
        total = 0
        for kind in kinds:
            rows = [row for row, own in zip(self.gemms, chosen, strict=True) if own == kind]
            alone = [end - start for start, end, *_ in rows if not self.overlap(start, end)]
            if not alone:
                continue
            middle = round(np.median(alone))
            total += sum(row[1] - row[0] - middle for row in rows
                         if self.overlap(*row[:2]) and self.step_of(row) == number)  # fmt: skip
        return total

    def parts(self, window: tuple[int, int]) -> tuple[int, int, int, int]:
        """Computing; communicating alone; copying alone; nothing: the time of each, counted between
        all moments in the window at which anything begins or ends."""
        lanes = (
            [r for r in self.rows if r[3] != "gpu_memcpy" and not r[2].startswith("nccl")],
            self.comm,
            self.copies,
        )
        inside = {t for r in self.rows for t in r[:2] if window[0] < t < window[1]}
        moments = np.array(sorted({*window, *inside}))
        compute, comm, copy = (self._covered(lane, moments) for lane in lanes)
        length = np.diff(moments)
        return (
            int(length[compute].sum()),
            int(length[comm & ~compute].sum()),
            int(length[copy & ~compute & ~comm].sum()),
            int(length[~compute & ~comm & ~copy].sum()),
        )

    def _covered(self, lane, moments):
        """Whether a row of `lane` runs after each of `moments` but the last."""
        starts, ends = np.array([row[:2] for row in lane]).T
        first, last = np.searchsorted(moments, np.clip([starts, ends], moments[0], moments[-1]))
        change = np.bincount(first, minlength=len(moments))
        change -= np.bincount(last, minlength=len(moments))
        return np.cumsum(change)[:-1] > 0


@pytest.fixture(scope="module")
def analysis():
    return analyse_sweep(SWEEP)


@pytest.fixture(scope="module")
def recomputed():
    """The four ranks of each point."""
    folders = {point: SWEEP / "{}thread/nccl_{}channels/torch_profiler".format(*point)
               for point in POINTS}  # fmt: skip
    return {
        point: [_Recomputed(folder / f"rank{rank}.pt.trace.json.gz") for rank in range(4)]
        for point, folder in folders.items()
    }


@pytest.fixture(scope="module")
def pairs(analysis, recomputed):
    """Each point as analysed and as recomputed."""
    of_points = {
        (one.point.configuration.threads, one.point.configuration.channels): one
        for one in analysis.points
    }
    assert sorted(of_points) == POINTS
    return [(of_points[point], recomputed[point]) for point in POINTS]


@pytest.fixture(scope="module")
def ranks(pairs):
    """Each rank as analysed and as recomputed."""
    return [both for one, of_ranks in pairs for both in zip(one.ranks, of_ranks, strict=True)]


def test_gemms_and_their_overlap_agree_to_the_nanosecond(ranks):
    compared = 0
    for rank, own in ranks:
        gemms, kinds = rank.facts.gemms, rank.facts.gemm_kinds
        columns = (gemms.kind, gemms.start_ns - rank.facts.base_ns, gemms.duration_ns,
                   gemms.overlap_ns)  # fmt: skip
        rows = zip(*(one.tolist() for one in columns), strict=True)
        found = [(kinds[kind].kernel, *times) for kind, *times in rows]
        expected = [
            (name, start, end - start, own.overlap(start, end))
            for start, end, name, *_ in own.gemms
        ]
        assert found == expected
        compared += len(found)
    assert compared > 10_000


def test_steps_agree_to_the_nanosecond(ranks):
    for rank, own in ranks:
        windows = own.windows()
        assert [step.number for step in rank.facts.steps] == sorted(windows) == [3, 4, 5]
        for step in rank.facts.steps:
            window, base = windows[step.number], rank.facts.base_ns
            assert (step.start_ns - base, step.end_ns - base) == window
            compute, comm, copy, idle = own.parts(window)
            assert (step.compute_ns, step.exposed_comm_ns) == (compute, comm)
            assert (step.exposed_copy_ns, step.idle_ns) == (copy, idle)


def test_times_of_whole_traces_agree_to_the_nanosecond(ranks):
    """All copies count as copies, as in the sweep's files."""
    for rank, own in ranks:
        window = (own.rows[0][0], max(row[1] for row in own.rows))
        compute, comm, copy, idle = own.parts(window)
        times = rank.facts.times
        assert times["total_time"] == window[1] - window[0] == times["busy_time"] + idle
        assert (times["computation_time"], times["idle_time"]) == (compute, idle)
        assert (times["exposed_comm_time"], times["exposed_memcpy_time"]) == (comm, copy)
        # No two collectives and no two copies run at once.
        for name, lane in (("total_comm_time", own.comm), ("total_memcpy_time", own.copies)):
            assert times[name] == sum(row[1] - row[0] for row in lane)


def test_all_settings_are_in_effect(analysis):
    settings = [setting for point in analysis.points for setting in point.settings]
    assert {one.verdict for one in settings} == {"in effect"}
    kinds = [one for setting in settings for one in setting.collectives]
    assert {one.operation for one in kinds} == {"all_gather", "reduce_scatter"}
    assert {one.block for one in kinds} == {288, 544}


def test_ranks_that_take_turns_are_not_named(analysis):
    """Each rank is last for most of a step of one of the recordings."""
    assert not any(one.is_straggler for point in analysis.points for one in point.stragglers)
    (found,) = (one for one in analysis.points if one.point.label == "512 threads, 32 channels")
    assert [one.rank for one in found.stragglers] == [0, 1, 2, 3]
    assert max(one.delayed_us for one in found.stragglers) < 3000


def test_the_table_of_the_page(pairs):
    """Each figure of the points, from the median step, on the rank that waits least in it.

    A step is the longest window of any rank.
    """
    for one, of_ranks in pairs:
        windows = [own.windows() for own in of_ranks]
        steps = [(max(w[number][1] - w[number][0] for w in windows), number)
                 for number in (3, 4, 5)]  # fmt: skip
        assert [step.facts.window_ns for step in one.steps] == [length for length, _ in steps]
        length, number = sorted(steps)[1]
        assert one.summary.step_ms.median == length / 1e6
        # All ranks run the same collectives in one order.
        starts = np.array([[row[0] for row in own.comm if own.step_of(row) == number]
                           for own in of_ranks])  # fmt: skip
        rank = int((starts.max(axis=0) - starts).sum(axis=1).argmin())
        own = of_ranks[rank]
        compute, comm, copy, _ = own.parts(windows[rank][number])
        idle = length - compute - comm - copy
        slow = {gemm.kind.kernel: gemm.kind for gemm in one.pooled if gemm.is_slowed}
        slowed = own.excess(windows[rank][number], one.ranks[rank].facts, set(slow.values()))
        figures = [f"{ns / 1e6:.2f}" for ns in (length, compute - slowed, slowed, comm, idle)]
        (line,) = re.findall(rf"^{one.point.label} .*$", PAGE, re.MULTILINE)[:1]
        assert line.split()[-6:] == [*figures, "3"]


def test_the_sentence_of_the_page(analysis, recomputed):
    """The most expensive GEMM: the gradient of the MLP's wide one, whose kernel has one shape."""
    slowed = [(gemm.cost_ms_per_step, one.point.label, gemm)
              for one in analysis.points for gemm in one.pooled if gemm.is_slowed]  # fmt: skip
    cost, label, found = max(slowed, key=lambda item: item[0])
    assert (label, found.kind.shape) == ("256 threads, 32 channels", "16384x16384x4096")
    alone, together, ratios, costs = [], [], [], []
    for own in recomputed[256, 32]:
        mine = [(end - start, own.overlap(start, end), own.step_of(row))
                for row in own.gemms if row[2] == found.kind.kernel
                for start, end in (row[:2],)]  # fmt: skip
        apart = [length for length, overlap, _ in mine if not overlap]
        beneath = [length for length, overlap, _ in mine if overlap]
        alone += apart
        together += beneath
        ratios += [b / a for a in apart for b in beneath]
        middle = round(np.median(apart))
        inside = [length - middle for length, overlap, step in mine if overlap and step]
        costs.append(sum(inside) / 3 / 1e6)
    assert (found.alone_count, found.overlapped_count) == (len(alone), len(together))
    assert found.alone_median_us == np.median(alone) / 1000
    assert found.overlapped_median_us == np.median(together) / 1000
    assert found.slowdown == pytest.approx(np.median(ratios))
    assert found.low < found.slowdown < found.high
    assert cost == pytest.approx(np.mean(costs))
    sentence = (
        f"{np.median(alone) / 1000:,.0f} µs alone, {np.median(together) / 1000:,.0f} µs next to "
        f"communication, {100 * (np.median(ratios) - 1):+.1f} %"
    )
    assert sentence in PAGE
    assert f"{np.mean(costs):.2f} ms of each step" in PAGE


def test_the_extremes_of_the_page(analysis, recomputed):
    """Of the output projection, whose kernel has one shape."""
    found = [gemm for one in analysis.points for gemm in one.pooled
             if gemm.kind.shape == "16384x4096x4096" and "TNT" in gemm.kind.kernel]  # fmt: skip
    assert len(found) == len(POINTS)
    (kernel,) = {gemm.kind.kernel for gemm in found}
    longest = {True: 0, False: 0}
    for own in (rank for of_ranks in recomputed.values() for rank in of_ranks):
        for start, end, name, *_ in own.gemms:
            if name == kernel:
                beneath = own.overlap(start, end) > 0
                longest[beneath] = max(longest[beneath], end - start)
    assert (
        f"the longest instance of 16384x4096x4096 took {longest[True] / 1000:,.0f} µs next to "
        f"communication and {longest[False] / 1000:,.0f} µs alone, but its "
        f"largest slowdown at any point is {100 * (max(g.slowdown for g in found) - 1):+.1f} %"
    ) in " ".join(PAGE.split())
