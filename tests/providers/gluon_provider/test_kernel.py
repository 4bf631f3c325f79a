"""The Gluon kernel compiled for Hopper on a machine without one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gemmetry.domain.dispatch import Dispatch, Target, TargetKind
from gemmetry.domain.errors import CompileError, LaunchError
from gemmetry.domain.names import parse_operation
from gemmetry.providers.gluon_provider import provider as tiles
from gemmetry.providers.gluon_provider.provider import GluonProvider

pytestmark = pytest.mark.skipif(
    tiles.missing_triton() is not None, reason=str(tiles.missing_triton())
)

HOPPER = Target(TargetKind.CUDA, "sm_90", None)
SMALL = "tile_64x64x64_warps4_stages4_group8"


def _dispatch(formats: str, configuration: str = SMALL) -> Dispatch:
    operation = parse_operation(f"matmul_96x72x40_{formats}")
    found = GluonProvider().parse_configuration(configuration, operation, HOPPER)
    assert found is not None
    return Dispatch(operation, found, "gluon", HOPPER)


@pytest.mark.parametrize("formats", ["bf16t_bf16n_bf16t", "f16t_f16t_f32t"])
def test_it_uses_wgmma_bulk_copies_and_barriers(workspace, formats) -> None:
    [compiled] = GluonProvider().compile([_dispatch(formats)], workspace)
    assert compiled.error is None
    facts = compiled.facts
    assert facts.matrix_instruction == "wgmma"
    assert facts.registers is None or facts.spill_bytes == 0
    assert facts.shared_memory_bytes >= 4 * 2 * 64 * 64 * 2
    ptx = (workspace.generated.parent / facts.assembly_path).read_text()
    for instruction in (
        "cp.async.bulk.tensor.2d.shared",
        "cp.async.bulk.tensor.2d.global",
        "mbarrier.arrive.expect_tx",
        "mbarrier.try_wait",
    ):
        assert instruction in ptx


def test_an_unsuitable_tile_is_refused_before_it_is_compiled(workspace) -> None:
    name = "tile_64x64x64_warps8_stages4_group8"
    [compiled] = GluonProvider().compile([_dispatch("bf16t_bf16n_bf16t", name)], workspace)
    assert isinstance(compiled.error, CompileError)
    assert "multiply 64 rows each" in compiled.error.message


def test_a_launch_describes_the_stored_matrices(monkeypatch) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from gemmetry.domain.record import BuildFacts
    from gemmetry.hardware.torch_device import open_device
    from gemmetry.providers.gluon_provider.kernel import GluonExecutable

    launches = []
    kernel = {(4, 1, 1): lambda *arguments: launches.append(arguments)}
    built = SimpleNamespace(kernel=kernel, facts=BuildFacts(registers=90))
    dispatch = _dispatch("bf16t_bf16n_bf16t")
    tile = tiles.tile_of(SMALL, dispatch.operation)
    device = open_device(Target(TargetKind.CPU))
    executable = GluonExecutable(dispatch, tile, built, device)
    inputs = [device.allocate(spec) for spec in dispatch.operation.inputs]
    output = device.allocate(dispatch.operation.output)
    assert executable.run(inputs, output) is output
    ((*described, m, n, k, block_m, _, _, group, stages, warps, b_row_major),) = launches
    assert [list(one.shape) for one in described] == [[96, 40], [72, 40], [96, 72]]
    assert [one.base.data_ptr() for one in described] == [
        tensor.data_ptr() for tensor in (*inputs, output)
    ]
    assert (m, n, k, block_m, group, stages, warps, b_row_major) == (96, 72, 40, 64, 8, 4, 4, False)
    with pytest.raises(LaunchError, match="aligned to 16 bytes"):
        executable.run([torch.empty(1 + 96 * 40, dtype=torch.bfloat16)[1:], inputs[1]], output)
