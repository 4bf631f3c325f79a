"""One plan on two GPUs."""

from __future__ import annotations

import json

import pytest

from gemmetry.cli.main import run

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.device_count() < 2, reason="needs two GPUs"
    ),
]


def test_two_gpus_share_a_plan_and_no_operation_is_split(tmp_path, capsys):
    command = [
        "profile", "--providers", "torch", "--device", "cuda:0", "--devices", "cuda:0,cuda:1",
        "--dtypes", "bf16", "--shapes", "1024x1024x1024,1024x2048x1024,2048x1024x1024",
        "--shapes", "2048x2048x1024", "--time-budget", "0.2s", "--json",
        "--experiment", str(tmp_path / "experiment"),
    ]  # fmt: skip
    assert run(command) == 0
    records = json.loads(capsys.readouterr().out)["records"]
    assert {record["outcome"] for record in records} == {"ok"}
    assert {record["device"] for record in records} == {"cuda:0", "cuda:1"}
    assert len({identifier for record in records for identifier in record["device_ids"]}) == 2
    by_operation = {}
    for record in records:
        by_operation.setdefault(record["operation"], set()).add(*record["device_ids"])
    assert all(len(devices) == 1 for devices in by_operation.values())
