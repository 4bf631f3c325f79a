from __future__ import annotations

import pytest

from gemmetry.measurement.launches import Launches, fit_sets, make_sets


@pytest.fixture
def made(kit):
    def make(sets):
        device = kit.stream_device()
        executable = kit.executable(device)
        buffers = make_sets(device, kit.operation, kit.inputs, sets, rotate_outputs=True)
        return device, executable, buffers, Launches(executable, buffers)

    return make


def _places(executable, buffers):
    order = [id(item.inputs[0]) for item in buffers]
    places = [order.index(one) for one in executable.input_ids]
    executable.input_ids.clear()
    return places


def _run(calls):
    for call in calls:
        call()


def test_single_launches_and_samples_share_one_rotation(made):
    _, executable, buffers, launches = made(3)
    _run(launches.single(2))
    launches.per_sample = 2
    _run(launches.samples(2))
    assert _places(executable, buffers) == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(("sets", "per_sample", "graphs"), [(6, 2, 3), (2, 4, 1), (1, 5, 1)])
def test_graphs_go_round_all_sets(made, sets, per_sample, graphs):
    device, executable, buffers, launches = made(sets)
    launches.capture(device, per_sample)
    assert launches.is_captured
    assert device.captures == graphs
    _run(launches.samples(4))
    expected = [i % sets for i in range(4 * per_sample)]
    assert _places(executable, buffers) == expected


def test_graphs_that_would_leave_sets_out_are_refused(made):
    device, _, _, launches = made(5)
    with pytest.raises(ValueError, match="do not go round 5"):
        launches.capture(device, 2)
    assert not launches.is_captured


def test_graphs_begin_where_they_were_captured_after_single_launches(made):
    device, executable, buffers, launches = made(4)
    launches.capture(device, 2)
    _run(launches.single(1))
    assert launches.upcoming(1) == buffers[2:4]
    _run(launches.samples(1))
    assert _places(executable, buffers) == [0, 2, 3]


def test_what_was_used_last_and_what_comes(made):
    _, executable, buffers, launches = made(6)
    _run(launches.single(4))
    call, used = launches.last_used()
    call()
    assert _places(executable, buffers) == [0, 1, 2, 3, 3]
    assert used is buffers[3]
    assert launches.upcoming(3) == [buffers[4], buffers[5], buffers[0]]
    assert launches.upcoming(99) == [buffers[i] for i in (1, 2, 3, 4, 5, 0)], "last use last"


def test_launched_sets_are_marked(made):
    _, _, buffers, launches = made(4)
    launches.samples(2)
    assert [item.launched for item in buffers] == [True, True, False, False]


def test_cleared_launches_hold_no_buffers(made):
    device, _, _, launches = made(2)
    launches.capture(device, 2)
    launches.clear()
    assert not launches.is_captured
    assert not launches._each


@pytest.mark.parametrize(
    ("sets", "per_sample", "memory", "expected_sets", "expected_launches"),
    [
        (2, 5, 2**30, 2, 6),  # three times round both sets
        (10, 4, 2**30, 12, 4),  # two copies more
        (10, 4, 0, 8, 4),  # no memory for them
        (12, 4, 0, 12, 4),
    ],
)
def test_sets_are_fitted_to_graphs(
    made, operation, sets, per_sample, memory, expected_sets, expected_launches
):
    device, _, buffers, _ = made(sets)
    device.memory_bytes = memory
    size = fit_sets(device, operation, buffers, per_sample, rotate_outputs=True)
    assert (len(buffers), size) == (expected_sets, expected_launches)
    assert len({id(item.output) for item in buffers}) == expected_sets
