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


def _recorded(recording, rank, size, kernels):
    """A trace of `rank`: (name, dtype, elements in and out, start, duration, more arguments)."""
    made = recording(distributedInfo={"rank": rank, "world_size": size})
    for name, dtype, ins, outs, start, duration, more in kernels:
        recorded = {"Collective name": name, "dtype": dtype, "In msg nelems": ins,
                "Out msg nelems": outs, "Group size": size, "Process Group Name": "0",
                "Process Group Ranks": str(list(range(size))), **more}  # fmt: skip
        made.kernel(
            "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage)", start, duration, **recorded
        )
    return rank_trace(made.trace(f"job/rank{rank}.json"))


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "BFloat16") for name in OF_NCCL_TESTS), ("allreduce", "Long")]
)
def test_bandwidths_of_a_file_are_those_of_nccl_tests(recording, name, dtype):
    op, ins, outs, factor = OF_NCCL_TESTS[name]
    whole = 1 << 22
    starts = (1_000, 4_000, 2_500, 3_000)
    (found,) = analyse_jobs(
        _recorded(recording, rank, 4, [
            (name, dtype, int(whole * ins), int(whole * outs), start, 50_000 - start, {})
        ])
        for rank, start in enumerate(starts)
    )  # fmt: skip
    (one,) = found.matching.matched
    assert (one.op, one.dtype, one.elements) == (op, dtype, whole)
    assert one.latency_ns == 46_000
    speed = whole * {"BFloat16": 2, "Long": 8}[dtype] / 46_000
    assert one.algorithm_bandwidth == pytest.approx(speed)
    assert one.bus_bandwidth == pytest.approx(speed * factor(4))
    assert one.last_rank() == 1
    assert [one.waited_ns for one in found.stragglers()] == [3_000, 0, 1_500, 1_000]


def test_an_uneven_all_to_all_and_a_send_from_files(recording):
    """What rank 0 keeps for itself crosses no link; of the other parts rank 1 gets the most."""
    parts = {0: [100, 700, 200], 1: [300, 50, 50], 2: [10, 20, 30]}
    sums = {rank: sum(row[rank] for row in parts.values()) for rank in parts}

    def kernels(rank):
        got = [parts[other][rank] for other in parts]
        ends = {"Dst Rank": 2} if rank == 0 else {"Src Rank": 0}
        message = ("send" if rank == 0 else "recv", "Half", 5_000, 5_000, 90_000, 1_000, ends)
        return [
            ("all_to_allv", "Half", sum(parts[rank]), sums[rank], 1_000, 2_000,
             {"In split size": str(parts[rank]), "Out split size": str(got)}),
            *([message] if rank != 1 else []),
        ]  # fmt: skip

    (found,) = analyse_jobs(_recorded(recording, rank, 3, kernels(rank)) for rank in parts)
    spread, message = found.matching.matched
    assert (spread.op, spread.elements) == ("all_to_all", 1_000)
    # Rank 0 sends 700 + 200 to others; rank 1 gets 700 + 20.
    assert spread.algorithm_bandwidth == pytest.approx(1_000 * 2 / 2_000)
    assert spread.bus_bandwidth == pytest.approx(900 * 2 / 2_000)
    assert (message.op, message.group_size, message.elements) == ("send_recv", 2, 5_000)
    assert message.bus_bandwidth == message.algorithm_bandwidth == pytest.approx(10.0)
    assert found.matching.unmatched == {0: 0, 1: 0, 2: 0}
