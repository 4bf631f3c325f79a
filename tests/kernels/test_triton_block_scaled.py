"""The Triton kernel for blocks with scale factors in Triton's interpreter, in a process of its own.

Triton decides whether it interprets when it is first imported, so the check runs as a script.
"""

from __future__ import annotations

import importlib.util
from importlib.metadata import version

import pytest
from packaging.version import Version

SCRIPT = """
import os

os.environ["TRITON_INTERPRET"] = "1"
import numpy as np

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.numerics.bounds import bound_rule
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference, to_logical
from gemmetry.numerics.storage import to_float64
from gemmetry.providers.triton_provider.provider import TritonProvider

provider, target = TritonProvider({"interpret": True}), Target(TargetKind.CPU)
for name in (
    "matmul_33x17x160_e4m3t_e5m2n_f32t_vs1x32",
    "matmul_40x36x256_e4m3t_e4m3n_f16n_vs1x128_vs128x128_alpha0p5_beta2_bias",
    "batch_matmul_2x17x33x64_e4m3t_e4m3n_f32t_vs32_e8m0",
    "matmul_18x20x96_e2m1t_e4m3n_f32t_vs32_e8m0",
    "matmul_18x20x80_e2m1t_e2m1n_f16t_vs16_e8m0",
    "matmul_18x20x80_e2m1t_e2m1n_f32t_vs16_e4m3",
):
    operation = parse_operation(name)
    assert provider.supports(operation, target) is None, name
    inputs = make_inputs(operation, distribution="uniform_signed", seed=5)
    reference = compute_reference(operation, inputs)
    bound = bound_rule(operation, reference).warn(reference)
    seen = set()
    for configuration in provider.configurations(operation, target):
        method = configuration.parameters["method"]
        if method in seen:
            continue
        seen.add(method)
        dispatch = Dispatch(operation, configuration, "triton", target)
        executable = provider.build(dispatch, Workspace(generated="unused"))
        device = executable.device
        buffers = [device.upload(a, s) for a, s in zip(inputs, operation.inputs, strict=True)]
        output = device.allocate_with_red_zones(operation.output, zone_bytes=256, offset_bytes=4)
        device.fill_bytes(output, 0xFF)
        executable.run(buffers, output)
        got = to_float64(to_logical(device.download(output, operation.output), operation.output))
        assert (np.abs(got - reference.value) <= bound).all(), (name, method)
    print(name.rsplit("t_vs")[0].split("_")[0], sorted(seen))
"""

EXPECTED = """\
matmul ['promoted']
matmul ['promoted']
batch ['dotscaled', 'widened']
matmul ['dotscaled', 'widened']
matmul ['widened']
matmul ['widened']
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_every_method_with_tails_batches_and_an_epilogue(forked) -> None:
    if Version(version("triton")) < Version("3.9"):
        pytest.skip("Triton 3.7.1 cannot interpret its own dot_scaled")
    run = forked(SCRIPT)
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout == EXPECTED
