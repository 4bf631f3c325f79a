"""A sweep from its folder to its analysis: what is planted is found, and bad input is named."""

from __future__ import annotations

import pytest

from gemmetry.domain.errors import EnvironmentFailure
from gemmetry.sweeps.points import analyse_sweep
from gemmetry.sweeps.workers import RankFailure, analyse_ranks


@pytest.fixture
def small(sweeps, tmp_path):
    """Writes the sweep of a point as small as can be."""

    def make(**chosen):
        return sweeps.write_sweep(tmp_path, [sweeps.MadePoint(steps=1, layers=1, **chosen)])

    return make


def test_a_trace_that_cannot_be_read_costs_its_rank_alone(small):
    folder = small(ranks=3)
    broken = next(folder.rglob("rank1/*.gz"))
    broken.write_bytes(b"\x1f\x8b damaged")
    (found,) = analyse_sweep(folder).points
    assert [one.facts.rank for one in found.ranks] == [0, 2]
    assert any(str(broken) in text for text in found.problems)
    assert "rank 1 of 3 has no trace that can be read" in found.problems
    assert found.gaps == (1,)


def test_two_traces_that_claim_the_same_rank(small):
    folder = small()
    first, second = sorted(folder.rglob("*.gz"))
    second.write_bytes(first.read_bytes())
    (found,) = analyse_sweep(folder).points
    texts = "\n".join(found.problems)
    assert "several traces are of rank 0" in texts
    assert "its path of rank 1" in texts


@pytest.fixture
def failing(monkeypatch):
    """Workers that fail by an error of their own while they read the trace of one of `ranks`."""

    def make(*ranks):
        def analyse(tasks, **options):
            found = analyse_ranks(tasks, **options)
            failure = RankFailure("gemmetry failed: KeyError: 'x'", is_internal=True)
            return [failure if task.file.rank in ranks else one
                    for task, one in zip(tasks, found, strict=True)]  # fmt: skip

        monkeypatch.setattr("gemmetry.sweeps.points.analyse_ranks", analyse)

    return make


def test_an_error_of_all_workers_is_not_blamed_on_the_training(small, failing):
    failing(0, 1)
    with pytest.raises(EnvironmentFailure, match="KeyError: 'x'") as caught:
        analyse_sweep(small())
    assert "training" not in caught.value.hint


def test_an_error_of_one_worker_is_no_missing_trace(small, failing):
    failing(1)
    (point,) = analyse_sweep(small(ranks=3)).points
    assert [one for one in point.problems if "KeyError: 'x'" in one] == list(point.problems)
    assert point.gaps == (1,)
