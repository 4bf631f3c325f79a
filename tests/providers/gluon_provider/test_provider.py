from __future__ import annotations

import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind
from gemmetry.domain.errors import UnsupportedError
from gemmetry.domain.names import parse_operation
from gemmetry.providers.gluon_provider import provider as tiles
from gemmetry.providers.gluon_provider.provider import GluonProvider

HOPPER = Target(TargetKind.CUDA, "sm_90", None)
OPERATION = parse_operation("matmul_96x72x40_bf16t_bf16n_bf16t")


def test_hopper_is_offered_for_compiling_everywhere() -> None:
    provider = GluonProvider()
    assert HOPPER in provider.targets()
    assert provider.compiles_ahead(HOPPER)
    assert not provider.compiles_ahead(Target(TargetKind.CPU))


def test_names_are_the_triton_providers_without_methods() -> None:
    provider = GluonProvider()
    for configuration in provider.configurations(OPERATION, HOPPER):
        found = provider.parse_configuration(configuration.name, OPERATION, HOPPER)
        assert found == configuration
    for name in ("promoted_tile_64x64x64_warps4_stages4_group8", "tile_64", "r05"):
        assert provider.parse_configuration(name, OPERATION, HOPPER) is None


def test_without_a_device_it_is_not_built(tmp_path) -> None:
    dispatch = Dispatch(OPERATION, Configuration(), "gluon", HOPPER)
    with pytest.raises(UnsupportedError, match="can only be compiled"):
        GluonProvider().build(dispatch, Workspace(generated=tmp_path))
    other = parse_operation("matmul_8x8x8_f32t_f32n_f32t")
    refused = Dispatch(other, Configuration(), "gluon", HOPPER)
    with pytest.raises(UnsupportedError, match="multiplies bf16 and f16"):
        GluonProvider().build(refused, Workspace(generated=tmp_path))


def test_an_unsupported_operation_costs_no_other(tmp_path, monkeypatch) -> None:
    if tiles.missing_triton() is not None:
        pytest.skip(str(tiles.missing_triton()))
    other = parse_operation("matmul_8x8x8_f32t_f32n_f32t")
    dispatches = [
        Dispatch(other, Configuration(), "gluon", HOPPER),
        Dispatch(OPERATION, Configuration(), "gluon", HOPPER),
    ]
    workspace = Workspace(generated=tmp_path / "generated")
    refused, compiled = GluonProvider().compile(dispatches, workspace)
    assert isinstance(refused.error, UnsupportedError)
    assert compiled.error is None
    assert compiled.facts.default_configuration == tiles.choose(OPERATION).name


def test_libraries_are_named_where_they_are_installed(monkeypatch) -> None:
    monkeypatch.setattr(tiles, "missing_triton", lambda: "no")
    assert GluonProvider().available() == "no"
    assert GluonProvider().versions() == {}
    assert list(GluonProvider().targets()) == [HOPPER]
