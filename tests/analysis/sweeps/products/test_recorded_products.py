"""The tables of one point of a sweep on 4 H200s, recomputed from the events of its traces."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest

from gemmetry.documents.sweep_files import reported_sweep, timeline_tables
from gemmetry.sweeps.points import PointSelection, analyse_sweep

ROOT = Path(__file__).parents[4]
FOLDER = Path(os.environ.get("GEMMETRY_TRACES", "") or ROOT.parent / "shared" / "data")
SWEEP = FOLDER / "sweep_h200x4"

pytestmark = pytest.mark.skipif(not SWEEP.is_dir(), reason="needs the traces of sweep_h200x4")

THREADS, CHANNELS, RANKS = 256, 4, (0, 1)


@pytest.fixture(scope="module")
def products():
    selection = PointSelection(threads=[THREADS], channels=[CHANNELS], ranks=RANKS)
    return reported_sweep(analyse_sweep(SWEEP, selection=selection))


@pytest.fixture(scope="module")
def events():
    """(name, category, start, end) of the GPU's work in µs, by rank."""
    found = {}
    for rank in RANKS:
        place = SWEEP / f"{THREADS}thread/nccl_{CHANNELS}channels/torch_profiler"
        text = gzip.decompress((place / f"rank{rank}.pt.trace.json.gz").read_bytes())
        found[rank] = [
            (one["name"], one["cat"], one["ts"], one["ts"] + one["dur"])
            for one in json.loads(text)["traceEvents"]
            if one.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
        ]
    return found


def covered(spans):
    """Length of the union of `spans`, counted event by event on a line of all their ends."""
    ends = np.unique([end for span in spans for end in span[-2:]])
    count = np.zeros(len(ends), np.int64)
    for *_, start, end in spans:
        count[np.searchsorted(ends, start)] += 1
        count[np.searchsorted(ends, end)] -= 1
    lengths = np.diff(ends)[np.cumsum(count)[:-1] > 0]
    return float(lengths.sum())


def test_means_over_ranks(products, events):
    expected = {}
    for rank in RANKS:
        own = events[rank]
        comm = [one for one in own if one[0].startswith("nccl")]
        copies = [one for one in own if one[1] == "gpu_memcpy"]
        compute = [one for one in own if one not in comm and one not in copies]
        busy, computing = covered(own), covered(compute)
        total = max(one[3] for one in own) - min(one[2] for one in own)
        times = {
            "total_time": total, "busy_time": busy, "idle_time": total - busy,
            "computation_time": computing, "total_comm_time": covered(comm),
            "exposed_comm_time": covered(comm + compute) - computing,
            "total_memcpy_time": covered(copies) if copies else 0.0,
            "exposed_memcpy_time": busy - covered(comm + compute),
        }  # fmt: skip
        for name, us in times.items():
            expected.setdefault(name, []).append(us / 1000)
    data = timeline_tables(products.points)[0].records()
    assert {record["type"] for record in data} == expected.keys()
    for record in data:
        of_ranks = expected[record["type"]]
        assert record["num_ranks"] == len(RANKS)
        # Sums of floats of the size of 10¹² µs.
        assert record["time ms"] == pytest.approx(np.mean(of_ranks), abs=0.01)
        assert record["max ms"] == pytest.approx(max(of_ranks), abs=0.01)
