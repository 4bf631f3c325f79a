"""The example in Gluon on a Hopper GPU: every tile is proved at level standard, tails included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch, Target, TargetKind, parse_operation
from gemmetry.domain.errors import UnsupportedError, Verification
from gemmetry.domain.operation import Operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.providers.user_provider.provider import UserProvider
from gemmetry.verification.companions import Companions
from gemmetry.verification.protocol import verify

EXAMPLE = Path(__file__).parents[2] / "examples" / "gluon_gemm.py"
FORMATS = ("bf16t_bf16n_bf16t", "bf16t_bf16t_f32t", "f16t_f16n_f32t", "f16t_f16t_f16t")

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("formats", FORMATS)
def test_every_tile_is_proved(tmp_path: Path, gpu: Target, formats: str) -> None:
    pytest.importorskip("triton.experimental.gluon.language.nvidia.hopper")
    if gpu.kind is not TargetKind.CUDA or gpu.architecture != "sm_90":
        pytest.skip(f"the kernel is for Hopper, this is {gpu}")
    operation = parse_operation(f"matmul_328x264x200_{formats}")
    workspace = Workspace(generated=tmp_path / "generated")
    provider = UserProvider({"kernel": f"{EXAMPLE}:matmul"})
    inputs = make_inputs(operation, distribution="uniform_signed", seed=11)
    reference = compute_reference(operation, inputs)
    configurations = list(provider.configurations(operation, gpu))
    assert configurations
    for configuration in configurations:

        def build(other: Operation, configuration: Any = configuration) -> Any:
            try:
                return provider.build(Dispatch(other, configuration, "user", gpu), workspace)
            except UnsupportedError:
                return None

        executable = build(operation)
        companions = Companions(
            build=build,
            tile=configuration.tile,
            stages=int(configuration.parameters["stages"]),
            processors=executable.device.multiprocessors,
        )
        verdict = verify(executable, operation, inputs, reference, companions=companions)
        executable.close()
        failed = {name: text for name, text in verdict.checks.items() if text.startswith("failed")}
        assert verdict.status is not Verification.FAILED, (configuration.name, failed)
