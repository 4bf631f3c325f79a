from __future__ import annotations

import dataclasses
import json
import shlex

import pytest

from gemmetry.cli.main import run
from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import Stage
from gemmetry.domain.settings import RunSettings, TraceSchedule
from gemmetry.engine.candidates import reproduction_command
from gemmetry.engine.schema import Lane


def test_the_command_names_everything_that_decides_and_nothing_else():
    lane = Lane(1, "user", {"kernel": "my file.py:gemm"}, Target(TargetKind.CUDA, "sm_90", 1))
    settings = RunSettings(seed=7, distribution="normal", save_commands=True, jobs=3)
    assert shlex.split(reproduction_command(lane, "matmul_x", settings)) == [
        "gemmetry", "profile", "--providers", "user", "--kernel", "my file.py:gemm",
        "--dispatches", "matmul_x", "--device", "cuda:1", "--seed", "7",
        "--distribution", "normal", "--fresh",
    ]  # fmt: skip


PRODUCT = "matmul_8x8x8_f32t_f32t_f32t"


@pytest.mark.parametrize(("configuration", "kernels", "alone"), [
    ("g_default", "b.py:g", "default"),
    ("f_tile24", "a.py:f", "tile24"),
    ("f_h_fast", "a.py:f,b.py:g,c.py:f_h", "f_h_fast"),  # of f or of f_h
    ("f_bias_1", "a.py:f,b.py:g,c.py:f_h", "f_bias_1"),  # matmul_…_bias is another operation
    ("other", "a.py:f,b.py:g,c.py:f_h", "other"),
])  # fmt: skip
def test_of_several_kernels_the_one_of_the_dispatch_is_named(configuration, kernels, alone):
    options = {"kernel": ["a.py:f", "b.py:g", "c.py:f_h"]}
    lane = Lane(1, "user", options, Target(TargetKind.CPU))
    words = shlex.split(reproduction_command(lane, f"{PRODUCT}_{configuration}", RunSettings()))
    assert words[words.index("--kernel") + 1] == kernels
    assert words[words.index("--dispatches") + 1] == f"{PRODUCT}_{alone}"


def test_a_compile_only_target_is_named_by_its_architecture():
    lane = Lane(1, "iree", {}, Target(TargetKind.CUDA, "sm_80", None))
    assert "--device cuda-sm_80 " in reproduction_command(lane, "x", RunSettings())


CHANGED = RunSettings(
    quick=True, energy=True, seed=7, distribution="normal", verification_level="paranoid",
    row_invariance="report", verification_providers=("device", "numpy"), judge_rivals=True,
    sanitizers=("memcheck", "racecheck"), regime="sustained", interval_width=0.1,
    time_budget_s=0.25, warmup_iterations=1, min_samples=3, max_samples=30, repetitions=5,
    launches_per_sample=2, cold_cache=False, max_seconds_per_launch=20.5,
    deadlines_s={**RunSettings().deadlines_s, Stage.VERIFY: 300.0, Stage.COMPILE: 0.5},
    memory_budget_bytes=1 << 30, threads=2, timing_method="events", processes=4, warmup_s=0.5,
    race=False, launches="back_to_back",
)  # fmt: skip


@pytest.fixture
def planned(tmp_path, monkeypatch, capsys):
    """The plan's document that the command line makes of a command, by ``--dry-run``."""
    monkeypatch.chdir(tmp_path)

    def go(command):
        assert run([*shlex.split(command)[1:], "--dry-run", "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return go


def test_the_dispatch_of_one_of_several_kernels_is_done_again_as_it_was(tmp_path, planned):
    file = tmp_path / "my kernels" / "mine.py"
    file.parent.mkdir()
    file.write_text("def gemm(a, b, *, tile):\n    return a @ b\n\ng = gemm\n")
    options = {"kernel": f"{file}:g", "configurations": [{"tile": 24}, {"tile": 48}]}
    several = {**options, "kernel": [f"{file}:gemm", f"{file}:g"]}
    lane = Lane(1, "user", several, Target(TargetKind.CPU))
    found = planned(reproduction_command(lane, f"{PRODUCT}_g_tile48", CHANGED))
    assert (found["dispatches"], found["providers"][0]["unsupported"]) == (1, 0)
    (provider,) = found["plan"]["providers"]
    assert (provider["name"], provider["options"]) == ("user", options)
    assert [target["name"] for target in found["plan"]["targets"]] == ["cpu"]
    how = found["plan"]["settings"]
    wanted = {field.name: getattr(CHANGED, field.name) for field in dataclasses.fields(CHANGED)}
    deadlines = wanted["deadlines_s"].items()
    wanted["deadlines_s"] = {str(stage): s for stage, s in deadlines if stage is not Stage.TRACE}
    for name in (how.keys() & wanted.keys()) - {"tags"}:
        value = wanted[name]
        assert how[name] == (list(value) if isinstance(value, tuple) else value), name


def test_what_verification_decided_is_verified_again_without_what_only_timing_needs():
    lane = Lane(1, "null", {}, Target(TargetKind.NULL, "", 0))
    deadlines = {**RunSettings().deadlines_s, Stage.VERIFY: 9.0, Stage.MEASURE: 8.0}
    settings = RunSettings(
        time_budget_s=1.0, regime="sustained", judge_rivals=True, seed=7, deadlines_s=deadlines
    )
    words = shlex.split(reproduction_command(lane, "x", settings, verify_only=True))
    assert words == [
        "gemmetry", "verify", "run", "--providers", "null", "--dispatches", "x",
        "--device", "null:0", "--seed", "7", "--distribution", "offset_uniform",
        "--set", "deadlines.verify=9.0", "--fresh",
    ]  # fmt: skip
    only = reproduction_command(lane, "x", RunSettings(measure=False))
    assert only.startswith("gemmetry verify run ")
    assert "profiling" not in only


def test_traces_are_recorded_again_with_their_schedule():
    lane = Lane(1, "torch", {}, Target(TargetKind.CPU))
    schedule = TraceSchedule(wait_steps=0, warmup_steps=2, active_steps=4, repeats=6)
    settings = RunSettings(
        measure=False, trace=schedule, verification_level="quick", warmup_iterations=9,
        launches_per_sample=4,
    )  # fmt: skip
    assert shlex.split(reproduction_command(lane, "x", settings)) == [
        "gemmetry", "trace", "record", "--wait-steps", "0", "--warmup-iterations", "2",
        "--active-steps", "4", "--benchmark-repetitions", "6", "--providers", "torch",
        "--dispatches", "x", "--device", "cpu", "--seed", "42",
        "--distribution", "offset_uniform", "--verification-level", "quick", "--fresh",
    ]  # fmt: skip
    wrong = reproduction_command(lane, "x", settings, verify_only=True)
    assert wrong.startswith("gemmetry verify run --providers torch")


def test_every_setting_that_can_change_an_outcome_is_reported():
    """A new setting must be given by the command, or be listed here as one that need not be."""
    fields = [field.name for field in dataclasses.fields(RunSettings)]
    usual = RunSettings()
    changed = {name for name in fields if getattr(CHANGED, name) != getattr(usual, name)}
    flags = {"verify", "measure", "trace"}
    not_needed = {"devices", "executor", "executor_options", "shard", "jobs", "force_compile",
                  "save_commands", "tags"}  # fmt: skip
    assert changed | flags | not_needed == set(fields)
