"""Tables of varying GEMMs, compared with what the trace files hold."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import pytest

from gemmetry.documents.sweep_files import (
    varying_gemms,
    varying_table,
)
from gemmetry.sweeps.rows import GemmKind


def events(folder, threads, channels, rank):
    """The kernels of a trace file, which nothing of ours read."""
    place = folder / f"{threads}thread/nccl_{channels}channels/torch_profiler/rank{rank}"
    data = json.loads(gzip.decompress(next(place.iterdir()).read_bytes()))
    return [event for event in data["traceEvents"] if event["cat"] == "kernel"]


def covered(event, others):
    """Of each of `others` the time in µs during which `event` ran as well, where it is positive."""
    begin, end = event["ts"], event["ts"] + event["dur"]
    shared = [min(end, o["ts"] + o["dur"]) - max(begin, o["ts"]) for o in others]
    return [time for time in shared if time > 0]


def test_every_figure_follows_from_the_trace_files(made_sweep, products):
    records = varying_table("_with_collective_overlap", varying_gemms(products.points, 5)).records()
    assert len(records) == 3 * 2 * 2
    for record in records:
        found = events(made_sweep, record["threads"], record["channel"], record["rank"])
        own = [event for event in found if event["name"] == record["kernel_name"]]
        shortest, longest = (pick(own, key=lambda one: one["dur"]) for pick in (min, max))
        assert record["count"] == len(own)
        assert record["kernel_time_min_us"] == pytest.approx(shortest["dur"])
        assert record["kernel_time_max_us"] == pytest.approx(longest["dur"])
        assert record["time_diff_us"] == pytest.approx(longest["dur"] - shortest["dur"])
        assert record["min_duration_timestamp_ms"] == pytest.approx(shortest["ts"] / 1000)
        assert record["max_duration_timestamp_ms"] == pytest.approx(longest["ts"] / 1000)
        between = abs(longest["ts"] - shortest["ts"]) / 1000
        assert record["time_between_min_max_ms"] == pytest.approx(between)
        assert record["min_duration_found_us"] == record["kernel_time_min_us"]
        assert record["max_duration_found_us"] == record["kernel_time_max_us"]
        shared = covered(longest, [one for one in found if one["name"].startswith("nccl")])
        assert record["overlapping_collective_count"] == len(shared)
        assert record["overlapping_collective_names"] == ";".join(["_allgather_base"] * len(shared))
        share = 100 * max(shared, default=0) / longest["dur"]
        assert record["max_overlap_percentage"] == pytest.approx(share)
        assert record["total_overlap_duration_ms"] == pytest.approx(sum(shared) / 1000)


def test_whether_collectives_slow_a_gemm_is_next_to_its_spread(products, sweeps):
    records = varying_table("_with_collective_overlap", varying_gemms(products.points, 5)).records()
    slowed = [one for one in records if one["kernel_name"] == sweeps.UP.kernel]
    others = [one for one in records if one["kernel_name"] != sweeps.UP.kernel]
    assert {one["verdict"] for one in slowed} == {"slower"}
    assert all(1.25 < one["slowdown_ci_low"] < one["slowdown_ci_high"] < 1.35 for one in slowed)
    assert "slower" not in {one["verdict"] for one in others}


def test_helpers_and_kernels_of_unknown_shape_are_not_listed(products):
    point = products.points[0]
    first = point.gemms[0]
    helper = replace(
        first, kind=GemmKind(kernel="splitKreduce_kernel", short="splitk", is_helper=True)
    )
    mixed = replace(first, kind=GemmKind(kernel="nvjet_of_a_graph", short="nvjet"), max_us=1e9)
    found = varying_gemms([replace(point, gemms=(helper, mixed, first))], 5)
    assert [one.gemm for one in found] == [first]
    # Without any shape, kernels are all there is.
    found = varying_gemms([replace(point, gemms=(helper, mixed))], 5)
    assert [one.gemm for one in found] == [mixed]
