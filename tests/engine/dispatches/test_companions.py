from __future__ import annotations

import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind, parse_operation
from gemmetry.domain.errors import UnsupportedError
from gemmetry.domain.settings import RunSettings
from gemmetry.engine.bench import CompanionBuilder
from gemmetry.engine.candidates import Candidate
from gemmetry.engine.compiling import CompanionsAhead
from gemmetry.engine.schema import Lane
from gemmetry.providers.null_provider.provider import NullProvider
from gemmetry.verification.companions import Companions, tail_operations

OPERATION = parse_operation("matmul_8x8x8_f32t_f32t_f32t")
OTHER = parse_operation("matmul_17x15x9_f32t_f32t_f32t")


@pytest.fixture
def builder(tmp_path):
    """A builder of companions of a provider's dispatches."""

    def make(provider=None):
        workspace = Workspace(generated=tmp_path, force=True)
        return CompanionBuilder(provider or NullProvider(), workspace)

    return make


def dispatch(name="default", operation=OPERATION, **parameters):
    target = Target(TargetKind.NULL, "", 0)
    return Dispatch(operation, Configuration(name, parameters), "null", target)


@pytest.fixture
def built(monkeypatch):
    """What the null provider built: operation, name of the configuration, whether it was forced.
    Its configuration `fast` does not support the other operation."""
    built, original = [], NullProvider.build

    def build(self, dispatch, workspace):
        name = dispatch.configuration.name
        if name == "fast" and dispatch.operation == OTHER:
            raise UnsupportedError("no such shape")
        built.append((dispatch.operation, name, workspace.force))
        return original(self, dispatch, workspace)

    monkeypatch.setattr(NullProvider, "build", build)
    return built


def test_other_operations_are_built_in_the_same_configuration(builder, built):
    companions = builder().companions(dispatch("noisy_3"), "standard")
    assert companions.build(OTHER).writes_output
    assert built == [(OTHER, "noisy_3", False)], "forcing applies to requested dispatches only"


def test_what_a_trial_chose_computes_other_shapes_as_far_as_it_can(builder, built):
    made = builder()
    found = made.companions(dispatch("best"), "standard", chosen="fast")
    assert found.build(OPERATION) is not None and found.build(OTHER) is not None
    assert [name for _, name, _ in built] == ["fast", "default"]
    assert found.known is not made.companions(dispatch("best"), "standard").known
    with pytest.raises(UnsupportedError):
        made.companions(dispatch("fast"), "standard").build(OTHER)


def test_none_where_it_is_not_supported(builder):
    nothing = NullProvider({"unsupported": ["matmul"]})
    for provider, name in ((nothing, "default"), (NullProvider(), "unheard_of")):
        companions = builder(provider).companions(dispatch(name), "standard")
        assert companions.build(OTHER) is None


@pytest.mark.parametrize(("is_quick", "level", "expected"), [
    (True, "quick", False), (True, "standard", True), (False, "standard", False),
    (False, "paranoid", True),
])  # fmt: skip
def test_slow_builds_are_left_to_the_thorough_level(builder, is_quick, level, expected):
    provider = NullProvider()
    provider.rebuilds_quickly = is_quick
    assert (builder(provider).companions(dispatch(), level) is not None) == expected


def test_the_configuration_shows_tile_and_stages(builder):
    tiled, silent = (
        builder().companions(one, "standard")
        for one in (dispatch(tile_m=64, tile_n=32, tile_k=16, stages=3), dispatch())
    )
    assert (tiled.tile, tiled.stages) == ((64, 32, 16), 3)
    assert (silent.tile, silent.stages) == (None, None)


def test_results_are_shared_by_shapes_of_one_signature_and_configuration(builder):
    made = builder()
    known = made.companions(dispatch(), "standard").known
    bf16 = parse_operation("matmul_8x8x8_bf16t_bf16t_bf16t")
    for other, is_shared in (
        (dispatch(operation=OTHER), True), (dispatch(operation=bf16), False),
        (dispatch("fast"), False),
    ):  # fmt: skip
        assert (made.companions(other, "standard").known is known) == is_shared


FORMATS = "bf16t_bf16t_bf16t"
LANE = Lane(3, "stub", {}, Target(TargetKind.CUDA, "sm_90", 0))


class Stub:
    """Supports multiples of `multiple` only."""

    def __init__(self, multiple=1, rebuilds_quickly=True):
        self.multiple, self.rebuilds_quickly = multiple, rebuilds_quickly

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
    sizes = [size for item in found for size in item.operation.matmul_shape[:3]]
    assert found and all(size % 16 == 0 for size in sizes)


def test_without_such_checks_or_a_provider_that_builds_quickly_there_are_none():
    for settings in ({"verify": False}, {"verification_level": "quick"}):
        assert ahead(**settings).of([candidate(1)]) == []
    assert ahead(Stub(rebuilds_quickly=False)).of([candidate(1)]) == []
    assert ahead().of([candidate(1, configuration="gone")]) == []
