"""The best way to run each collective, and what a tuner is given of it."""

from __future__ import annotations

import pytest

from gemmetry.sweeps.points import analyse_sweep
from gemmetry.sweeps.tuner import size_ranges, tuned_collectives, tuner_lines


@pytest.fixture
def tuned(sweeps, tmp_path):
    """The collectives of a sweep of the given points."""

    def tune(*made):
        folder = sweeps.write_sweep(
            tmp_path / "sweep",
            [sweeps.MadePoint(**{"steps": 1, "layers": 3, "ranks": 2, **one}) for one in made],
        )
        return tuned_collectives(analyse_sweep(folder))

    return tune


def _repeated(repeats=3, **chosen):
    """Repeats of a point, whose collectives differ by 1 % between runs."""
    duration = chosen.pop("comm_ns")
    return [
        {**chosen, "repeat": number, "comm_ns": duration + (number - 2) * duration // 100}
        for number in range(1, repeats + 1)
    ]


def test_a_faster_number_of_channels_is_set(tuned):
    (one,) = tuned(
        *_repeated(channels=4, comm_ns=400_000), *_repeated(channels=16, comm_ns=300_000)
    )
    assert (one.operation, one.bytes, one.ranks, one.nodes) == ("all_gather", 1 << 25, 2, None)
    assert one.way == ("ring", "simple", 16)
    assert (one.verdict, one.obstacle, one.source) == ("faster", "", "traces")
    assert one.best.mean_ms == pytest.approx(0.3, rel=0.01)
    (line,) = tuner_lines([one])
    assert line.text == f"allgather,{1 << 24},{1 << 26},ring,simple,16,-1,2,-1,-1"


def test_without_repeats_nothing_is_set(tuned):
    (one,) = tuned({"channels": 4, "comm_ns": 400_000}, {"channels": 16, "comm_ns": 300_000})
    assert one.verdict == "undecided"
    assert one.obstacle.startswith("undecided (")
    assert "repeat" in one.obstacle
    assert tuner_lines([one]) == [None]


def test_a_difference_within_noise_is_not_set(tuned):
    (one,) = tuned(
        *_repeated(channels=4, comm_ns=300_500), *_repeated(channels=16, comm_ns=300_000)
    )
    assert one.verdict in ("no difference shown", "undecided")
    assert tuner_lines([one]) == [None]


def test_points_that_run_alike_are_no_rivals(tuned):
    """The library clamps both: what differs is not what a tuner sets."""
    (one,) = tuned(
        *_repeated(channels=64, comm_ns=400_000),
        *_repeated(channels=70, seen_channels=64, comm_ns=300_000),
    )
    assert one.obstacle == "every point ran it in the same way"


def test_an_unknown_algorithm_is_not_set(tuned):
    """Blocks of 640 threads fit several algorithms."""
    (one,) = tuned(
        *_repeated(channels=4, seen_threads=640, comm_ns=400_000),
        *_repeated(channels=16, seen_threads=640, comm_ns=300_000),
    )
    assert one.verdict == "faster"
    assert one.way == (None, None, 16)
    assert "open" in one.obstacle
    assert tuner_lines([one]) == [None]


def test_missing_ranks_do_not_count(tuned):
    assert tuned({"channels": 4, "missing": (1,), "comm_ns": 1000}) == []


def test_failed_points_do_not_count(tuned):
    facts = {"outcome": "failed", "reason": "x", "threads": 256, "channels": 8}
    failed = {"channels": 8, "facts": facts, "comm_ns": 1000}
    (one,) = tuned({"channels": 4, "comm_ns": 300_000}, failed)
    assert (one.best.configuration.channels, one.verdict) == (4, "the only one")


def test_ranges_of_sizes_meet_without_a_gap(tuned):
    found = tuned(
        {"channels": 4, "elements": 1 << 20}, {"channels": 8, "elements": 3 << 20},
        {"channels": 16, "elements": 1 << 27},
    )  # fmt: skip
    ranges = size_ranges(found)
    small, medium, large = (1 << 21), 3 << 21, 1 << 28
    assert ranges[0][0] == small // 2
    assert ranges[0][1] + 1 == ranges[1][0]
    assert small < ranges[0][1] < medium
    assert ranges[1][1] == 2 * medium
    assert ranges[2] == (large // 2, 2 * large)


def test_records_of_nccl_have_precedence_where_every_point_has_them(sweeps, tmp_path, records):
    made = [
        sweeps.MadePoint(steps=1, layers=3, channels=channels, repeat=repeat, elements=1 << 23)
        for channels in (4, 8) for repeat in (1, 2)
    ]  # fmt: skip
    folder = sweeps.write_sweep(tmp_path / "sweep", made)
    for point in made:
        for rank in range(2):
            durations = [1000 // point.channels + point.repeat] * 5
            records(sweeps.point_folder(folder, point) / "nccl", rank, durations)
    (one,) = tuned_collectives(analyse_sweep(folder))
    assert (one.source, one.nodes, one.way.channels) == ("nccl_records", 1, 8)
    assert one.best.mean_ms == pytest.approx((0.126 * 0.127) ** 0.5)
    assert one.best.steps == 10
