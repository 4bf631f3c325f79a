"""Spreading the model over the ranks with DDP or FSDP2, and when gradients are reduced."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gemmetry.training.keys import DistributedKeys, FsdpKeys, WorkloadConfig
from gemmetry.training.workload.model import Transformer
from gemmetry.training.workload.ranks import Ranks

_FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Parallel:
    """A model that is spread over the ranks."""

    model: nn.Module
    name: str
    """DDP, FSDP2, or none for one rank."""
    micro_batch: Callable[[bool], AbstractContextManager[Any]]
    """Whether it is the last micro-batch of a step -> the context of its forward and backward
    pass. Gradients are reduced in the last one."""
    forward: Callable[[], AbstractContextManager[Any]]
    """Context of the forward pass, in which the GEMMs have the requested format."""


def spread(config: WorkloadConfig, ranks: Ranks) -> Parallel:
    """The model with parameters that follow from the seed, spread as ``distributed.mode`` states.
    One rank alone keeps the model as it is: there is nothing to reduce."""
    torch.manual_seed(config.dataset.seed)
    with ranks.device:
        model = Transformer(config.model)
    torch.manual_seed(config.dataset.seed + 1 + ranks.rank)  # Dropout differs between ranks.
    half = config.training.mixed_precision == "bf16"
    forward = (lambda: torch.autocast(ranks.device.type, torch.bfloat16)) if half else nullcontext
    if ranks.size == 1:
        return Parallel(model, "none", lambda _: nullcontext(), forward)
    if config.distributed.mode == "ddp":
        ddp = _ddp(model, config.distributed, ranks)
        return Parallel(ddp, "DDP", _reduction_of(ddp, config.distributed), forward)
    _shard(model, config.fsdp, ranks, half=half)
    return Parallel(model, "FSDP2", lambda is_last: _reduced(model, is_last), nullcontext)


def _ddp(model: nn.Module, keys: DistributedKeys, ranks: Ranks) -> Any:
    return nn.parallel.DistributedDataParallel(
        model,
        device_ids=[ranks.device.index] if ranks.on_gpu else None,
        bucket_cap_mb=keys.bucket_cap_mb,
        gradient_as_bucket_view=keys.gradient_as_bucket_view,
        static_graph=keys.static_graph,
        find_unused_parameters=keys.find_unused_parameters,
    )


def _reduction_of(ddp: Any, keys: DistributedKeys) -> Callable[[bool], AbstractContextManager[Any]]:
    # DDP learns a static graph in the first backward pass, which must therefore reduce. The sum
    # stays the same: the mean of gradients that are equal on all ranks is that gradient.
    must_reduce = keys.static_graph

    def micro_batch(is_last: bool) -> AbstractContextManager[Any]:
        nonlocal must_reduce
        reduces, must_reduce = is_last or must_reduce, False
        return nullcontext() if reduces else ddp.no_sync()

    return micro_batch


def _shard(model: Transformer, keys: FsdpKeys, ranks: Ranks, *, half: bool) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    # By itself FSDP2 chooses the GPUs of a host that has some, whatever the backend.
    mesh = init_device_mesh(ranks.device.type, (ranks.size,))
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if half else torch.float32,
        reduce_dtype=_FORMATS[keys.reduce_dtype],
    )
    is_freed = keys.sharding_strategy == "full_shard"
    layers, ahead = list(model.layers), keys.prefetch_layers
    for layer in layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=is_freed)
    # The backward pass starts with parameters outside the layers, so that these stay.
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    for number, layer in enumerate(layers):
        if keys.forward_prefetch:
            layer.set_modules_to_forward_prefetch(layers[number + 1 : number + 1 + ahead])
        if ahead > 1:  # By itself FSDP2 gathers one layer ahead.
            before = layers[max(0, number - ahead) : number]
            layer.set_modules_to_backward_prefetch(before[::-1])


@contextlib.contextmanager
def _reduced(model: Any, is_last: bool) -> Any:
    model.set_requires_gradient_sync(is_last)
    yield
