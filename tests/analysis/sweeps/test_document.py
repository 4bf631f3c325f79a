"""The document of a sweep's analysis, and its tables."""

from __future__ import annotations

import json

import pytest

from gemmetry.sweeps.analysis import analyse_sweep
from gemmetry.sweeps.rows import sweep_document, sweep_result

POINT = {
    "threads", "channels", "axes", "repeat", "world_size", "outcome", "settings", "step_ms",
    "compute_ms", "slowed_compute_ms", "exposed_comm_ms", "idle_ms", "stragglers",
}  # fmt: skip
GEMM = {
    "threads", "channels", "axes", "repeat", "rank", "kernel", "m", "n", "k", "batch", "dtype",
    "count", "median_us", "p5_us", "p95_us", "mad_us", "cv", "max_minus_min_us",
    "overlapped_count", "alone_count", "overlapped_median_us", "alone_median_us", "slowdown",
    "slowdown_ci_low", "slowdown_ci_high", "verdict", "cost_ms_per_step",
}  # fmt: skip


@pytest.fixture
def analysis(tmp_path, sweeps):
    """Two points that ran and one without traces."""
    points = [
        sweeps.MadePoint(channels=4, layers=2),
        sweeps.MadePoint(channels=8, axes={"NCCL_ALGO": "Ring"}, slowdown={sweeps.UP.kernel: 1.3}),
        sweeps.MadePoint(channels=16, missing=(0, 1)),
    ]
    return analyse_sweep(sweeps.write_sweep(tmp_path, points))


@pytest.fixture
def document(analysis):
    return json.loads(json.dumps(sweep_document(analysis), allow_nan=False))


def test_every_key_is_there_in_every_entry(document):
    assert document["schema_version"] == 1
    assert {"points", "gemms", "best", "problems"} <= document.keys()
    assert all(point.keys() >= POINT for point in document["points"])
    assert all(point["step_ms"].keys() == {"median", "ci_low", "ci_high", "n"}
               for point in document["points"])  # fmt: skip
    assert document["gemms"]
    assert all(gemm.keys() >= GEMM for gemm in document["gemms"])
    assert {"threads", "channels", "axes", "verdict", "next"} <= document["best"].keys()


def test_entries_of_the_same_kind_have_the_same_keys(document):
    for name in ("points", "gemms", "pooled_gemms", "collectives"):
        assert len({frozenset(entry) for entry in document[name]}) == 1


def test_what_is_not_known_is_null(document):
    by_channels = {(point["channels"], *point["axes"]): point for point in document["points"]}
    lost = by_channels[(16,)]
    assert lost["outcome"] == "no_traces"
    assert lost["step_ms"] == {"median": None, "ci_low": None, "ci_high": None, "n": 0}
    assert lost["compute_ms"] is None is lost["world_size"]
    assert by_channels[(8, "NCCL_ALGO")]["axes"] == {"NCCL_ALGO": "Ring"}


def test_figures_are_those_of_the_analysis(document, analysis, sweeps):
    (slow,) = [gemm for gemm in document["gemms"] if gemm["axes"] and gemm["rank"] == 1
               and gemm["kernel"] == sweeps.UP.kernel]  # fmt: skip
    assert (slow["m"], slow["n"], slow["k"], slow["batch"]) == (1024, 4096, 1024, 1)
    assert (slow["dtype"], slow["count"], slow["verdict"]) == ("bf16", 36, "slower")
    assert slow["slowdown_ci_low"] < slow["slowdown"] < slow["slowdown_ci_high"]
    assert slow["by_collective"][0]["op"] == "all_gather"
    best = document["best"]
    assert best["verdict"] == "undecided"
    assert best["next"]["ratio"] > 1
    assert document["problems"] == analysis.all_problems


def test_a_sweep_without_steps_has_no_best_point(tmp_path, sweeps):
    sweeps.write_sweep(tmp_path, [sweeps.MadePoint(steps=0)])
    best = sweep_document(analyse_sweep(tmp_path))["best"]
    assert (best["verdict"], best["threads"], best["next"]) == ("no steps", None, None)


def test_tables_have_a_row_for_each_entry(document, analysis):
    tables = [sweep_result(analysis).table(one) for one in ("points", "gemms", "pooled_gemms")]
    for table, name in zip(tables, ("points", "gemms", "pooled_gemms"), strict=True):
        assert len(table.rows) == len(document[name])
        assert all(column.description for column in table.columns)
    points, gemms, _ = tables
    assert points.values("step_ms") == [one["step_ms"]["median"] for one in document["points"]]
    assert gemms.values("slowdown") == [one["slowdown"] for one in document["gemms"]]
