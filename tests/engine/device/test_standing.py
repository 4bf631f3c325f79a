from __future__ import annotations

from types import SimpleNamespace

import pytest

from gemmetry.domain.errors import DeviceLostError, Outcome, Stage, StorageError
from gemmetry.engine.device import Standing
from gemmetry.engine.failures import Ending, WorkerLost
from gemmetry.engine.workers.protocol import Failure

FULL = Ending(Outcome.OUT_OF_MEMORY, "full")
DIED = Ending(Outcome.CRASH, "died")


@pytest.fixture
def ended():
    """Endings by candidate."""
    return {}


@pytest.fixture
def dropped():
    """Lanes whose workers were dropped."""
    return []


@pytest.fixture
def standing(ended, dropped):
    losses = iter(range(1, 99))
    results = SimpleNamespace(
        end=lambda candidate, ending: ended.update({candidate.id: ending}),
        has_ended=lambda candidate: candidate.id in ended,
    )
    crews = SimpleNamespace(drop=dropped.append)
    experiment = SimpleNamespace(count_device_loss=lambda number: next(losses))
    return Standing(crews, results, experiment)


@pytest.fixture
def worker():
    found = SimpleNamespace(is_killed=False, output_tail=lambda: "tail")
    found.kill = lambda: setattr(found, "is_killed", True)
    return found


def test_a_failure_that_another_may_have_caused_gets_a_second_chance_alone(
    standing, ended, make_candidate
):
    one, other = make_candidate(1), make_candidate(2)
    standing.open[2] = other
    standing.blame(one, FULL)
    assert ended == {}
    assert standing.take_second_chances() == [one]
    assert one.runs_alone
    assert standing.take_second_chances() == []
    standing.blame(one, FULL)
    assert ended == {1: FULL}


def test_a_failure_that_no_other_can_have_caused_ends(standing, ended, make_candidate):
    standing.blame(make_candidate(1), FULL)
    standing.open[2] = make_candidate(2)
    standing.blame(make_candidate(3), DIED)
    assert ended == {1: FULL, 3: DIED}
    assert standing.take_second_chances() == []


def test_the_first_dispatch_without_an_answer_is_blamed_for_a_loss(standing, ended, make_candidate):
    one, other = make_candidate(1), make_candidate(2)
    standing.open.update({1: one, 2: other})
    assert standing.blame_for_loss([one, other], DIED) is one
    assert ended == {1: DIED}
    assert list(standing.open) == [2]


def test_after_the_last_answer_the_one_that_it_was_about_is_to_blame(
    standing, ended, make_candidate
):
    one = make_candidate(1)
    assert standing.blame_for_loss([], DIED) is None
    standing.answered = one
    assert standing.blame_for_loss([], DIED) is one
    assert standing.blame_for_loss([], FULL) is one
    assert ended == {1: DIED}, "a dispatch ends once"


def test_a_lost_worker_takes_its_lanes_dispatches_along(standing, dropped, make_candidate):
    mine, others = make_candidate(1, lane=1), make_candidate(2, lane=2)
    mine.workers.append(0)
    standing.open.update({1: mine, 2: others})
    standing.stale[3] = make_candidate(3, lane=1)
    assert standing.drop_crew(1) == [mine]
    assert dropped == [1]
    assert list(standing.open) == [2]
    assert standing.stale == {}
    assert mine.workers == []


def test_a_device_that_is_lost_twice_is_blamed_on_the_dispatch(
    standing, ended, worker, make_candidate
):
    one = make_candidate(1)
    one.stage = Stage.MEASURE
    failure = Failure(DeviceLostError.__name__, "it is gone")
    with pytest.raises(DeviceLostError):
        standing.raise_if_fatal(worker, one, failure)
    assert one.id not in ended
    with pytest.raises(DeviceLostError):
        standing.raise_if_fatal(worker, one, failure)
    assert one.id in ended


def test_a_full_disk_is_not_the_dispatchs_fault(standing, ended, worker, make_candidate):
    one = make_candidate(1)
    with pytest.raises(StorageError, match="full"):
        standing.raise_if_fatal(worker, one, Failure(StorageError.__name__, "full"))
    assert one.id not in ended


def test_a_spoiled_worker_is_ended_and_others_continue(standing, ended, worker, make_candidate):
    spoiled = Failure("LaunchError", "x", worker_is_spoiled=True)
    with pytest.raises(WorkerLost):
        standing.raise_if_fatal(worker, make_candidate(1), spoiled)
    assert worker.is_killed
    standing.raise_if_fatal(worker, make_candidate(1), Failure("LaunchError", "x"))
    standing.raise_if_fatal(worker, make_candidate(1), None)
    assert ended == {}
