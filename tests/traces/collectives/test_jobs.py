from __future__ import annotations

import gzip
import json
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

from gemmetry.traces.collectives.matching import analyse_jobs
from gemmetry.traces.jobs import rank_trace
from gemmetry.traces.model import Trace
from gemmetry.traces.reading import read_trace

SAMPLES = Path(__file__).parents[2] / "data" / "collectives"


def test_many_mismatches_are_counted(rank, collective):
    def ones(step):
        return [collective(start_ns=i * 10**6, elements=1000 + (i % 2) * step) for i in range(60)]

    (found,) = analyse_jobs([rank(0, ones(1)), rank(1, ones(2))])
    assert len(found.matching.mismatches) == 30
    assert found.notes[-1] == "and 20 more mismatches"
    assert len(found.notes) == 11


def _raw(rank):
    """Kernels with metadata of one rank of the sample, straight from its JSON: start and duration
    as fractions of us."""
    file = SAMPLES / "h200x4" / f"rank{rank}.pt.trace.json.gz"
    document = json.loads(gzip.decompress(file.read_bytes()), parse_float=Fraction)
    kernels = [
        event
        for event in document["traceEvents"]
        if event["cat"] == "kernel" and "Collective name" in event["args"]
    ]
    return sorted(kernels, key=lambda event: event["ts"])


def test_a_real_job_against_its_json():
    """All 54 collectives with metadata of 4 ranks, paired in order here, in exact arithmetic."""
    files = sorted((SAMPLES / "h200x4").glob("*.json.gz"))
    traces = [rank_trace(Trace(file, read_trace(file, use_cache=False))) for file in files]
    (found,) = analyse_jobs(traces)
    recorded = [one for one in found.matching.matched if one.elements is not None]
    expected = list(zip(*(_raw(rank) for rank in range(4)), strict=True))
    assert len(recorded) == len(expected) == 54
    last, waited = Counter(), Counter()
    for one, events in zip(recorded, expected, strict=True):
        starts = [event["ts"] for event in events]
        ends = [event["ts"] + event["dur"] for event in events]
        start_skew, end_skew = one.skews_ns()
        assert Fraction(start_skew, 1000) == max(starts) - min(starts)
        assert Fraction(end_skew, 1000) == max(ends) - min(ends)
        assert one.last_rank() == starts.index(max(starts))
        args = events[0]["args"]
        is_gather = args["Collective name"] == "_allgather_base"
        size = args["Out msg nelems"] * 2 if is_gather else args["In msg nelems"] * 4
        latency = min(event["dur"] for event in events)
        assert one.bytes == size
        assert one.algorithm_bandwidth == pytest.approx(float(size / latency / 1000))
        assert one.bus_bandwidth == pytest.approx(float(size / latency / 1000) * 3 / 4)
        last[starts.index(max(starts))] += 1
        waited.update({rank: max(starts) - start for rank, start in enumerate(starts)})
    # Of the 28 others (recorded before launches were) 28 are on all ranks; one began its recording
    # two collectives earlier.
    assert len(found.matching.matched) == 82
    assert found.matching.unmatched == {0: 0, 1: 1, 2: 1, 3: 2}
    assert found.matching.mismatches == ()
    assert max(one.skews_ns()[1] for one in found.matching.matched) < 150_000
    # NVLink 4 of an H200 moves 450 GB/s each way (NVIDIA H200 data sheet).
    assert all(40 < one.bus_bandwidth < 450 for one in recorded)
    assert sum(one.last_count for one in found.stragglers()) == 82
    assert all(one.applied_ns == 0 for one in found.clocks)
    assert all(one.lower_ns <= 0 <= one.upper_ns for one in found.clocks)


# nccl-tests, `doc/PERFORMANCE.md` and `getBw` of `src/*.cu`: the whole message, and the factor.
OF_NCCL_TESTS = {
    "allreduce": ("all_reduce", 1, 1, lambda n: 2 * (n - 1) / n),
    "_allgather_base": ("all_gather", Fraction(1, 4), 1, lambda n: (n - 1) / n),
    "_reduce_scatter_base": ("reduce_scatter", 1, Fraction(1, 4), lambda n: (n - 1) / n),
    "all_to_all": ("all_to_all", 1, 1, lambda n: (n - 1) / n),
    "gather": ("gather", Fraction(1, 4), 1, lambda n: (n - 1) / n),
    "scatter": ("scatter", 1, Fraction(1, 4), lambda n: (n - 1) / n),
    "broadcast": ("broadcast", 1, 1, lambda n: 1),
    "reduce": ("reduce", 1, 1, lambda n: 1),
}


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "BFloat16") for name in OF_NCCL_TESTS), ("allreduce", "Long")]
)
def test_bandwidths_of_a_file_are_those_of_nccl_tests(recording, name, dtype):
    op, ins, outs, factor = OF_NCCL_TESTS[name]
    whole = 1 << 22
    traces = []
    for rank, start in enumerate((1_000, 4_000, 2_500, 3_000)):
        made = recording(distributedInfo={"rank": rank, "world_size": 4})
        made.kernel(
            "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage)", start, 50_000 - start,
            **{"Collective name": name, "dtype": dtype, "In msg nelems": int(whole * ins),
               "Out msg nelems": int(whole * outs), "Group size": 4, "Process Group Name": "0",
               "Process Group Ranks": "[0, 1, 2, 3]"},
        )  # fmt: skip
        traces.append(rank_trace(made.trace(f"job/rank{rank}.json")))
    (found,) = analyse_jobs(traces)
    (one,) = found.matching.matched
    assert (one.op, one.dtype, one.elements) == (op, dtype, whole)
    assert one.latency_ns == 46_000
    speed = whole * {"BFloat16": 2, "Long": 8}[dtype] / 46_000
    assert one.algorithm_bandwidth == pytest.approx(speed)
    assert one.bus_bandwidth == pytest.approx(speed * factor(4))
    assert one.last_rank() == 1
    assert [one.waited_ns for one in found.stragglers()] == [3_000, 0, 1_500, 1_000]
