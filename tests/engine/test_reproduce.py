from __future__ import annotations

import shlex

from gemmetry.domain.settings import RunSettings
from gemmetry.domain.target import Target, TargetKind
from gemmetry.engine.reproduce import reproduction_command
from gemmetry.store.rows import Lane


def test_the_command_names_everything_that_decides():
    lane = Lane(1, "user", {"kernel": "my file.py:gemm"}, Target(TargetKind.CUDA, "sm_90", 1))
    command = reproduction_command(lane, "matmul_x", RunSettings(seed=7, distribution="normal"))
    assert shlex.split(command) == [
        "gemmetry", "profile", "--providers", "user", "--kernel", "my file.py:gemm",
        "--dispatches", "matmul_x", "--device", "cuda:1", "--seed", "7",
        "--distribution", "normal", "--fresh",
    ]  # fmt: skip


def test_several_kernels_are_joined():
    lane = Lane(1, "user", {"kernel": ["a.py:f", "b.py:g"]}, Target(TargetKind.CPU))
    command = reproduction_command(lane, "matmul_x", RunSettings())
    assert "--kernel a.py:f,b.py:g " in command


def test_a_compile_only_target_is_named_by_its_architecture():
    lane = Lane(1, "iree", {}, Target(TargetKind.CUDA, "sm_80", None))
    assert "--device cuda-sm_80 " in reproduction_command(lane, "x", RunSettings())
