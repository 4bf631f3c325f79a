"""What was trained, with which libraries and on which devices, for the reader of the traces."""

from __future__ import annotations

import dataclasses
import os
import socket
from typing import Any

import torch
import torch.distributed as dist

from gemmetry.hardware.environment import capture_environment
from gemmetry.training.keys import WorkloadConfig, keys_without_effect
from gemmetry.training.workload.model import count_parameters
from gemmetry.training.workload.parallel import Parallel
from gemmetry.training.workload.ranks import Ranks

SCHEMA_VERSION = 1


def collect_facts(config: WorkloadConfig, parallel: Parallel, ranks: Ranks) -> dict[str, Any]:
    """JSON values about this run. All ranks must call it, as each contributes its device.

    The environment, such as driver and variables, is that of this rank's host.
    """
    own = {
        "rank": ranks.rank,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "device": torch.cuda.get_device_name(ranks.device) if ranks.on_gpu else "cpu",
        "device_index": ranks.device.index if ranks.on_gpu else None,
    }
    each: list[Any] = [None] * ranks.size
    dist.all_gather_object(each, own)
    packages = {"torch": str(torch.__version__)}
    if ranks.on_gpu:
        packages["rccl" if torch.version.hip else "nccl"] = ".".join(
            map(str, torch.cuda.nccl.version())
        )
    return {
        "schema_version": SCHEMA_VERSION,
        "world_size": ranks.size,
        "backend": dist.get_backend(),
        "parallel": parallel.name,
        "parameters": count_parameters(parallel.model),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "ranks": each,
        "environment": dataclasses.asdict(capture_environment(packages)),
        "config": config.model_dump(mode="json"),
        "keys_without_effect": keys_without_effect(config),
    }
