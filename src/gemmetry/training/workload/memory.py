"""A lower bound of the memory that training needs, so that a hopeless run ends at once."""

from __future__ import annotations

import torch

from gemmetry.domain import units
from gemmetry.hardware.host import free_memory_bytes
from gemmetry.training.keys import WorkloadConfig
from gemmetry.training.workload.failures import too_little_memory
from gemmetry.training.workload.model import Transformer, count_parameters
from gemmetry.training.workload.ranks import Ranks

_STATE_BYTES = 16
"""Bytes that each parameter takes: its value, its gradient and AdamW's two moments, in fp32."""


def needed_bytes(config: WorkloadConfig, parameters: int, ranks: int) -> int:
    """The fewest bytes that each of the `ranks` needs: for the model's `parameters` with their
    state, the batch, and what the layers of one micro-batch keep for the backward pass.

    A layer keeps at least the inputs of its GEMMs, attention's three and the activation's: six
    times the model's width and twice the MLP's, for each token.
    """
    shards = ranks if config.distributed.mode == "fsdp" else 1
    keys = config.model
    tokens = config.training.micro_batch * config.dataset.sequence_length
    inputs = 4 * (keys.num_dense_features * keys.dense_dim + 1) + 8 * config.dataset.sparse_features
    width = 2 if config.training.mixed_precision == "bf16" else 4
    kept = keys.num_layers * (6 * keys.model_dim + 2 * keys.mlp_hidden_dim) * width
    batch = config.training.gradient_accumulation * inputs
    return parameters * _STATE_BYTES // shards + tokens * (batch + kept)


def check_memory(config: WorkloadConfig, ranks: Ranks) -> None:
    """Compare the lower bound with what is free.

    Raises:
        RequestError: it cannot fit.
    """
    with torch.device("meta"):
        parameters = count_parameters(Transformer(config.model))
    needed = needed_bytes(config, parameters, ranks.size)
    free = (
        torch.cuda.mem_get_info(ranks.device)[0]
        if ranks.on_gpu
        else free_memory_bytes() // ranks.local_size
    )
    if needed > free:
        where = "the GPU" if ranks.on_gpu else "the host, for each rank,"
        raise too_little_memory(
            f"rank {ranks.rank} needs at least {units.format_bytes(needed)}, and {where} has "
            f"{units.format_bytes(free)} free"
        )
