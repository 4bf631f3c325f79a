"""Comparison of sweeps: verdicts per point, GEMM and collective."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.sweeps.comparison import LabelledSweep, RowGroup, compare_sweeps
from gemmetry.sweeps.points import analyse_sweep
from gemmetry.sweeps.rows import environment_entry, sweep_result


@pytest.fixture
def document_of(tmp_path, sweeps):
    def make(name, *points):
        return sweep_result(analyse_sweep(sweeps.write_sweep(tmp_path / name, points))).document()

    return make


def compared(*documents, threshold=None):
    sweeps = [LabelledSweep(label=chr(ord("A") + i), document=d) for i, d in enumerate(documents)]
    return compare_sweeps(sweeps, threshold=threshold)


def repeated(sweeps, count=3, first=1, **options):
    return [sweeps.MadePoint(repeat=first + i, **options) for i in range(count)]


def made(steps_ms, *, channels=8, outcome="ok"):
    """A document of runs with these steps, which are all compute."""
    points = [
        {"threads": 256, "channels": channels, "axes": {}, "repeat": i, "outcome": outcome,
         "world_size": 2, "ranks": [0, 1], "device": "NVIDIA H200", "versions": {}, "folder": "",
         "step_ms": {"median": ms, "ci_low": None, "ci_high": None, "n": 3},
         "compute_ms": ms, "slowed_compute_ms": None, "exposed_comm_ms": 0.0,
         "exposed_copy_ms": 0.0, "idle_ms": 0.0}
        for i, ms in enumerate(steps_ms, 1)
    ]  # fmt: skip
    return {"sweep": "made", "points": points, "pooled_gemms": [], "collectives": []}


def verdicts(comparison, group):
    (candidate,) = comparison.candidates
    return [str(row.verdict) for row in candidate.rows_of(group)]


def test_a_sweep_against_itself_shows_no_difference(document_of, sweeps):
    document = document_of("a", *(sweeps.MadePoint(channels=c) for c in (4, 8)))
    found = compared(document, copy.deepcopy(document))
    (candidate,) = found.candidates
    assert candidate.is_same
    assert {str(row.verdict) for row in candidate.rows} == {"no difference shown"}
    assert {row.comparison.interval for row in candidate.rows} == {(1.0, 1.0)}
    assert not found.has_regression
    assert not found.has_undecided


def test_equal_runs_are_rarely_called_different():
    random = np.random.default_rng(5)
    wrong = 0
    for _ in range(400):
        a, b = (made((100 * np.exp(random.normal(0, 0.02, 3))).tolist()) for _ in range(2))
        wrong += any(v in ("slower", "faster") for v in verdicts(compared(a, b), RowGroup.STEP))
    assert wrong <= 20  # 5 % of 400; beyond the relevant 1 % the true rate is lower


def test_a_planted_slow_gemm_is_named(document_of, sweeps):
    slow = {sweeps.UP.kernel: 1.4}
    first = document_of("a", *repeated(sweeps, 3))
    second = document_of("b", *repeated(sweeps, 3, first=4, slowdown=slow))
    found = compared(first, second)
    (candidate,) = found.candidates
    shown = {
        (row.keys.kernel, row.measure)
        for row in candidate.rows_of(RowGroup.GEMMS)
        if row.verdict == "slower"
    }
    assert shown == {(sweeps.UP.kernel, "overlapped_median_us"), (sweeps.UP.kernel, "slowdown")}
    (row,) = [r for r in candidate.regressions if r.measure == "slowdown"]
    assert row.after / row.before == pytest.approx(1.4, rel=0.02)
    assert row.comparison.ratio_low < 1.4 < row.comparison.ratio_high
    assert found.has_regression


def test_a_slower_collective_and_what_it_changes_of_the_step(document_of, sweeps):
    first = document_of("a", *repeated(sweeps, 3))
    second = document_of("b", *repeated(sweeps, 3, first=4, comm_ns=400_000))
    (candidate,) = compared(first, second).candidates
    (latency,) = candidate.rows_of(RowGroup.COLLECTIVES)
    assert (latency.keys.op, latency.keys.bytes) == ("all_gather", 2 << 24)
    assert str(latency.verdict) == "slower"
    parts = {row.measure: row for row in candidate.rows_of(RowGroup.PARTS)}
    assert str(parts["exposed_comm_ms"].verdict) == "slower"
    assert str(parts["idle_ms"].verdict) == "no difference shown"
    (step,) = candidate.rows_of(RowGroup.STEP)
    # Nothing else changed, so the part explains the whole change of the step.
    assert parts["exposed_comm_ms"].comparison.ratio == pytest.approx(
        step.comparison.ratio, rel=0.02
    )


def test_parts_explain_and_are_no_regressions_themselves():
    first, second = made([100, 100.1]), made([100, 100.1])
    for point in second["points"]:
        point["idle_ms"], point["compute_ms"] = 20.0, point["compute_ms"] - 20
    (candidate,) = compared(first, second).candidates
    parts = {row.measure: str(row.verdict) for row in candidate.rows_of(RowGroup.PARTS)}
    assert (parts["idle_ms"], parts["compute_ms"]) == ("slower", "faster")
    assert candidate.regressions == []


def test_single_runs_of_many_points_show_a_change_of_their_mean():
    def sweep(factor):
        documents = [made([ms * factor], channels=c) for c, ms in ((1, 90), (2, 100), (4, 120))]
        return {**documents[0], "points": [p for d in documents for p in d["points"]]}

    (candidate,) = compared(sweep(1), sweep(1.2)).candidates
    _, mean = candidate.rows_of(RowGroup.WHOLE)
    assert mean.measure == "mean_step_ms"
    assert str(mean.verdict) == "slower"
    assert mean.comparison.ratio == pytest.approx(1.2)
    assert {str(row.verdict) for row in candidate.rows_of(RowGroup.STEP)} == {"undecided"}


def test_what_a_manifest_does_not_list_is_none():
    first, second, third = (made([100]) for _ in range(3))
    for one, overrides in ((first, []), (second, ["model.n_layers=2"])):
        manifest = {"identity": {"nproc": 2, "overrides": overrides, "ncu": None}}
        one["environment"] = environment_entry(manifest)
    found = compared(first, second, third).candidates
    assert [one.environment_differences for one in found] == [
        ("identity.overrides: none vs model.n_layers=2",),
        ("identity.nproc: 2 vs not recorded",),
    ]


def test_a_gemm_is_compared_across_kernels_where_its_shape_is_alone(document_of, sweeps):
    first = document_of("a", *repeated(sweeps, 2))
    second = copy.deepcopy(first)
    for one in second["pooled_gemms"]:
        one["kernel"] = one["kernel"].replace(sweeps.UP.kernel, "sm100_xmma_gemm_bf16")
    (candidate,) = compared(first, second).candidates
    rows = [row for row in candidate.rows_of(RowGroup.GEMMS) if row.keys.kernel == sweeps.UP.kernel]
    assert len(rows) == 3
    assert all("sm100_xmma_gemm_bf16" in row.note for row in rows)


@pytest.mark.parametrize(
    ("mine", "theirs", "shown"),
    [
        (["a=1", "bucket=4"], ["a=1", "bucket=32", "c=2"], "bucket=4 vs bucket=32, c=2"),
        (["a=1"], ["a=1", "c=2"], "none vs c=2"),
        (["a=1", "a=2"], ["a=2", "a=1"], "a=1, a=2 vs a=2, a=1"),
    ],
)
def test_of_lists_only_the_members_that_differ_are_shown(mine, theirs, shown):
    documents = [made([100]) | {"environment": {"identity.overrides": overrides}}
                 for overrides in (mine, theirs)]  # fmt: skip
    (candidate,) = compared(*documents).candidates
    assert candidate.environment_differences == (f"identity.overrides: {shown}",)


@pytest.mark.parametrize(("count", "is_compared"), [(None, True), (7, False)])
def test_collectives_of_unknown_size_are_compared_where_the_others_are_alike(
    document_of, sweeps, count, is_compared
):
    """With other buckets, a collective of unknown size is another one."""
    documents = [document_of(name, *repeated(sweeps, 1)) for name in "ab"]
    for document in documents:
        unknown = [{**one, "bytes": None} for one in document["collectives"]]
        document["collectives"] = [*document["collectives"], *unknown]
    for one in documents[1]["collectives"]:
        if one["bytes"] is not None and count is not None:
            one["count"] = count
    (candidate,) = compared(*documents).candidates
    sizes = {row.keys.bytes for row in candidate.rows_of(RowGroup.COLLECTIVES)}
    assert (None in sizes) == is_compared
    assert sizes - {None}


@pytest.mark.parametrize(
    ("counts", "is_compared"),
    [((60, 40), True), ((57, 37), True), ((6, 4), False), ((40, 60), False), ((60, 0), False)],
)
def test_kernels_of_unknown_shape_are_compared_where_they_ran_equally_often(
    document_of, sweeps, counts, is_compared
):
    """Part of a kernel's launches lack their shape where a recording begins: they may be of other
    products than in the other sweep."""
    documents = [document_of(name, *repeated(sweeps, 1)) for name in "ab"]
    for document, (alone, together) in zip(documents, ((60, 40), counts), strict=True):
        lost = {"m": None, "n": None, "k": None, "count": alone + together,
                "alone_count": alone, "overlapped_count": together}  # fmt: skip
        gemms = document["pooled_gemms"]
        document["pooled_gemms"] = [*gemms, *({**one, **lost} for one in gemms)]
    (candidate,) = compared(*documents).candidates
    shapes = {row.keys.m for row in candidate.rows_of(RowGroup.GEMMS)}
    assert (None in shapes) == is_compared
    assert shapes - {None}


@pytest.mark.parametrize("outcome", ["failed", "no_traces"])
def test_a_sweep_without_a_valid_point_is_refused(outcome):
    with pytest.raises(RequestError):
        compared(made([1.0]), made([1.0], outcome=outcome))
