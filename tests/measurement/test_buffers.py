from __future__ import annotations

import numpy as np
import pytest

from gemmetry.measurement import launches as buffers


def test_sets_exceed_twice_the_cache(kit):
    device = kit.device(cache_bytes=10 * kit.operation.bytes)
    assert buffers.wanted_sets(kit.operation, device, cold_cache=True) == 21


@pytest.mark.parametrize(
    ("cache_sets", "memory_sets", "expected"),
    [(0, 1000, 2), (1, 1000, 3), (1000, 8, 4), (10**6, 10**7, buffers.MAX_SETS), (100, 1, 1)],
)
def test_sets_are_at_least_two_and_fit_half_the_memory(kit, cache_sets, memory_sets, expected):
    size = kit.operation.bytes
    device = kit.device(cache_bytes=cache_sets * size, memory_bytes=memory_sets * size)
    assert buffers.wanted_sets(kit.operation, device, cold_cache=True) == expected


def test_warm_cache_takes_one_set(kit):
    device = kit.device(cache_bytes=2**30)
    assert buffers.wanted_sets(kit.operation, device, cold_cache=False) == 1


def test_sets_are_copies_at_other_addresses(kit):
    sets = buffers.make_sets(kit.device(), kit.operation, kit.inputs, 3, rotate_outputs=True)
    addresses = {item.inputs[0].ctypes.data for item in sets} | {
        item.output.ctypes.data for item in sets
    }
    assert len(addresses) == 6
    for item in sets:
        np.testing.assert_array_equal(item.inputs[1], kit.inputs[1])
        assert np.isnan(item.output).all(), "outputs hold the sentinel before a launch"


def test_one_output_where_the_executable_allocates_its_own(kit):
    sets = buffers.make_sets(kit.device(), kit.operation, kit.inputs, 3, rotate_outputs=False)
    assert len({id(item.output) for item in sets}) == 1


def test_copies_stop_when_they_take_too_long(kit, monkeypatch):
    monkeypatch.setattr(buffers, "CLONE_BUDGET_S", 0.0)
    sets = buffers.make_sets(kit.device(), kit.operation, kit.inputs, 50, rotate_outputs=True)
    assert len(sets) == 2


def test_poison_hides_what_was_computed_before(kit):
    device = kit.device()
    sets = buffers.make_sets(device, kit.operation, kit.inputs, 2, rotate_outputs=True)
    for item in sets:
        item.output[...] = 1.0
        item.launched = True
    buffers.poison(device, sets, sets)
    assert all(np.isnan(item.output).all() and not item.launched for item in sets)


def test_only_the_chosen_outputs_are_poisoned(kit):
    device = kit.device()
    sets = buffers.make_sets(device, kit.operation, kit.inputs, 3, rotate_outputs=True)
    for item in sets:
        item.output[...] = 1.0
        item.launched = item.poisoned = True
    buffers.poison(device, sets, sets[1:])
    assert [item.poisoned for item in sets] == [False, True, True]
    assert not any(item.launched for item in sets)
    assert [bool(np.isnan(item.output).any()) for item in sets] == [False, True, True]


def test_inputs_of_an_operation_are_uploaded_once(kit):
    device, uploads = kit.device(), buffers.Uploads()
    sent = []
    upload = device.upload
    device.upload = lambda array, spec: sent.append(spec.role) or upload(array, spec)

    def make(inputs):
        return buffers.make_sets(
            device, kit.operation, inputs, 2, rotate_outputs=True, uploads=uploads
        )

    first, second = make(kit.inputs), make(kit.inputs)
    assert len(sent) == len(kit.operation.inputs)
    first[0].inputs[0][...] = 9.0  # a kernel that changes its inputs changes its own alone
    assert all((item.inputs[0] == kit.inputs[0]).all() for item in second)
    make(tuple(array + 1 for array in kit.inputs))
    assert len(sent) == 2 * len(kit.operation.inputs), "other inputs"


def test_large_inputs_are_not_kept(kit):
    device = kit.device(memory_bytes=15 * kit.operation.bytes)
    uploads = buffers.Uploads()
    uploads.clones(device, kit.operation, kit.inputs)
    assert uploads._buffers == ()
    assert device.clones == 0
