"""The Gluon kernel on a Hopper GPU: every tile is proved at level standard, tails included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind
from gemmetry.domain.errors import UnsupportedError, Verification
from gemmetry.domain.names import parse_operation
from gemmetry.domain.operation import Operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.providers.gluon_provider import provider as tiles
from gemmetry.providers.gluon_provider.provider import GluonProvider
from gemmetry.verification.context import Companions
from gemmetry.verification.protocol import verify

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(tiles.missing_triton() is not None, reason=str(tiles.missing_triton())),
]

SHAPE = "matmul_328x264x200"
CONFIGURATIONS = list(tiles.configurations(parse_operation(f"{SHAPE}_bf16t_bf16n_bf16t")))
FORMATS = ("bf16t_bf16n_bf16t", "bf16t_bf16t_f32t", "f16t_f16n_f32t", "f16t_f16t_f16t")


@pytest.mark.parametrize("formats", FORMATS)
@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda one: one.name)
def test_every_tile_is_proved(
    tmp_path: Path, gpu: Target, configuration: Configuration, formats: str
) -> None:
    if gpu.kind is not TargetKind.CUDA or gpu.architecture != tiles.ARCHITECTURE:
        pytest.skip(f"the kernel is for Hopper, this is {gpu}")
    operation = parse_operation(f"{SHAPE}_{formats}")
    workspace = Workspace(generated=tmp_path / "generated")

    def build(other: Operation) -> Any:
        try:
            return GluonProvider().build(Dispatch(other, configuration, "gluon", gpu), workspace)
        except UnsupportedError:
            return None

    executable = build(operation)
    assert executable.facts.matrix_instruction == "wgmma"
    assert executable.facts.registers and not executable.facts.spill_bytes
    inputs = make_inputs(operation, distribution="uniform_signed", seed=11)
    verdict = verify(
        executable,
        operation,
        inputs,
        compute_reference(operation, inputs),
        companions=Companions(
            build=build,
            tile=configuration.tile,
            stages=int(configuration.parameters["stages"]),
            processors=executable.device.multiprocessors,
        ),
    )
    executable.close()
    failed = {check: text for check, text in verdict.checks.items() if text.startswith("failed")}
    assert verdict.status is not Verification.FAILED, failed
