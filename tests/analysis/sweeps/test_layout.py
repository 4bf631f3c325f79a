"""The folder of a sweep: points, ranks, what is missing."""

from __future__ import annotations

import json

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.sweeps.folder import analysis_folder, read_sweep
from gemmetry.sweeps.rows import SweepConfiguration

LAYOUTS = (
    "torch_profiler/rank{rank}/a.pt.trace.json.gz",
    "torch_profiler/rank{rank}.pt.trace.json.gz",
    "torch_profiler/rank{rank}/trace/pt.trace.json",
    "torch_profiler/rank{rank}/customer_trace.json",
)


@pytest.fixture
def point(sweeps):
    """A point as small as can be."""

    def make(**chosen):
        return sweeps.MadePoint(**{"steps": 1, "layers": 1, **chosen})

    return make


@pytest.mark.parametrize("file", LAYOUTS)
def test_traces_are_found_in_every_layout(tmp_path, sweeps, point, file):
    sweeps.write_sweep(tmp_path, [point(channels=c) for c in (4, 16)], file=file)
    found = read_sweep(tmp_path)
    assert [p.label for p in found.points] == [
        "256 threads, 4 channels", "256 threads, 16 channels"
    ]  # fmt: skip
    for one in found.points:
        assert [(trace.rank, trace.rank_source) for trace in one.traces] == [
            (0, "name"), (1, "name")
        ]  # fmt: skip
        assert (one.outcome, one.repeat) == ("ok", 1)
    assert found.problems == ()


def test_axes_and_repeats_come_from_the_path(tmp_path, sweeps, point):
    axes = {"NCCL_ALGO": "Ring"}
    sweeps.write_sweep(tmp_path, [point(axes=axes), point(axes=axes, repeat=2)])
    found = read_sweep(tmp_path)
    labels = ["256 threads, 8 channels, NCCL_ALGO=Ring"]
    assert [p.label for p in found.points] == [*labels, f"{labels[0]}, repeat 2"]
    assert found.repeats == 2


def test_a_point_missing_from_the_grid_is_listed_as_not_run(tmp_path, sweeps, point):
    grid = [(256, 4), (256, 8), (512, 4)]
    sweeps.write_sweep(tmp_path, [point(threads=t, channels=c) for t, c in grid])
    missing = read_sweep(tmp_path).points[-1]
    assert (missing.label, missing.outcome) == ("512 threads, 8 channels", "not_run")


def test_points_of_the_manifest_replace_the_grid(tmp_path, sweeps, point):
    planned = [{"threads": 256, "channels": 8, "axes": {}, "repeat": r} for r in (1, 2)]
    sweeps.write_sweep(tmp_path, [point()], manifest={"points": planned})
    points = read_sweep(tmp_path).points
    assert [(p.repeat, p.outcome) for p in points] == [(1, "ok"), (2, "not_run")]


def test_point_json_has_precedence_over_the_path(tmp_path, sweeps, point):
    facts = {"outcome": "ok", "threads": 256, "channels": 8, "axes": {"path": "a/b"}, "repeat": 3}
    sweeps.write_sweep(tmp_path, [point(axes={"path": "a%2Fb"}, facts=facts)])
    (found,) = read_sweep(tmp_path).points
    assert found.configuration == SweepConfiguration(256, 8, (("path", "a/b"),))
    assert (found.repeat, found.facts) == (3, facts)


def test_failed_points_say_why(tmp_path, sweeps, point):
    crash = "step 3\nTraceback (most recent call last):\n  ...\nValueError: loss is nan\n"
    sweeps.write_sweep(
        tmp_path,
        [
            point(channels=4, log=crash),
            point(channels=8, missing=(0, 1), log="training\ndone\n"),
            point(channels=16, missing=(0, 1)),
            point(channels=32, facts={"outcome": "timeout", "reason": "60 s exceeded"}),
        ],
    )
    found = [(p.outcome, p.reason) for p in read_sweep(tmp_path).points]
    assert found[0] == ("failed", "run_output.log shows a crash: ValueError: loss is nan")
    assert found[1][0] == found[2][0] == "no_traces"
    assert "although it has a log" in found[1][1]
    assert "although it has a log" not in found[2][1]
    assert found[3] == ("failed", "60 s exceeded")


def test_further_recordings_of_a_rank_belong_to_its_trace(tmp_path, sweeps, point):
    sweeps.write_sweep(tmp_path, [point()])
    folder = tmp_path / "256thread/nccl_8channels/torch_profiler/rank1"
    first = folder / "trace.pt.trace.json.gz"
    for number in (10, 2):
        (folder / f"trace_{number}.pt.trace.json.gz").write_bytes(first.read_bytes())
    traces = read_sweep(tmp_path).points[0].traces
    assert [trace.rank for trace in traces] == [0, 1]
    assert traces[0].more == ()
    assert traces[1].path == first
    assert [path.name for path in traces[1].more] == [
        "trace_2.pt.trace.json.gz", "trace_10.pt.trace.json.gz"
    ]  # fmt: skip


def test_a_damaged_document_is_a_problem(tmp_path, sweeps, point):
    sweeps.write_sweep(tmp_path, [point()])
    (tmp_path / "sweep.json").write_text("{")
    (tmp_path / "256thread/nccl_8channels/point.json").write_text("[]")
    found = read_sweep(tmp_path)
    assert [p.outcome for p in found.points] == ["ok"]
    assert len(found.problems) == 2
    assert all("is ignored" in problem for problem in found.problems)


def test_a_folder_without_points_is_refused_with_the_sweeps_in_it(tmp_path, sweeps, point):
    with pytest.raises(RequestError, match="does not exist"):
        read_sweep(tmp_path / "no")
    sweeps.write_sweep(tmp_path / "sweep_1", [point()])
    with pytest.raises(RequestError, match=r"has no point of a sweep; .*: sweep_1"):
        read_sweep(tmp_path)


def test_the_folder_of_the_analysis(tmp_path, sweeps, point):
    sweeps.write_sweep(tmp_path, [point()])
    assert analysis_folder(tmp_path) == tmp_path / "analysis"
    old = tmp_path / "tracelens_analysis"
    (old / "256thread" / "individual_reports").mkdir(parents=True)
    assert analysis_folder(tmp_path) == old
    assert analysis_folder(tmp_path, "mine") == tmp_path / "mine"
    assert [p.folder for p in read_sweep(old).points] == [
        p.folder for p in read_sweep(tmp_path).points
    ]
    assert len(read_sweep(tmp_path).points) == 1


def test_a_manifest_of_other_shape_does_no_harm(tmp_path, sweeps, point):
    sweeps.write_sweep(tmp_path, [point()], manifest={"points": [7, {"threads": "many"}]})
    assert json.loads((tmp_path / "sweep.json").read_text())
    labels = [(p.label, p.outcome) for p in read_sweep(tmp_path).points]
    assert labels == [("256 threads, 8 channels", "ok")]
