"""A sweep from its folder to its analysis: what is planted is found, and bad input is named."""

from __future__ import annotations

import pytest

from gemmetry.domain.errors import EnvironmentFailure, RequestError
from gemmetry.sweeps.points import PointSelection, analyse_sweep
from gemmetry.sweeps.rows import sweep_result
from gemmetry.sweeps.workers import RankFailure, analyse_ranks


@pytest.fixture
def analysis_of(tmp_path, sweeps):
    """The analysis of a sweep with these points."""

    def make(*points, selection=None, **kwargs):
        sweeps.write_sweep(tmp_path, points, **kwargs)
        return analyse_sweep(tmp_path, selection=selection)

    return make


@pytest.fixture
def small(sweeps):
    """A point as small as can be."""

    def make(**chosen):
        return sweeps.MadePoint(**{"steps": 1, "layers": 1, **chosen})

    return make


def test_points_without_traces_are_named_and_the_rest_is_analysed(analysis_of, small):
    crash = "Traceback (most recent call last):\nRuntimeError: NCCL error: unhandled system error\n"
    found = analysis_of(
        small(channels=4), small(channels=8, missing=(0, 1)),
        small(channels=16, missing=(0, 1), log=crash), small(threads=512, channels=4),
    )  # fmt: skip
    outcomes = {one.point.label: one.point.outcome for one in found.points}
    assert outcomes == {
        "256 threads, 4 channels": "ok",
        "256 threads, 8 channels": "no_traces",
        "256 threads, 16 channels": "failed",
        "512 threads, 4 channels": "ok",
        "512 threads, 8 channels": "not_run",
        "512 threads, 16 channels": "not_run",
    }
    texts = "\n".join(found.all_problems)
    assert "256 threads, 8 channels: no trace in torch_profiler/" in texts
    assert "run_output.log shows a crash: RuntimeError: NCCL error" in texts
    assert "512 threads, 8 channels: the sweep has no folder for it" in texts
    assert {one.configuration.channels for one in found.best.ranked} == {4}


def test_a_crashed_point_with_traces_is_analysed_but_not_the_best(analysis_of, small):
    crash = "Traceback (most recent call last):\nRuntimeError: too late\n"
    found = analysis_of(small(channels=4, comm_ns=200_000, log=crash), small(channels=8))
    assert found.points[0].summary is not None
    assert found.points[0].left_out == "its run failed"
    assert found.best.first.configuration.channels == 8


@pytest.mark.parametrize(
    ("planted", "problem"),
    [
        ({"missing": (1,)}, "rank 1 of 2 has no trace that can be read"),
        ({"ranks": 6, "missing": (0, 2, 3, 4, 5)},
         "ranks 0, 2, 3, 4, 5 of 6 have no trace that can be read"),
        ({"world_size": 4}, "ranks 2, 3 of 4 have no trace that can be read"),
        ({"cut": (1,)}, "trace.pt.trace.json.gz is partial: events are missing"),
        ({"steps": 3, "steps_of": {0: 1}}, "ranks differ in their numbers of steps: 1, 3"),
        ({"steps": 0}, "no trace has steps, so there are no times of steps"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_point_is_named(analysis_of, small, planted, problem):
    found = analysis_of(small(channels=4), small(channels=8, **planted))
    assert any(problem in text for text in found.points[1].problems)
    assert found.points[0].problems == ()


def test_what_differs_between_points_is_named(analysis_of, small):
    found = analysis_of(
        small(channels=4), small(channels=8, ranks=3, nccl="2.30.7", steps=2)
    )  # fmt: skip
    assert found.problems == (
        "points differ in their world sizes: 2, 3",
        "points differ in their versions of NCCL: 2.28.9, 2.30.7",
        "points differ in the number of steps that all ranks recorded: 1, 2",
    )


@pytest.mark.parametrize(
    ("planted", "reason"),
    [
        ({"missing": (2,)}, "no whole trace of rank 2"),
        ({"missing": (1, 2)}, "no whole trace of ranks 1, 2"),
        ({"cut": (1,)}, "no whole trace of rank 1"),
    ],
)
def test_a_point_whose_traces_are_not_whole_is_never_the_best(analysis_of, small, planted, reason):
    """The rank that is not seen could be the slowest."""
    points = [small(channels=4, ranks=3, comm_ns=200_000, steps=2, **planted),
              *(small(channels=channels, ranks=3, steps=2) for channels in (8, 16))]  # fmt: skip
    found = analysis_of(*points)
    assert [one.left_out for one in found.points] == [reason, "", ""]
    assert found.points[0].summary.step_ms.median < found.points[1].summary.step_ms.median
    assert {one.configuration.channels for one in found.best.ranked} == {8, 16}
    document = sweep_result(found).document()
    assert [one["left_out"] for one in document["points"]] == [reason, None, None]
    assert document["best"]["left_out"] == [
        {"threads": 256, "channels": 4, "axes": {}, "repeat": 1, "reason": reason}
    ]
    assert sweep_result(found).table("points").select(["left_out"]).rows == [
        [reason],
        [None],
        [None],
    ]


def test_points_that_lack_the_same_ranks_are_compared(analysis_of, small):
    """As of a training that records one rank only; what is lacking more is still left out."""
    points = [small(channels=channels, ranks=3, missing=(1, 2)) for channels in (4, 8)]
    found = analysis_of(*points, small(channels=16, ranks=3, missing=(0, 1, 2)))
    assert [one.left_out for one in found.points] == ["", "", ""]
    assert len(found.best.ranked) == 2
    assert found.problems[0] == (
        "every point that is compared has no whole trace of ranks 1, 2: its step may be longer "
        "than the other ranks show"
    )


def test_a_selection_of_ranks_is_whole(analysis_of, small):
    points = [
        small(channels=channels, ranks=3, missing=(2,)[: channels // 8]) for channels in (4, 8)
    ]
    found = analysis_of(*points, selection=PointSelection(ranks=(0, 1)))
    assert [one.left_out for one in found.points] == ["", ""]


def test_a_trace_that_cannot_be_read_costs_its_rank_alone(tmp_path, sweeps, small):
    sweeps.write_sweep(tmp_path, [small(ranks=3)])
    broken = next(tmp_path.rglob("rank1/*.gz"))
    broken.write_bytes(b"\x1f\x8b damaged")
    (found,) = analyse_sweep(tmp_path).points
    assert [one.facts.rank for one in found.ranks] == [0, 2]
    assert any(str(broken) in text for text in found.problems)
    assert "rank 1 of 3 has no trace that can be read" in found.problems
    assert found.gaps == (1,)


def test_two_traces_that_claim_the_same_rank(tmp_path, sweeps, small):
    sweeps.write_sweep(tmp_path, [small()])
    first, second = sorted(tmp_path.rglob("*.gz"))
    second.write_bytes(first.read_bytes())
    (found,) = analyse_sweep(tmp_path).points
    texts = "\n".join(found.problems)
    assert "several traces are of rank 0 according to their content" in texts
    assert "the trace is of rank 0, its path of rank 1" in texts


def test_the_selection(analysis_of, small):
    points = [small(threads=t, channels=c, ranks=3) for t in (256, 512) for c in (4, 8)]
    selection = PointSelection(threads=(512,), channels=(8,), ranks=(0, 2))
    (found,) = analysis_of(*points, selection=selection).points
    assert found.point.label == "512 threads, 8 channels"
    assert [one.facts.rank for one in found.ranks] == [0, 2]
    assert found.problems == ()


def test_an_empty_selection_is_refused_with_what_there_is(analysis_of, small):
    with pytest.raises(RequestError, match="no point with the selected") as caught:
        analysis_of(small(), selection=PointSelection(channels=(99,)))
    assert "256 threads, 8 channels" in caught.value.hint


def test_a_sweep_without_any_trace_is_refused_with_the_reasons(analysis_of, small):
    with pytest.raises(RequestError, match="no trace that can be read") as caught:
        analysis_of(small(missing=(0, 1), log="training\n"))
    assert "although it has a log" in caught.value.message
    assert "torch.profiler" in caught.value.hint


@pytest.fixture
def failing(monkeypatch):
    """Workers that fail by an error of their own while they read the trace of one of `ranks`."""

    def make(*ranks):
        def analyse(tasks, **options):
            found = analyse_ranks(tasks, **options)
            failure = RankFailure("gemmetry failed: KeyError: 'x'", is_internal=True)
            return [failure if task.rank in ranks else one
                    for task, one in zip(tasks, found, strict=True)]  # fmt: skip

        monkeypatch.setattr("gemmetry.sweeps.points.analyse_ranks", analyse)

    return make


def test_an_error_of_all_workers_is_not_blamed_on_the_training(analysis_of, small, failing):
    failing(0, 1)
    with pytest.raises(EnvironmentFailure, match="no trace was read") as caught:
        analysis_of(small())
    assert "KeyError: 'x'" in caught.value.message
    assert "The traces may be sound" in caught.value.hint
    assert "training" not in caught.value.hint


def test_an_error_of_one_worker_is_no_missing_trace(analysis_of, small, failing):
    failing(1)
    (point,) = analysis_of(small(ranks=3)).points
    assert [one for one in point.problems if "KeyError: 'x'" in one] == list(point.problems)
    assert point.gaps == (1,)


def test_ranks_without_a_trace_are_refused_with_those_that_have_one(analysis_of, small):
    with pytest.raises(RequestError, match="no trace of the selected ranks 7, 9") as caught:
        analysis_of(small(), selection=PointSelection(ranks=(7, 9)))
    assert caught.value.hint == "It has traces of ranks 0, 1."
