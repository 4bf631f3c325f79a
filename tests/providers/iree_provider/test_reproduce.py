"""The printed commands, run as they are printed."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch
from gemmetry.domain.names import parse_operation
from gemmetry.domain.target import Target, TargetKind
from gemmetry.numerics.inputs import make_inputs
from gemmetry.providers.iree_provider import PROVIDER
from gemmetry.providers.iree_provider.reproduce import write_inputs

CPU = Target(TargetKind.CPU)


@pytest.mark.parametrize("types", ["f32t_f32t_f32t", "bf16t_bf16t_bf16t_bias"])
def test_the_commands_work_as_they_are_printed(tmp_path: Path, types: str):
    operation = parse_operation(f"matmul_32x48x64_{types}")
    dispatch = Dispatch(operation, Configuration(), "iree", CPU)
    (compiled,) = PROVIDER().compile([dispatch], Workspace(generated=tmp_path / "generated"))
    facts = compiled.facts
    assert facts.source_path.startswith("generated/linalg/matmul/")
    folder = (tmp_path / facts.binary_path).parent
    arrays = make_inputs(operation, distribution="offset_uniform", seed=1)
    written = write_inputs(operation, arrays, folder / "inputs")
    assert [path.suffix for path in written] == ([".bin"] * 3 if "bias" in types else [".npy"] * 2)

    path = f"{sysconfig.get_path('scripts')}:/usr/bin:/bin"
    for command in (facts.compile_command, f"{facts.run_command} --benchmark_min_time=1x"):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env={"PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / f"{dispatch.name}.vmfb").stat().st_size > 0
    assert dispatch.name in done.stdout
