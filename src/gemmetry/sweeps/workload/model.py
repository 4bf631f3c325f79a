"""The transformer of the sweep analysis document, and its synthetic batch.

Each token has dense features and a set of categories. Both are projected to the model's width and
added; encoder layers and a small MLP, which scores each token, follow. So a layer's GEMMs are QKV,
output projection and the two of the MLP, next to attention, each forward once and backward twice.

Spreading the model over the ranks with DDP or FSDP2, and when gradients are reduced.

How the bytes of collectives move: by kernels, by kernels on symmetric memory, by copy engines.

Symmetric memory is registered with NCCL as a window, which lets NCCL choose its kernels for such
buffers, or with the policy of zero CTAs its copy engines, which leave the multiprocessors to the
GEMMs. Copy engines do not reduce, so only FSDP2's all-gathers can take these paths. NCCL falls back
silently; the trace shows which path was taken.

Sources: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/bufferreg.html and
https://github.com/pytorch/pytorch/pull/176613.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch import nn

from gemmetry.domain.errors import RequestError
from gemmetry.sweeps.training.keys import DistributedKeys, FsdpKeys, ModelKeys, WorkloadConfig
from gemmetry.sweeps.workload.ranks import Ranks


class Layer(nn.Module):  # type: ignore[misc]
    """An encoder layer with normalisation in front of attention and MLP."""

    def __init__(self, keys: ModelKeys) -> None:
        super().__init__()
        width, hidden = keys.model_dim, keys.mlp_hidden_dim
        self.heads = keys.num_heads
        self.dropout = keys.dropout
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[sequences, tokens, width] -> the same shape."""
        tokens = tokens + self._drop(self._attention(self.attention_norm(tokens)))
        hidden = self._drop(functional.gelu(self.up(self.mlp_norm(tokens))))
        return tokens + self._drop(self.down(hidden))

    def _attention(self, tokens: torch.Tensor) -> torch.Tensor:
        sequences, length, width = tokens.shape
        heads = self.qkv(tokens).view(sequences, length, 3, self.heads, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(
            query, key, value, dropout_p=self.dropout if self.training else 0.0
        )
        return self.projection(mixed.transpose(1, 2).reshape(sequences, length, width))

    def _drop(self, values: torch.Tensor) -> torch.Tensor:
        return functional.dropout(values, self.dropout, self.training)


class Transformer(nn.Module):  # type: ignore[misc]
    """The whole model."""

    def __init__(self, keys: ModelKeys) -> None:
        super().__init__()
        self.embedding = nn.Embedding(keys.vocab_size, keys.embedding_dim)
        self.dense_projection = nn.Linear(keys.num_dense_features * keys.dense_dim, keys.model_dim)
        self.embedding_projection = nn.Linear(keys.embedding_dim, keys.model_dim)
        self.layers = nn.ModuleList(Layer(keys) for _ in range(keys.num_layers))
        self.norm = nn.LayerNorm(keys.model_dim)
        self.scorer = nn.Sequential(
            nn.Linear(keys.model_dim, keys.mlp_hidden_dim),
            nn.GELU(),
            nn.Dropout(keys.dropout),
            nn.Linear(keys.mlp_hidden_dim, 1),
        )

    def forward(
        self, dense: torch.Tensor, categories: torch.Tensor, target: torch.Tensor
    ) -> torch.Tensor:
        """The loss, a scalar: the mean binary cross-entropy of the scores, computed in fp32.

        Args:
            dense: [sequences, tokens, dense features x their size].
            categories: [sequences, tokens, sparse features], rows of the embedding table.
            target: [sequences, tokens], 0 or 1.
        """
        embedded = self.embedding_projection(self.embedding(categories).mean(dim=2))
        tokens = self.dense_projection(dense) + embedded
        for layer in self.layers:
            tokens = layer(tokens)
        scores = self.scorer(self.norm(tokens)).squeeze(-1)
        return functional.binary_cross_entropy_with_logits(scores.float(), target.float())


def count_parameters(model: nn.Module) -> int:
    """Number of parameters of the whole model, however it is spread."""
    return sum(int(parameter.numel()) for parameter in model.parameters())


Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""One micro-batch on the device: the arguments of :meth:`Transformer.forward`."""


def draw_batches(config: WorkloadConfig, device: torch.device, rank: int) -> list[Batch]:
    """The micro-batches of `rank`, which every step uses again. They follow from the seed."""
    generator = torch.Generator(device).manual_seed(config.dataset.seed + 1 + rank)
    keys = config.model
    tokens = (config.training.micro_batch, config.dataset.sequence_length)
    features = keys.num_dense_features * keys.dense_dim
    categories = (*tokens, config.dataset.sparse_features)
    return [
        (
            torch.randn(*tokens, features, device=device, generator=generator),
            torch.randint(keys.vocab_size, categories, device=device, generator=generator),
            torch.randint(2, tokens, device=device, generator=generator).float(),
        )
        for _ in range(config.training.gradient_accumulation)
    ]


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


_FIRST_NCCL = {"symmetric": (2, 27), "copy_engine": (2, 28)}
"""The first NCCL with symmetric kernels, and with the policy of zero CTAs."""

_FIRST_TORCH = (2, 11)
"""The first torch in which NCCL's windows need no further preparation of a group."""

_ZERO_CTAS = "2"
"""``NCCL_CTA_POLICY_ZERO``; names instead of numbers are read since NCCL 2.29."""

_HINT = "Use --path kernel."


def prepare(path: str, distributed: DistributedKeys) -> None:
    """Check that `path` is possible, and set the environment that NCCL reads when ranks join.

    Multicast over NVLink is switched off for the paths other than kernel.

    Raises:
        RequestError: this torch, NCCL or configuration cannot take that path.
    """
    if path == "kernel":
        return
    reason = _reason_against(path, distributed)
    if reason:
        raise RequestError(f"--path {path} is not possible: {reason}", hint=_HINT)
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
    if path == "copy_engine":
        os.environ["NCCL_CTA_POLICY"] = _ZERO_CTAS


def _reason_against(path: str, distributed: DistributedKeys) -> str:
    if distributed.backend != "nccl":
        return f"distributed.backend is {distributed.backend}, and windows are NCCL's"
    if distributed.mode != "fsdp":
        return "only the all-gathers of distributed.mode fsdp can use registered buffers"
    if torch.version.hip is not None:
        return "windows of RCCL are not supported here, and this torch is built for ROCm"
    if not torch.cuda.is_available():
        return "torch sees no GPU"
    size, local_size = (int(os.environ.get(n, 1)) for n in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if size == 1:
        return "one rank moves no bytes"
    if path == "copy_engine" and size != local_size:
        return "copy engines reach the GPUs of one host only"
    version, first = torch.cuda.nccl.version(), _FIRST_NCCL[path]
    if tuple(version[:2]) < first:
        return f"it needs NCCL {_dotted(first)}, and torch was built with {_dotted(version)}"
    if _release(torch.__version__) < _FIRST_TORCH:
        return f"it needs torch {_dotted(_FIRST_TORCH)}, and this is {torch.__version__}"
    policy = os.environ.get("NCCL_CTA_POLICY", "")
    if path == "symmetric" and policy in (_ZERO_CTAS, "ZERO"):
        return f"NCCL_CTA_POLICY={policy} requests copy engines"
    return ""


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


class RegisteredAllGather:
    """FSDP2's all-gather into symmetric memory; only the output has to be registered, as its input
    is a part of it.

    Buffers of one size are used in turn, so that all ranks gather into the same one. A caching
    allocator would choose among free buffers by their addresses, which differ between ranks.
    """

    def __init__(self, slots: int) -> None:
        """`slots` is the number of buffers of one size: one more than are in use at once."""
        import torch.distributed._symmetric_memory as symmetric_memory

        self._memory: Any = symmetric_memory
        self._memory.set_backend("NCCL")
        # torch 2.13 has a new name for it, and a warning on the old one.
        self._gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
        self._slots = slots
        self._buffers: dict[Any, deque[torch.Tensor]] = {}
        self.windows: dict[int, Any] = {}
        """Address of each registered buffer -> its registration."""

    def allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """The buffer of that size whose turn it is."""
        buffers = self._buffers.setdefault((tuple(size), dtype), deque())
        if len(buffers) < self._slots:
            buffers.append(self._memory.empty(tuple(size), dtype=dtype, device=device))
        else:
            buffers.rotate(-1)
        return buffers[-1]

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: Any,
        async_op: bool = False,
    ) -> Any:
        """Register the output unless it is, and gather."""
        address = output_tensor.data_ptr()
        if address not in self.windows:
            self.windows[address] = self._memory.rendezvous(output_tensor, group=group.group_name)
        return self._gather(output_tensor, input_tensor, group=group, async_op=async_op)


class ConfiguredPath:
    """The path that was requested, and what was configured for it."""

    def __init__(self, path: str, model: nn.Module, keys: FsdpKeys) -> None:
        """Registers the all-gathers of the model, unless kernels move the bytes."""
        self.requested = path
        self._gather: RegisteredAllGather | None = None
        if path != "kernel":
            # A layer's parameters are copied out of one buffer while the next layers' are gathered.
            self._gather = RegisteredAllGather(slots=keys.prefetch_layers + 2)
            _use(self._gather, model)

    def facts(self) -> dict[str, Any]:
        """What was configured. Whether NCCL followed it, only the trace shows."""
        if self._gather is None:
            return {"requested": self.requested, "registered_buffers": 0}
        return {
            "requested": self.requested,
            "registered_buffers": len(self._gather.windows),
            "registered_collectives": ["all_gather"],
            "nccl_cta_policy": os.environ.get("NCCL_CTA_POLICY", ""),
        }


def _use(gather: RegisteredAllGather, model: nn.Module) -> None:
    from torch.distributed.fsdp import FSDPModule

    # The communicator must exist before a buffer is registered with it.
    dist.barrier()
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_custom_all_gather(gather)
