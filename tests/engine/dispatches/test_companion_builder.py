from __future__ import annotations

import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind
from gemmetry.domain.names import parse_operation
from gemmetry.engine.bench import CompanionBuilder
from gemmetry.providers.null_provider.provider import NullProvider

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
            seen.append((dispatch, workspace.force))
            return super().build(dispatch, workspace)

    companions = CompanionBuilder(Watched(), workspace).companions(dispatch("noisy_3"), "standard")
    executable = companions.build(OTHER)
    assert executable.writes_output
    ((built, is_forced),) = seen
    assert built.operation == OTHER
    assert built.configuration.name == "noisy_3"
    assert not is_forced, "forcing applies to requested dispatches only"


def test_none_where_it_is_not_supported(workspace):
    provider = NullProvider({"unsupported": ["matmul"]})
    companions = CompanionBuilder(provider, workspace).companions(dispatch(), "standard")
    assert companions.build(OTHER) is None
    strange = CompanionBuilder(NullProvider(), workspace)
    assert strange.companions(dispatch("unheard_of"), "standard").build(OTHER) is None


@pytest.mark.parametrize(
    ("is_quick", "level", "expected"),
    [
        (True, "quick", False),
        (True, "standard", True),
        (False, "standard", False),
        (False, "paranoid", True),
    ],
)
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
