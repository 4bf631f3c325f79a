from __future__ import annotations

import json

from gemmetry.hardware.detect import GpuFacts, GpuList


def test_no_line_but_a_long_name_exceeds_80_columns(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = cli("counters", "metrics", "--chip", "gh100").stdout.splitlines()
    assert len(lines) > 300
    assert [line for line in lines if len(line) > 80 and len(line.split()) > 1] == []


def test_the_default_is_the_gpu_of_this_machine(cli, monkeypatch):
    gpu = GpuFacts(kind="cuda", index=0, name="NVIDIA H200", architecture="sm_90")
    monkeypatch.setattr("gemmetry.counters.api.nvidia_gpus", lambda: GpuList((gpu,)))
    ended = cli("counters", "metrics", "--concept", "stall_gmma", "--json")
    assert json.loads(ended.stdout)["metrics"][0]["chip"] == "GH100"


def test_without_a_gpu_a_chip_has_to_be_given(cli, monkeypatch):
    for vendor in ("nvidia_gpus", "amd_gpus"):
        monkeypatch.setattr(f"gemmetry.counters.api.{vendor}", lambda: GpuList((), "none"))
    ended = cli("counters", "metrics")
    assert ended.status == 2
    assert "no GPU" in ended.stderr and "--chip gh100" in ended.stderr


def test_unknown_names_suggest_similar_ones(cli):
    chip = cli("counters", "metrics", "--chip", "gh10")
    assert chip.status == 2 and "gh100" in chip.stderr
    concept = cli("counters", "metrics", "--chip", "gh100", "--concept", "nothing*")
    assert concept.status == 2 and "no concept matches 'nothing*'" in concept.stderr
