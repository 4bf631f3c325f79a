from __future__ import annotations

import numpy as np
import pytest

from gemmetry.measurement import launches as buffers
from gemmetry.measurement.launches import Launches, fit_sets, make_sets, measure_overhead


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
    _, executable, buffers, launches = made(4)
    _run(launches.single(1))
    launches.per_sample = 2
    calls = launches.samples(2)
    assert [item.launched for item in buffers] == [True] * 4
    _run(calls)
    assert _places(executable, buffers) == [0, 1, 2, 3, 0]


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
    launches.clear()
    assert not launches.is_captured
    assert not launches._each, "it holds no buffers"


def test_what_was_used_last_and_what_comes(made):
    _, executable, buffers, launches = made(6)
    _run(launches.single(4))
    call, used = launches.last_used()
    call()
    assert _places(executable, buffers) == [0, 1, 2, 3, 3]
    assert used is buffers[3]
    assert launches.upcoming(3) == [buffers[4], buffers[5], buffers[0]]
    assert launches.upcoming(99) == [buffers[i] for i in (1, 2, 3, 4, 5, 0)], "last use last"


@pytest.mark.parametrize(("sets", "per_sample", "memory", "expected_sets", "expected_launches"), [
    (2, 5, 2**30, 2, 6),  # three times round both sets
    (10, 4, 2**30, 12, 4),  # two copies more
    (10, 4, 0, 8, 4),  # no memory for them
    (12, 4, 0, 12, 4),
])  # fmt: skip
def test_sets_are_fitted_to_graphs(
    made, operation, sets, per_sample, memory, expected_sets, expected_launches
):
    device, _, buffers, _ = made(sets)
    device.memory_bytes = memory
    size = fit_sets(device, operation, buffers, per_sample, rotate_outputs=True)
    assert (len(buffers), size) == (expected_sets, expected_launches)
    assert len({id(item.output) for item in buffers}) == expected_sets


def test_median_of_empty_calls(kit):
    assert measure_overhead(kit.device(empty_ns=120.0)) == 120.0


@pytest.mark.parametrize(("cache_sets", "memory_sets", "expected"), [
    (10, 1000, 21),  # more than twice the cache
    (0, 1000, 2),
    (1000, 8, 4),
    (10**6, 10**7, buffers.MAX_SETS),
    (100, 1, 1),
])  # fmt: skip
def test_sets_are_at_least_two_and_fit_half_the_memory(kit, cache_sets, memory_sets, expected):
    size = kit.operation.bytes
    device = kit.device(last_level_cache_bytes=cache_sets * size, memory_bytes=memory_sets * size)
    assert buffers.wanted_sets(kit.operation, device, cold_cache=True) == expected
    assert buffers.wanted_sets(kit.operation, device, cold_cache=False) == 1


def test_sets_are_copies_at_other_addresses(kit, monkeypatch):
    def make(count, *, rotate_outputs=True):
        given = (kit.device(), kit.operation, kit.inputs, count)
        return make_sets(*given, rotate_outputs=rotate_outputs)

    sets = make(3)
    places = [array.ctypes.data for item in sets for array in (item.inputs[0], item.output)]
    assert len(set(places)) == 6
    for item in sets:
        np.testing.assert_array_equal(item.inputs[1], kit.inputs[1])
        assert np.isnan(item.output).all(), "outputs hold the sentinel before a launch"
    own = make(3, rotate_outputs=False)
    assert len({id(item.output) for item in own}) == 1, "the executable allocates its own"
    monkeypatch.setattr(buffers, "CLONE_BUDGET_S", 0.0)
    assert len(make(50)) == 2, "copies take too long"


def test_only_the_chosen_outputs_are_poisoned(kit):
    device = kit.device()
    sets = buffers.make_sets(device, kit.operation, kit.inputs, 3, rotate_outputs=True)
    for item in sets:
        item.output[...] = 1.0
        item.launched = item.poisoned = True
    buffers.poison(device, sets, sets[1:], wait=True)
    assert [item.poisoned for item in sets] == [False, True, True]
    assert not any(item.launched for item in sets)
    assert [bool(np.isnan(item.output).any()) for item in sets] == [False, True, True]


def test_inputs_of_an_operation_are_uploaded_once_where_memory_suffices(kit):
    device, uploads, sent = kit.device(), buffers.Uploads(), []
    upload, how = device.upload, {"rotate_outputs": True, "uploads": uploads}
    device.upload = lambda array, spec: sent.append(spec.role) or upload(array, spec)
    first, second = (make_sets(device, kit.operation, kit.inputs, 2, **how) for _ in range(2))
    assert len(sent) == len(kit.operation.inputs)
    first[0].inputs[0][...] = 9.0  # a kernel that changes its inputs changes its own alone
    assert all((item.inputs[0] == kit.inputs[0]).all() for item in second)
    make_sets(device, kit.operation, tuple(array + 1 for array in kit.inputs), 2, **how)
    assert len(sent) == 2 * len(kit.operation.inputs), "other inputs"
    small, uploads = kit.device(memory_bytes=15 * kit.operation.bytes), buffers.Uploads()
    uploads.clones(small, kit.operation, kit.inputs)
    assert uploads._buffers == ()
    assert small.clones == 0
