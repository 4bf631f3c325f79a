"""The printed commands, run as they are printed."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind
from gemmetry.domain.names import parse_operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.providers.iree_provider import batches as input_files
from gemmetry.providers.iree_provider.provider import PROVIDER

CPU = Target(TargetKind.CPU)


@pytest.mark.parametrize("types", ["f32t_f32t_f32t", "bf16t_bf16t_bf16t_bias"])
def test_the_commands_work_as_they_are_printed(tmp_path: Path, types: str):
    operation = parse_operation(f"matmul_32x48x64_{types}")
    dispatch = Dispatch(operation, Configuration(), "iree", CPU)
    (compiled,) = PROVIDER().compile([dispatch], Workspace(generated=tmp_path / "generated"))
    facts = compiled.facts
    assert facts.source_path.startswith("generated/linalg/matmul/")
    inputs = (tmp_path / facts.binary_path).parent / "inputs"
    assert not inputs.exists()

    path = f"{sysconfig.get_path('scripts')}:/usr/bin:/bin"
    running = facts.run_command.replace("{seed}", "7").replace("{distribution}", "normal")
    for command in (facts.compile_command, f"{running} --benchmark_min_time=1x"):
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
    assert done.stderr.count("Warning") == 0
    suffixes = sorted(path.suffix for path in inputs.iterdir())
    assert suffixes == ([".bin"] * 3 if "bias" in types else [".npy"] * 2)
    lhs, *_ = make_inputs(operation, distribution="normal", seed=7)
    content = next(path for path in inputs.iterdir() if path.stem == "lhs").read_bytes()
    assert content.endswith(lhs.tobytes())


def test_input_files_hold_the_inputs_of_seed_and_distribution(tmp_path: Path):
    name = "matmul_32x48x64_f32t_f32t_f32t"
    assert input_files.main([name, str(tmp_path), "7", "uniform"]) == 0
    expected = make_inputs(parse_operation(name), distribution="uniform", seed=7)
    for role, array in zip(("lhs", "rhs"), expected, strict=True):
        np.testing.assert_array_equal(np.load(tmp_path / f"{role}.npy"), array)


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["matmul_1x1x1_f32t_f32t_f32t"], 2, "FOLDER"),
        (["matmul_nonsense", "x"], 2, "error: "),
        (["matmul_1x1x1_f32t_f32t_f32t", "x", "seven"], 2, "'seven' is not a whole number"),
        (["matmul_1x1x1_f32t_f32t_f32t", "x", "7", "nothing"], 2, "nothing"),
        (["matmul_1x1x1_f32t_f32t_f32t", "/dev/null/x"], 3, "cannot write /dev/null/x"),
    ],
)
def test_mistakes_set_the_exit_status(arguments, status, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert input_files.main(arguments) == status
    assert words in capsys.readouterr().err
