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
def workspace(tmp_path):
    return Workspace(generated=tmp_path, force=True)


def dispatch(name="default", operation=OPERATION, **parameters):
    target = Target(TargetKind.NULL, "", 0)
    return Dispatch(operation, Configuration(name, parameters), "null", target)


def test_other_operations_are_built_in_the_same_configuration(workspace):
    seen = []

    class Watched(NullProvider):
        def build(self, dispatch, workspace):
            seen.append((dispatch.operation, dispatch.configuration.name, workspace.force))
            return super().build(dispatch, workspace)

    companions = CompanionBuilder(Watched(), workspace).companions(dispatch("noisy_3"), "standard")
    assert companions.build(OTHER).writes_output
    assert seen == [(OTHER, "noisy_3", False)], "forcing applies to requested dispatches only"


def test_what_a_trial_chose_computes_other_shapes_as_far_as_it_can(workspace):
    class Chosen(NullProvider):
        def build(self, dispatch, workspace):
            if dispatch.configuration.name == "fast" and dispatch.operation == OTHER:
                raise UnsupportedError("no such shape")
            names.append(dispatch.configuration.name)
            return super().build(dispatch, workspace)

    names: list[str] = []
    builder = CompanionBuilder(Chosen(), workspace)
    found = builder.companions(dispatch("best"), "standard", chosen="fast")
    assert found.build(OPERATION) is not None and found.build(OTHER) is not None
    assert names == ["fast", "default"]
    assert found.known is not builder.companions(dispatch("best"), "standard").known
    unsupported = builder.companions(dispatch("fast"), "standard")
    with pytest.raises(UnsupportedError):
        unsupported.build(OTHER)


def test_none_where_it_is_not_supported(workspace):
    provider = NullProvider({"unsupported": ["matmul"]})
    companions = CompanionBuilder(provider, workspace).companions(dispatch(), "standard")
    assert companions.build(OTHER) is None
    strange = CompanionBuilder(NullProvider(), workspace)
    assert strange.companions(dispatch("unheard_of"), "standard").build(OTHER) is None


@pytest.mark.parametrize(
    ("is_quick", "level", "expected"),
    [(True, "quick", False), (True, "standard", True), (False, "standard", False),
     (False, "paranoid", True)],
)  # fmt: skip
def test_slow_builds_are_left_to_the_thorough_level(workspace, is_quick, level, expected):
    provider = NullProvider()
    provider.rebuilds_quickly = is_quick
    found = CompanionBuilder(provider, workspace).companions(dispatch(), level)
    assert (found is not None) == expected


def test_the_configuration_shows_tile_and_stages(workspace):
    builder = CompanionBuilder(NullProvider(), workspace)
    companions = builder.companions(dispatch(tile_m=64, tile_n=32, tile_k=16, stages=3), "standard")
    assert (companions.tile, companions.stages) == ((64, 32, 16), 3)
    silent = builder.companions(dispatch(), "standard")
    assert (silent.tile, silent.stages) == (None, None)


def test_results_are_shared_by_shapes_of_one_signature_and_configuration(workspace):
    builder = CompanionBuilder(NullProvider(), workspace)
    known = builder.companions(dispatch(), "standard").known
    assert builder.companions(dispatch(operation=OTHER), "standard").known is known
    bf16 = parse_operation("matmul_8x8x8_bf16t_bf16t_bf16t")
    assert builder.companions(dispatch(operation=bf16), "standard").known is not known
    assert builder.companions(dispatch("fast"), "standard").known is not known


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


def test_without_such_checks_or_a_provider_that_builds_quickly_there_are_none():
    for settings in ({"verify": False}, {"verification_level": "quick"}):
        assert ahead(**settings).of([candidate(1)]) == []
    slow = Stub()
    slow.rebuilds_quickly = False
    assert ahead(slow).of([candidate(1)]) == []
    assert ahead().of([candidate(1, configuration="gone")]) == []
