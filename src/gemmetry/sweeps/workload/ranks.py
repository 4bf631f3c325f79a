"""Joining the other ranks: process group, device and determinism."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist

from gemmetry.domain.errors import RequestError
from gemmetry.sweeps.training.keys import WorkloadConfig


@dataclass(frozen=True, slots=True)
class Ranks:
    """This rank among the others."""

    rank: int
    size: int
    local_size: int
    """Ranks on this host."""
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether it is the rank that prints and writes."""
        return self.rank == 0

    @property
    def on_gpu(self) -> bool:
        """Whether it trains on a GPU."""
        return bool(self.device.type == "cuda")


def join(config: WorkloadConfig) -> Ranks:
    """Join the process group that torchrun's environment describes; without that environment, one
    rank alone.

    Raises:
        RequestError: nccl was requested and this rank has no GPU.
    """
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    backend = config.distributed.backend
    device = torch.device("cpu")
    if backend == "nccl":
        _check_gpu(rank, local_rank)
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    if config.training.deterministic:
        # cuBLAS is deterministic only with a workspace of a fixed size:
        # https://docs.nvidia.com/cuda/cublas/#results-reproducibility
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        # Not `use_deterministic_algorithms`, which does the same and loads the compiler.
        torch.set_deterministic_debug_mode("error")
        # Else every new tensor would be filled, by kernels that training does not need.
        torch.utils.deterministic.fill_uninitialized_memory = False
    alone = {} if "RANK" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group(backend, device_id=device if backend == "nccl" else None, **alone)
    return Ranks(rank, size, int(os.environ.get("LOCAL_WORLD_SIZE", 1)), device)


def _check_gpu(rank: int, local_rank: int) -> None:
    if not torch.cuda.is_available():
        raise RequestError(
            "distributed.backend is nccl, but torch sees no GPU",
            hint="On the CPU, use --override distributed.backend=gloo, or --config tiny.",
        )
    count = torch.cuda.device_count()
    if local_rank >= count:
        raise RequestError(
            f"rank {rank} has no GPU: it is number {local_rank + 1} on this host, which shows "
            f"{count}",
            hint=f"Use torchrun --nproc-per-node {count}.",
        )
