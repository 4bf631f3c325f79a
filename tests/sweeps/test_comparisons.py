"""Comparisons of sweeps: what they find, and golden outputs of what is shown of them."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.sweeps.comparison import LabelledSweep, RowGroup, compare_sweeps
from gemmetry.sweeps.page import environments_of
from gemmetry.sweeps.report import change_answers, change_sentences, print_sweep_comparison
from gemmetry.sweeps.rows import environment_entry


def made(*points):
    """A document of points (channels, steps in ms of its runs), whose steps are all compute."""
    entries = [
        {"threads": 256, "channels": channels, "axes": {}, "repeat": i, "outcome": "ok",
         "world_size": 2, "ranks": [0, 1], "device": "NVIDIA H200", "versions": {}, "folder": "",
         "step_ms": {"median": ms, "ci_low": None, "ci_high": None, "n": 3},
         "compute_ms": ms, "slowed_compute_ms": None, "exposed_comm_ms": 0.0,
         "exposed_copy_ms": 0.0, "idle_ms": 0.0}
        for channels, runs in points
        for i, ms in enumerate(runs, 1)
    ]  # fmt: skip
    return {"sweep": "made", "points": entries, "pooled_gemms": [], "collectives": []}


def gemms(document, alone, together):
    """Add one GEMM with these medians to every point."""
    document["pooled_gemms"] = [
        {"threads": 256, "channels": one["channels"], "axes": {}, "repeat": one["repeat"],
         "kernel": "nvjet", "m": 64, "n": 32, "k": 16, "batch": 1, "dtype": "bf16",
         "layout": "tt", "alone_median_us": alone + one["repeat"] / 100,
         "overlapped_median_us": together + one["repeat"] / 100, "slowdown": together / alone}
        for one in document["points"]
    ]  # fmt: skip
    return document


def _last(document, **changes):
    document["points"][-1] |= changes
    return document


def _each(document, changes):
    for point in document["points"]:
        point |= changes(point)
    return document


BOTH = ((8, [100, 101]), (16, [90, 91]))
PAIRS = {
    "slower": (made((8, [100, 100.1])), made((8, [110, 110.1]))),
    "faster": (made((8, [110, 110.1])), made((8, [100, 100.1]))),
    "single": (made((8, [100])), made((8, [110]))),
    "same": (made((8, [100])), made((8, [100]))),
    "other_points": (made(*BOTH), made((8, [100, 101]), (32, [9, 9.1]))),
    "failed": (made(*BOTH), _last(made((8, [100, 101]), (16, [90])), outcome="failed")),
    "left_out": (made(*BOTH), _last(made(*BOTH), left_out="no whole trace of rank 1")),
    "nothing_in_common": (made((8, [100, 101])), made((16, [90, 91]))),
    "gemm": (gemms(made((8, [100, 100.1]), (16, [90, 90.1])), 10, 12),
             gemms(made((8, [110, 110.1]), (16, [90, 90.1])), 10, 15)
             | {"environment": {"environment.packages.torch": "2.13"}}),
    "no_gemm": (gemms(made((8, [100, 100.1])), 10, 12), gemms(made((8, [100, 100.2])), 10, 12)),
    # Parts explain a change and are no regressions themselves.
    "parts": (made((8, [100, 100.1])),
              _each(made((8, [100, 100.1])), lambda one: {"idle_ms": 20.0,
                                                         "compute_ms": one["compute_ms"] - 20})),
    "single_runs_of_many": (made((1, [90]), (2, [100]), (4, [120])),
                            made((1, [108]), (2, [120]), (4, [144]))),
}  # fmt: skip


def _labelled(*documents, labels="ABC"):
    return [LabelledSweep(label=label, document=document)
            for label, document in zip(labels, documents, strict=False)]  # fmt: skip


def test_comparisons(golden, console_text):
    """Environments that differ come first; a terminal shows every sentence of the page."""

    def shown(found):
        return console_text(lambda c: print_sweep_comparison(found, c), terminal=True)

    parts = []
    for case, pair in PAIRS.items():
        found = compare_sweeps(_labelled(*pair))
        (candidate,) = found.candidates
        text = shown(found)
        joined = " ".join(text.split())
        assert [one for one in change_sentences(found, candidate) if one not in joined] == []
        answers = [f"{topic}: {answer}" for topic, answer in change_answers(found, candidate)]
        rows = [f"{row.group} {row.measure}: {row.verdict}, {row.comparison.ratio:.6g}"
                for row in candidate.rows]  # fmt: skip
        regressions = f"regressions: {', '.join(row.measure for row in candidate.regressions)}"
        parts.append("\n".join([case, *rows, regressions, *answers, text]))
    # Labels may be headings of other columns.
    labelled = _labelled(*PAIRS["gemm"], labels=("change", "verdict"))
    parts.append(shown(compare_sweeps(labelled)))
    golden("sweep_changes", "\f\n".join(parts))


def test_environments_of_several_sweeps_have_a_column_each(documents):
    third = {**documents[1], "environment": {"environment.packages.torch": "2.13"}}
    labelled = _labelled(*documents, third, labels=("Base", "New", "Newer"))
    table = environments_of(compare_sweeps(labelled))
    assert [column.label for column in table.columns] == ["fact", "Base", "New", "Newer"]
    assert table.rows == [
        ["nccl_version", "2.28.9", "2.30.7", "2.30.7"],
        ["environment.packages.torch", "not recorded", "not recorded", "2.13"],
    ]


def test_equal_runs_are_rarely_called_different():
    random = np.random.default_rng(5)
    wrong = 0
    for _ in range(400):
        pair = (made((8, (100 * np.exp(random.normal(0, 0.02, 3))).tolist())) for _ in range(2))
        (candidate,) = compare_sweeps(_labelled(*pair)).candidates
        wrong += any(
            row.verdict in ("slower", "faster") for row in candidate.rows_of(RowGroup.STEP)
        )
    assert wrong <= 20  # 5 % of 400; beyond the relevant 1 % the true rate is lower


def test_what_a_manifest_does_not_list_is_none():
    first, second, third = (made((8, [100])) for _ in range(3))
    for one, overrides in ((first, []), (second, ["model.n_layers=2"])):
        manifest = {"identity": {"nproc": 2, "overrides": overrides, "ncu": None}}
        one["environment"] = environment_entry(manifest)
    found = compare_sweeps(_labelled(first, second, third)).candidates
    assert [one.environment_differences for one in found] == [
        ("identity.overrides: none vs model.n_layers=2",),
        ("identity.nproc: 2 vs not recorded",),
    ]


@pytest.mark.parametrize(
    ("mine", "theirs", "shown"),
    [
        (["a=1", "bucket=4"], ["a=1", "bucket=32", "c=2"], "bucket=4 vs bucket=32, c=2"),
        (["a=1"], ["a=1", "c=2"], "none vs c=2"),
        (["a=1", "a=2"], ["a=2", "a=1"], "a=1, a=2 vs a=2, a=1"),
    ],
)
def test_of_lists_only_the_members_that_differ_are_shown(mine, theirs, shown):
    pair = [made((8, [100])) | {"environment": {"identity.overrides": overrides}}
            for overrides in (mine, theirs)]  # fmt: skip
    (candidate,) = compare_sweeps(_labelled(*pair)).candidates
    assert candidate.environment_differences == (f"identity.overrides: {shown}",)


@pytest.fixture
def alike(documents):
    """A sweep twice."""
    return [copy.deepcopy(documents[0]) for _ in "ab"]


def test_a_gemm_is_compared_across_kernels_where_its_shape_is_alone(alike, sweeps):
    for one in alike[1]["pooled_gemms"]:
        one["kernel"] = one["kernel"].replace(sweeps.UP.kernel, "sm100_xmma_gemm_bf16")
    (candidate,) = compare_sweeps(_labelled(*alike)).candidates
    rows = [row for row in candidate.rows_of(RowGroup.GEMMS) if row.keys.kernel == sweeps.UP.kernel]
    assert len(rows) == 9
    assert all("sm100_xmma_gemm_bf16" in row.note for row in rows)


@pytest.mark.parametrize(("count", "is_compared"), [(None, True), (7, False)])
def test_collectives_of_unknown_size_are_compared_where_the_others_are_alike(
    alike, count, is_compared
):
    """A collective of unknown size is another one if the buckets are others."""
    for document in alike:
        document["collectives"] += [{**one, "bytes": None} for one in document["collectives"]]
    for one in alike[1]["collectives"]:
        if one["bytes"] is not None and count is not None:
            one["count"] = count
    (candidate,) = compare_sweeps(_labelled(*alike)).candidates
    sizes = {row.keys.bytes for row in candidate.rows_of(RowGroup.COLLECTIVES)}
    assert (None in sizes) == is_compared
    assert sizes - {None}


@pytest.mark.parametrize(
    ("counts", "is_compared"),
    [((60, 40), True), ((57, 37), True), ((6, 4), False), ((40, 60), False), ((60, 0), False)],
)
def test_kernels_of_unknown_shape_are_compared_where_they_ran_equally_often(
    alike, counts, is_compared
):
    """Part of a kernel's launches lack their shape where a recording begins: they may be of other
    products than in the other sweep."""
    for document, (alone, together) in zip(alike, ((60, 40), counts), strict=True):
        lost = {"m": None, "n": None, "k": None, "count": alone + together,
                "alone_count": alone, "overlapped_count": together}  # fmt: skip
        document["pooled_gemms"] += [{**one, **lost} for one in document["pooled_gemms"]]
    (candidate,) = compare_sweeps(_labelled(*alike)).candidates
    shapes = {row.keys.m for row in candidate.rows_of(RowGroup.GEMMS)}
    assert (None in shapes) == is_compared
    assert shapes - {None}


@pytest.mark.parametrize("outcome", ["failed", "no_traces"])
def test_a_sweep_without_a_valid_point_is_refused(outcome):
    with pytest.raises(RequestError):
        compare_sweeps(_labelled(made((8, [1.0])), _last(made((8, [1.0])), outcome=outcome)))
