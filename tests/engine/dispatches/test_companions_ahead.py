from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import Configuration, Target, TargetKind
from gemmetry.domain.names import parse_operation
from gemmetry.domain.settings import RunSettings
from gemmetry.engine.candidates import Candidate
from gemmetry.engine.compiling import CompanionsAhead
from gemmetry.engine.store.rows import Lane
from gemmetry.verification.companions import Companions, tail_operations

FORMATS = "bf16t_bf16t_bf16t"
LANE = Lane(3, "stub", {}, Target(TargetKind.CUDA, "sm_90", 0))


class Stub:
    """Builds quickly; supports multiples of `multiple` only."""

    rebuilds_quickly = True

    def __init__(self, multiple=1):
        self.multiple = multiple

    def supports(self, operation, target):
        is_fine = all(size % self.multiple == 0 for size in operation.matmul_shape[:3])
        return None if is_fine else "a multiple"

    def configurations(self, operation, target):
        return [Configuration("tile_128x64x32")]

    def parse_configuration(self, name, operation, target):
        return Configuration(name) if name != "gone" else None


def candidate(number, size=512, configuration="tile_128x64x32", formats=FORMATS):
    name = f"matmul_{size}x{size}x{size}_{formats}"
    made = Configuration(configuration, {"tile": "128x64x32", "stages": 3})
    return Candidate(number, LANE, parse_operation(name), name, made)


def ahead(provider=None, **settings):
    return CompanionsAhead({3: provider or Stub()}, RunSettings(**settings))


def test_they_are_the_shapes_that_verification_builds():
    (one,) = given = [candidate(1)]
    found = ahead().of(given)
    companions = Companions(lambda _: None, one.configuration.tile, 3)
    shapes = {item.operation for item in found}
    for options in tail_operations(one.operation, companions, thorough=False):
        assert options[0] in shapes
    assert {parse_operation(item.operation_name) for item in found} == shapes
    assert len({item.id for item in found}) == len(found)
    assert all(item.id < 0 and item.lane is LANE for item in found)


def test_each_configuration_and_signature_has_them_once():
    listing = ahead()
    assert listing.of([candidate(1), candidate(2, 1024)]) != []
    assert listing.of([candidate(3, 2048)]) == []
    assert listing.of([candidate(4, configuration="other")]) != []
    assert listing.of([candidate(5, formats="f16t_f16t_f16t")]) != []


def test_a_shape_that_is_refused_is_replaced_by_multiples_of_16():
    found = ahead(Stub(multiple=16)).of([candidate(1)])
    assert found and all(
        size % 16 == 0 for item in found for size in item.operation.matmul_shape[:3]
    )


@pytest.mark.parametrize("settings", [{"verify": False}, {"verification_level": "quick"}])
def test_without_such_checks_there_are_none(settings):
    assert ahead(**settings).of([candidate(1)]) == []


def test_a_provider_that_builds_slowly_has_none():
    slow = Stub()
    slow.rebuilds_quickly = False
    assert ahead(slow).of([candidate(1)]) == []
    assert ahead().of([candidate(1, configuration="gone")]) == []
