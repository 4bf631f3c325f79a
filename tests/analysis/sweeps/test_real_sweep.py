"""The sweep of 8 configurations on 4 H200s, recomputed from its traces with json and numpy alone.

The recomputation shares no code with the analysis: it reads the events, knows GEMMs and
communication by the names that occur in these traces, and finds overlaps and steps instance
by instance. Times agree to the nanosecond.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from gemmetry.analysis.sweeps.analysis import PointSelection, analyse_sweep

ROOT = Path(__file__).parents[3]
FOLDER = Path(os.environ.get("GEMMETRY_TRACES", "") or ROOT.parent / "shared" / "data")
SWEEP = FOLDER / "sweep_h200x4"

pytestmark = pytest.mark.skipif(not SWEEP.is_dir(), reason="needs the traces of sweep_h200x4")

THREADS, CHANNELS = 512, 32


def _ns(microseconds: object) -> int:
    return int(Decimal(str(microseconds)) * 1000)


class _Recomputed:
    """One trace: GEMMs as (kernel, duration, overlap, correlation), by start; steps."""

    def __init__(self, path: Path) -> None:
        document = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
        events = [one for one in document["traceEvents"] if one.get("ph") == "X"]
        gpu = [one for one in events if one["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
        rows = [
            (_ns(one["ts"]), _ns(one["ts"]) + _ns(one["dur"]), one["name"], one["cat"],
             one["args"].get("correlation"))
            for one in gpu
        ]  # fmt: skip
        self.rows = sorted(rows)
        self.comm = [row for row in self.rows if row[2].startswith("nccl")]
        self.gemms = [row for row in self.rows if row[2].startswith(("nvjet", "cutlass", "gemm"))]
        calls = {
            one["args"]["correlation"]: _ns(one["ts"])
            for one in events if one["cat"] in ("cuda_runtime", "cuda_driver")
            and "correlation" in one["args"]
        }  # fmt: skip
        self.calls = calls
        self.marks = {
            int(one["name"].partition("#")[2]): (_ns(one["ts"]), _ns(one["ts"]) + _ns(one["dur"]))
            for one in events
            if one["cat"] == "user_annotation" and re.fullmatch(r"ProfilerStep#\d+", one["name"])
        }

    def overlap(self, start: int, end: int) -> int:
        """Time of communication in [start, end); no two collectives run at once in these traces."""
        return sum(max(0, min(end, e) - max(start, s)) for s, e, *_ in self.comm)

    def windows(self) -> dict[int, tuple[int, int]]:
        """First start and last end of the work launched within each mark."""
        found = {}
        for number, (begin, end) in self.marks.items():
            own = [row for row in self.rows
                   if row[4] in self.calls and begin <= self.calls[row[4]] < end]  # fmt: skip
            found[number] = (min(row[0] for row in own), max(row[1] for row in own))
        return found

    def part(self, window: tuple[int, int], *wanted: bool) -> int:
        """Time in the window in which compute, communication and copies do or do not run, as
        `wanted`; counted between all moments at which anything changes."""
        lanes = [
            [r for r in self.rows if r[3] != "gpu_memcpy" and not r[2].startswith("nccl")],
            self.comm,
            [r for r in self.rows if r[3] == "gpu_memcpy"],
        ]
        moments = sorted({window[0], window[1], *(
            t for r in self.rows for t in r[:2] if window[0] < t < window[1]
        )})  # fmt: skip
        at = np.array(moments[:-1])
        state = []
        for lane in lanes:
            change = np.zeros(len(at) + 1, int)
            starts = np.searchsorted(at, [max(r[0], window[0]) for r in lane])
            ends = np.searchsorted(at, [min(r[1], window[1]) for r in lane])
            inside = starts < ends
            np.add.at(change, starts[inside], 1)
            np.add.at(change, ends[inside], -1)
            state.append(np.cumsum(change)[:-1] > 0)
        chosen = np.all([s == w for s, w in zip(state, wanted, strict=True)], axis=0)
        return int(np.diff(moments)[chosen].sum())


@pytest.fixture(scope="module")
def point():
    selection = PointSelection(threads=(THREADS,), channels=(CHANNELS,))
    (found,) = analyse_sweep(SWEEP, selection=selection, processes=1).points
    return found


@pytest.fixture(scope="module")
def recomputed():
    folder = SWEEP / f"{THREADS}thread" / f"nccl_{CHANNELS}channels" / "torch_profiler"
    return [_Recomputed(folder / f"rank{rank}.pt.trace.json.gz") for rank in range(4)]


def test_gemms_and_their_overlap_agree_to_the_nanosecond(point, recomputed):
    assert len(point.ranks) == 4
    for rank, own in zip(point.ranks, recomputed, strict=True):
        gemms, kinds = rank.facts.gemms, rank.facts.gemm_kinds
        found = [
            (kinds[kind].kernel, start - rank.facts.base_ns, duration, overlap)
            for kind, start, duration, overlap in zip(
                gemms.kind.tolist(), gemms.start_ns.tolist(), gemms.duration_ns.tolist(),
                gemms.overlap_ns.tolist(), strict=True,
            )
        ]  # fmt: skip
        expected = [
            (name, start, end - start, own.overlap(start, end))
            for start, end, name, *_ in own.gemms
        ]
        assert found == expected


def test_steps_agree_to_the_nanosecond(point, recomputed):
    for rank, own in zip(point.ranks, recomputed, strict=True):
        windows = own.windows()
        assert [step.number for step in rank.facts.steps] == sorted(windows)
        for step in rank.facts.steps:
            window = windows[step.number]
            base = rank.facts.base_ns
            assert (step.start_ns - base, step.end_ns - base) == window
            computing = sum(
                own.part(window, True, comm, copy) for comm in (0, 1) for copy in (0, 1)
            )
            communicating = own.part(window, False, True, False) + own.part(
                window, False, True, True
            )
            assert step.compute_ns == computing
            assert step.exposed_comm_ns == communicating
            assert step.exposed_copy_ns == own.part(window, False, False, True)
            assert step.idle_ns == own.part(window, False, False, False)


def test_the_step_is_the_slowest_ranks(point, recomputed):
    windows = [own.windows() for own in recomputed]
    longest = [max(end - start for start, end in (one[number] for one in windows))
               for number in sorted(windows[0])]  # fmt: skip
    assert [step.window_ns for step in point.steps] == longest
    assert point.summary.median_ms == sorted(longest)[1] / 1e6


def test_medians_of_the_slowed_gemm_agree(point, recomputed):
    """The gradient of the wide GEMM of the MLP, whose kernel has one shape in these traces."""
    (found,) = [one for one in point.pooled if "192x192_64x3_2x1_v_bz_coopB_NNN" in one.kind.kernel]
    assert found.kind.shape == "16384x16384x4096"
    alone, together, shares = [], [], []
    for own in recomputed:
        mine = [(end - start, own.overlap(start, end)) for start, end, name, *_ in own.gemms
                if name == found.kind.kernel]  # fmt: skip
        alone += [length for length, overlap in mine if not overlap]
        together += [length for length, overlap in mine if overlap]
        middle = np.median([length for length, overlap in mine if not overlap])
        shares += [length / middle for length, overlap in mine if overlap]
    assert (found.alone_count, found.overlapped_count) == (len(alone), len(together))
    assert found.alone_median_us == np.median(alone) / 1000
    assert found.overlapped_median_us == np.median(together) / 1000
    assert found.slowdown == pytest.approx(np.median(shares), rel=0.01)
    assert found.low < found.slowdown < found.high
    assert found.verdict == "slower"
