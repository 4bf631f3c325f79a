from __future__ import annotations

import json
from pathlib import Path

import pytest


def test_compiling_times_nothing(cli):
    arguments = ("compile", "--providers", "null", "--device", "null", "--shapes", "8x8x8")
    ended = cli(*arguments, "--json")
    assert ended.status == 0
    for record in json.loads(ended.stdout)["records"]:
        assert record["outcome"] == "ok"
        assert record["median_ns"] is None
        assert record["verification"] == "not_verified"
    assert Path("gemmetry-out").is_dir()


def test_it_has_an_experiment_of_its_own(cli):
    common = ("--providers", "null", "--device", "null", "--shapes", "8x8x8", "--dry-run", "--json")
    compiled = json.loads(cli("compile", *common).stdout)
    profiled = json.loads(cli("profile", *common).stdout)
    assert compiled["experiment"] != profiled["experiment"]
    assert compiled["experiment"].startswith("gemmetry-out/compile-")


def test_iree_compiles_for_the_cpu(cli):
    pytest.importorskip("iree.compiler", reason="the iree extra is not installed")
    ended = cli("compile", "--device", "cpu", "--shapes", "64x64x64", "--dtypes", "f32",
                "--default-config", "--json", "--generated-dir", "out")  # fmt: skip
    assert ended.status == 0, ended.stderr
    (record,) = json.loads(ended.stdout)["records"]
    assert record["outcome"] == "ok"
    assert list(Path("out/generated").rglob("*.mlir"))


def test_the_target_is_told(cli):
    ended = cli("compile", "--providers", "null", "--device", "null", "--shapes", "8x8x8")
    assert ended.status == 0
    assert "target" in ended.stdout.split()


def test_the_device_of_the_default_set_is_told(cli):
    pytest.importorskip("iree.compiler", reason="the iree extra is not installed")
    ended = cli("compile", "--shapes", "64x64x64", "--dry-run")
    assert "cuda-sm_80" in ended.stderr
