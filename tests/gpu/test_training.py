"""The training workload on real GPUs: one rank, and two with NCCL or RCCL."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmetry.domain.dispatch import Target
from gemmetry.formats.events import GpuKind, TraceRows
from gemmetry.formats.kineto import read_kineto

pytestmark = pytest.mark.gpu

SMALL = (
    "distributed.backend=nccl", "model.model_dim=512", "model.mlp_hidden_dim=2048",
    "training.batch_size=16", "dataset.sequence_length=128",
    # The rate of `tiny` is for its narrow model: at this width its losses rise.
    "optimizer.lr=0.00005",
)  # fmt: skip


def train(folder: Path, ranks: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        "--nproc-per-node", str(ranks), "-m", "gemmetry.sweeps.workload",
        "--config", "tiny", "--output", str(folder), "--override", *SMALL, *arguments,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def trained(folder: Path, ranks: int, *arguments: str) -> tuple[list[float], dict[str, Any]]:
    ended = train(folder, ranks, *arguments)
    assert ended.returncode == 0, ended.stderr
    losses = json.loads((folder / "losses.json").read_text())["losses"]
    return losses, json.loads((folder / "facts_rank0.json").read_text())


def read(folder: Path, rank: int) -> TraceRows:
    path = folder / "torch_profiler" / f"rank{rank}" / "customer_trace.pt.trace.json.gz"
    with gzip.open(path) as file:
        rows = read_kineto(file)
    assert rows is not None and not rows.partial
    return rows


def kernels(rows: TraceRows) -> set[str]:
    is_kernel = rows.gpu.kind == GpuKind.KERNEL
    return {rows.names[index] for index in np.unique(rows.gpu.name[is_kernel])}


def of_communication(rows: TraceRows) -> set[str]:
    return {name for name in kernels(rows) if "nccl" in name.lower() or "rccl" in name.lower()}


def test_one_gpu_trains_alone_with_the_same_losses_again(gpu: Target, tmp_path: Path) -> None:
    losses, facts = trained(tmp_path / "a", 1)
    assert facts["parallel"] == "none"
    assert facts["ranks"][0]["device"] != "cpu"
    assert facts["environment"]["driver"]
    assert losses[-1] < losses[0]
    assert kernels(read(tmp_path / "a", 0))
    assert not of_communication(read(tmp_path / "a", 0))
    assert trained(tmp_path / "b", 1)[0] == losses


@pytest.mark.parametrize("mode", ["ddp", "fsdp"])
def test_two_gpus_reduce_and_give_the_same_losses_again(
    mode: str, two_gpus: None, tmp_path: Path
) -> None:
    losses, facts = trained(tmp_path / "a", 2, f"distributed.mode={mode}")
    assert facts["environment"]["packages"].keys() & {"nccl", "rccl"}
    assert facts["path"] == {"requested": "kernel", "registered_buffers": 0}
    for rank in (0, 1):
        rows = read(tmp_path / "a", rank)
        assert (rows.rank, rows.world_size) == (rank, 2)
        assert of_communication(rows)
    assert trained(tmp_path / "b", 2, f"distributed.mode={mode}")[0] == losses


@pytest.mark.alone
def test_a_straggler_waits_in_a_kernel_of_its_rank(two_gpus: None, tmp_path: Path) -> None:
    trained(tmp_path, 2, "--straggle", "1:20")
    longest = []
    for rank in (0, 1):
        rows = read(tmp_path, rank)
        is_spin = ["spin_kernel" in rows.names[name] for name in rows.gpu.name]
        longest.append(int(rows.gpu.duration_ns[np.array(is_spin, bool)].max(initial=0)))
    assert longest[0] == 0
    # The kernel counts cycles, and the clock varies.
    assert 10e6 < longest[1] < 40e6


@pytest.mark.parametrize("path", ["symmetric", "copy_engine"])
def test_registered_buffers_gather_the_same_parameters(
    path: str, two_gpus: None, tmp_path: Path
) -> None:
    fsdp = ("distributed.mode=fsdp",)
    ended = train(tmp_path / path, 2, *fsdp, "--path", path)
    if "is not possible" in ended.stderr:
        pytest.skip(ended.stderr.partition("is not possible: ")[2].partition("\n")[0])
    assert ended.returncode == 0, ended.stderr
    facts = json.loads((tmp_path / path / "facts_rank0.json").read_text())
    assert facts["path"]["registered_buffers"] > 0
    losses = json.loads((tmp_path / path / "losses.json").read_text())["losses"]
    assert losses == trained(tmp_path / "kernel", 2, *fsdp)[0]


def test_more_ranks_than_gpus_are_refused(gpu: Target, tmp_path: Path) -> None:
    import torch

    count = torch.cuda.device_count()
    ended = train(tmp_path, count + 1)
    assert ended.returncode != 0
    assert f"rank {count} has no GPU: it is number {count + 1}" in ended.stderr


def test_a_model_that_does_not_fit_is_refused(gpu: Target, tmp_path: Path) -> None:
    ended = train(tmp_path, 1, "model.vocab_size=1000000000000")
    assert ended.returncode != 0
    assert "too little memory: rank 0 needs at least" in ended.stderr
