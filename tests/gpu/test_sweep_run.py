"""``gemmetry sweep run`` on GPUs: the settings of each point reach the communication library."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gemmetry.cli.main import run
from gemmetry.domain.dispatch import Target

pytestmark = pytest.mark.gpu

SMALL = (
    "distributed.backend=nccl", "model.model_dim=512", "model.mlp_hidden_dim=2048",
    "training.batch_size=16", "dataset.sequence_length=128", "distributed.bucket_cap_mb=32",
)  # fmt: skip


def largest_collective(folder: Path) -> dict[str, Any]:
    """The launch of the collective with the most elements on rank 0."""
    (path,) = (folder / "torch_profiler" / "rank0").iterdir()
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    collectives = [
        event for event in events
        if event.get("cat") == "kernel" and "In msg nelems" in event.get("args", {})
    ]  # fmt: skip
    found: dict[str, Any] = max(collectives, key=lambda event: event["args"]["In msg nelems"])
    return found


def test_channels_reach_the_library(gpu: Target, tmp_path: Path) -> None:
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip("two GPUs are needed for collectives")
    sweep = tmp_path / "sweep"
    status = run(
        ["sweep", "run", "--channels", "1,4", "--threads", "256", "--axis", "NCCL_ALGO=Ring",
         "--config", "tiny", "--override", *SMALL, "--nproc", "2", "-o", str(sweep)]
    )  # fmt: skip
    assert status == 0
    for channels in (1, 4):
        folder = sweep / f"256thread/nccl_{channels}channels/NCCL_ALGO=Ring"
        point = json.loads((folder / "point.json").read_text())
        assert point["outcome"] == "ok"
        assert point["backend"] == "nccl"
        if point["library"] == "nccl":
            assert largest_collective(folder)["args"]["grid"][0] == channels
    manifest = json.loads((sweep / "sweep.json").read_text())
    assert manifest["environment"]["driver"]
    assert manifest["topology"]
    assert manifest["sessions"][0]["clocks"]
