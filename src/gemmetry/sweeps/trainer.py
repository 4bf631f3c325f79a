"""The transformer of the sweep analysis document, and its training with DDP or FSDP2 on one rank.

Each token has dense features and a set of categories. Both are projected to the model's width and
added; encoder layers and a small MLP, which scores each token, follow. So a layer's GEMMs are QKV,
output projection and the two of the MLP, next to attention, each forward once and backward twice.

The bytes of collectives move by kernels, by kernels on symmetric memory, or by copy engines.
Symmetric memory is registered with NCCL as a window, which lets NCCL choose its kernels for such
buffers, or with the policy of zero CTAs its copy engines, which leave the multiprocessors to the
GEMMs. Copy engines do not reduce, so only FSDP2's all-gathers can take these paths. NCCL falls back
silently; the trace shows which path was taken.

Sources: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/bufferreg.html and
https://github.com/pytorch/pytorch/pull/176613.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import gzip
import json
import math
import os
import re
import shutil
import socket
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch import nn

from gemmetry.domain.errors import RequestError, StorageError
from gemmetry.domain.files import completed, remove
from gemmetry.domain.rows import SCHEMA_VERSION
from gemmetry.domain.units import format_bytes, plural
from gemmetry.engine.recording import KINETO_SUFFIX, METADATA_KEY
from gemmetry.engine.schema import indented
from gemmetry.hardware.detect import capture_environment
from gemmetry.hardware.host import free_memory_bytes
from gemmetry.sweeps.keys import (
    DistributedKeys,
    FsdpKeys,
    ModelKeys,
    ProfilingKeys,
    SchedulerKeys,
    WorkloadConfig,
    keys_without_effect,
)


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
        """Whether this is the rank that prints and writes."""
        return self.rank == 0

    @property
    def on_gpu(self) -> bool:
        """Whether the rank trains on a GPU."""
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
    """Number of parameters of the whole model, sharded or not."""
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
    """Function of whether a micro-batch is the last of a step, to the context of its forward and
    backward pass. The last one reduces gradients."""
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
        keys = config.distributed
        names = ("bucket_cap_mb", "gradient_as_bucket_view", "static_graph",
                 "find_unused_parameters")  # fmt: skip
        ddp = nn.parallel.DistributedDataParallel(
            model,
            device_ids=[ranks.device.index] if ranks.on_gpu else None,
            **{name: getattr(keys, name) for name in names},
        )
        return Parallel(ddp, "DDP", _reduction_of(ddp, keys), forward)
    _shard(model, config.fsdp, ranks, half=half)

    def micro_batch(is_last: bool) -> AbstractContextManager[Any]:
        model.set_requires_gradient_sync(is_last)
        return nullcontext()

    return Parallel(model, "FSDP2", micro_batch, nullcontext)


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
            layer.set_modules_to_backward_prefetch(layers[max(0, number - ahead) : number][::-1])


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
    if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < _FIRST_TORCH:
        return f"it needs torch {_dotted(_FIRST_TORCH)}, and this is {torch.__version__}"
    policy = os.environ.get("NCCL_CTA_POLICY", "")
    if path == "symmetric" and policy in (_ZERO_CTAS, "ZERO"):
        return f"NCCL_CTA_POLICY={policy} requests copy engines"
    return ""


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


def register(path: str, model: nn.Module, keys: FsdpKeys) -> RegisteredAllGather | None:
    """The all-gathers of the model, registered; None where kernels move the bytes."""
    from torch.distributed.fsdp import FSDPModule

    if path == "kernel":
        return None
    # A layer's parameters are copied out of one buffer while the next layers' are gathered.
    gather = RegisteredAllGather(slots=keys.prefetch_layers + 2)
    # The communicator must exist before a buffer is registered with it.
    dist.barrier()
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_custom_all_gather(gather)
    return gather


def path_facts(path: str, gather: RegisteredAllGather | None) -> dict[str, Any]:
    """Configuration for `path`. Whether NCCL followed it, only the trace shows."""
    if gather is None:
        return {"requested": path, "registered_buffers": 0}
    policy = os.environ.get("NCCL_CTA_POLICY", "")
    return {"requested": path, "registered_buffers": len(gather.windows),
            "registered_collectives": ["all_gather"], "nccl_cta_policy": policy}  # fmt: skip


LATER_S = 2.0
"""Seconds for which a rank with an unexplained error waits before it fails. Mostly another rank has
ended; torchrun quotes the earliest error, by whole seconds, and ends the others."""


def too_little_memory(what: str) -> RequestError:
    """The error for a run that does not fit; `what` states how much is missing where."""
    return RequestError(
        f"too little memory: {what}",
        hint="Raise training.gradient_accumulation, which makes micro-batches smaller, or lower "
        "training.batch_size or model.num_layers.",
    )


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn failures of torch that the configuration can avoid into request errors; others, which
    may be consequences of another rank's, come later (:data:`LATER_S`).

    Raises:
        RequestError: memory ran out, or an operator has no deterministic implementation.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise too_little_memory(_first_line(error)) from error
    except RuntimeError as error:
        if "can't allocate memory" in str(error):
            raise too_little_memory(_first_line(error)) from error
        if "does not have a deterministic implementation" in str(error):
            raise RequestError(
                str(error).partition(", but you set")[0],
                hint="Use --override training.deterministic=false; losses then differ slightly "
                "between two runs.",
            ) from error
        if dist.is_initialized() and dist.get_world_size() > 1:
            time.sleep(LATER_S)
        raise


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A name to write to; the file is renamed to `path` when the block ends without an error.

    Raises:
        StorageError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with completed(path) as partial:
            yield partial
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}",
            hint="Free space there, or give another folder with --output.",
        ) from error


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write `content` as indented JSON."""
    with whole_file(path) as partial:
        partial.write_bytes(indented(content))


LABEL = "gemmetry::straggle"
"""Name of the operator in the trace that covers the wait."""

_PROBE_CYCLES = 20_000_000
"""Length of the kernel from which the GPU's clock follows: some 10 ms."""


@dataclass(frozen=True, slots=True)
class Straggle:
    """Rank that waits, and for how long."""

    rank: int
    milliseconds: float

    @classmethod
    def parse(cls, text: str) -> Straggle:
        """``1:20``: rank 1 waits 20 ms in each step.

        Raises:
            RequestError: the text is of another form.
        """
        rank, _, milliseconds = text.partition(":")
        try:
            found = cls(int(rank), float(milliseconds))
        except ValueError:
            found = cls(-1, -1)
        if found.rank < 0 or not 0 < found.milliseconds < float("inf"):
            raise RequestError(
                f"--straggle {text}: not of the form RANK:MS", hint="Write --straggle 1:20."
            )
        return found


def planted_wait(straggle: Straggle | None, ranks: Ranks) -> Callable[[], None]:
    """What each step calls: on the rank that waits, a kernel, so that the host does not notice;
    on the CPU it sleeps.

    Raises:
        RequestError: there is no such rank.
    """
    if straggle is not None and straggle.rank >= ranks.size:
        raise RequestError(
            f"--straggle names rank {straggle.rank}, but there "
            f"{'is' if ranks.size == 1 else 'are'} {ranks.size}",
            hint="Ranks count from 0.",
        )
    if straggle is None or straggle.rank != ranks.rank:
        return lambda: None
    seconds = straggle.milliseconds / 1e3
    cycles = int(seconds * _cycles_per_s()) if ranks.on_gpu else 0

    def wait() -> None:
        with torch.profiler.record_function(LABEL):
            if cycles:
                torch.cuda._sleep(cycles)
            else:
                time.sleep(seconds)

    return wait


def _cycles_per_s() -> float:
    """Cycles per second that ``torch.cuda._sleep`` counts on this GPU."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(_PROBE_CYCLES)  # Raises the clock.
    start.record()
    torch.cuda._sleep(_PROBE_CYCLES)
    end.record()
    end.synchronize()
    return float(_PROBE_CYCLES / (start.elapsed_time(end) / 1e3))


def train(
    config: WorkloadConfig,
    parallel: Parallel,
    ranks: Ranks,
    *,
    start_step: Callable[[], None],
    end_step: Callable[[], None],
) -> Iterator[torch.Tensor]:
    """Train, and yield each step's loss on this rank, the mean over its micro-batches, as a scalar
    on the device. The host does not wait for the device."""
    model, keys = parallel.model, config.optimizer
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=keys.lr, betas=keys.betas, eps=keys.eps,
        weight_decay=keys.weight_decay,
    )  # fmt: skip
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, learning_rate(config.scheduler))
    batches = draw_batches(config, ranks.device, ranks.rank)
    for _ in range(config.training.max_steps):
        start_step()
        optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=ranks.device)
        for number, batch in enumerate(batches, 1):
            with parallel.micro_batch(number == len(batches)):
                with parallel.forward():
                    loss = model(*batch) / len(batches)
                loss.backward()
            total += loss.detach()
        if config.training.grad_clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.training.grad_clip_norm)
        optimizer.step()
        scheduler.step()
        end_step()
        yield total


def learning_rate(keys: SchedulerKeys) -> Callable[[int], float]:
    """Step, from 0 -> factor of the learning rate: it rises linearly to 1, then falls to 0."""

    def factor(step: int) -> float:
        if step < keys.warmup_steps:
            return (step + 1) / keys.warmup_steps
        falling = max(1, keys.total_steps - keys.warmup_steps)
        return max(0.0, 1.0 - (step - keys.warmup_steps) / falling)

    return factor


def mean_over_ranks(losses: list[torch.Tensor], size: int) -> list[float | None]:
    """Losses of each step as numbers, None for one that is not finite. All ranks call it."""
    together = torch.stack(losses)
    if size > 1:
        dist.all_reduce(together)
    return [value if math.isfinite(value) else None for value in (together / size).tolist()]


_END_BYTES = 64
"""Read from the end of a trace to see whether it is complete."""

_COMPRESSION = 6
"""Default level of gzip; Python's, 9, takes several times as long for a few percent."""

_CHUNK_BYTES = 1 << 20


def trace_path(folder: Path, rank: int, keys: ProfilingKeys, number: int) -> Path:
    """Path of recording `number`, counted from 1, of `rank`."""
    stem = keys.trace_filename.removesuffix(".json")
    suffix = "" if number == 1 else f"_{number:02d}"
    return folder / "torch_profiler" / f"rank{rank}" / f"{stem}{suffix}{KINETO_SUFFIX}.gz"


@contextlib.contextmanager
def recorded(
    keys: ProfilingKeys, folder: Path, ranks: Ranks, about: Mapping[str, Any]
) -> Iterator[Callable[[], None]]:
    """Record the steps of the block, which calls the yielded function at the end of each step.

    Args:
        about: JSON values that go into each trace, under ``gemmetry``.

    Raises:
        StorageError: a trace cannot be written.
    """
    if not keys.enabled:
        yield lambda: None
        return
    from torch.profiler import ProfilerActivity, profile, schedule

    written = 0

    def write(profiler: Any) -> None:
        nonlocal written
        written += 1
        with whole_file(trace_path(folder, ranks.rank, keys, written)) as partial:
            _export(profiler, partial)

    activities = [ProfilerActivity.CPU]
    if ranks.on_gpu:
        activities.append(ProfilerActivity.CUDA)  # ROCm's too.
    with warnings.catch_warnings():
        # Warnings that only the last recording is kept (each is written when it ends), and that a
        # schedule without warm-up skews results (which was requested).
        warnings.filterwarnings("ignore", message=".*Profiler ", category=UserWarning)
        when = {name: getattr(keys, name) for name in ("wait", "warmup", "active", "repeat")}
        what = ("record_shapes", "profile_memory", "with_stack", "with_flops")
        profiler = profile(
            activities=activities,
            schedule=schedule(**when),
            on_trace_ready=write,
            **{name: getattr(keys, name) for name in what},
        )
        profiler.preset_metadata_json(METADATA_KEY, json.dumps(about))
        with profiler:
            yield profiler.step


def _export(profiler: Any, path: Path) -> None:
    """Write the trace, compressed. torch's own compression writes line by line, which takes three
    times as long.

    Raises:
        OSError: the trace does not fit; the profiler does not report that by itself.
    """
    plain = path.with_suffix(".plain")
    try:
        profiler.export_chrome_trace(str(plain))
        with plain.open("rb") as trace:
            trace.seek(max(0, plain.stat().st_size - _END_BYTES))
            if not trace.read().rstrip().endswith(b"}"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            trace.seek(0)
            with gzip.open(path, "wb", compresslevel=_COMPRESSION) as file:
                shutil.copyfileobj(trace, file, _CHUNK_BYTES)
    finally:
        remove(plain, inside=path.parent)


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
    """Compare the lower bound with the free memory.

    Raises:
        RequestError: the workload cannot fit.
    """
    with torch.device("meta"):
        parameters = count_parameters(Transformer(config.model))
    needed = needed_bytes(config, parameters, ranks.size)
    if ranks.on_gpu:
        free, where = torch.cuda.mem_get_info(ranks.device)[0], "the GPU"
    else:
        free, where = free_memory_bytes() // ranks.local_size, "the host, for each rank,"
    if needed > free:
        raise too_little_memory(
            f"rank {ranks.rank} needs at least {format_bytes(needed)}, and {where} has "
            f"{format_bytes(free)} free"
        )


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
        packages["rccl" if torch.version.hip else "nccl"] = _dotted(torch.cuda.nccl.version())
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


LOSSES = "losses.json"
FACTS = "facts_rank0.json"


def run(
    config: WorkloadConfig, output: Path, *, path: str = "kernel", straggle: Straggle | None = None
) -> None:
    """Train, and write traces, losses and facts into `output`.

    Raises:
        RequestError: this host or this torch cannot train as configured, or memory ran out.
        StorageError: a file cannot be written.
    """
    prepare(path, config.distributed)
    ranks = join(config)
    with explained():
        _train(config, output, ranks, path, straggle)
        # Not after an error: the others may never arrive, and torchrun ends them.
        dist.barrier()
    dist.destroy_process_group()


def _train(
    config: WorkloadConfig, output: Path, ranks: Ranks, path: str, straggle: Straggle | None
) -> None:
    wait = planted_wait(straggle, ranks)
    check_memory(config, ranks)
    parallel = spread(config, ranks)
    gather = register(path, parallel.model, config.fsdp)
    facts = collect_facts(config, parallel, ranks)
    late = None if straggle is None else dataclasses.asdict(straggle)
    facts |= {"path": path_facts(path, gather), "straggle": late}
    if ranks.is_first:
        _announce(facts)
        write_json(output / FACTS, facts)
    about = {"rank": ranks.rank, "world_size": ranks.size, "parallel": parallel.name}
    losses = []
    with recorded(config.profiling, output, ranks, about) as end_step:
        steps = train(config, parallel, ranks, start_step=wait, end_step=end_step)
        for number, loss in enumerate(steps):
            losses.append(loss)
            if ranks.is_first and number % config.training.log_interval == 0:
                _say(f"step {number}: loss {float(loss):.6f} on rank 0")
    means = mean_over_ranks(losses, ranks.size)
    if ranks.is_first:
        facts["path"] = path_facts(path, gather)
        write_json(output / FACTS, facts)
        seed = config.dataset.seed
        write_json(output / LOSSES, {"schema_version": 1, "seed": seed, "losses": means})
        _conclude(config, output, means, facts)


def _announce(facts: dict[str, Any]) -> None:
    ranks = facts["ranks"]
    devices = ", ".join(sorted({rank["device"] for rank in ranks}))
    how = f"{facts['parallel']} over {facts['backend']}"
    if len(ranks) == 1:
        how = "no collectives, so that nothing overlaps with the GEMMs"
    _say(f"{plural(len(ranks), 'rank')} on {devices}, {how}, {facts['parameters']:,} parameters")
    if facts["keys_without_effect"]:
        _say(f"without effect here: {', '.join(facts['keys_without_effect'])}")


def _conclude(
    config: WorkloadConfig, output: Path, losses: list[float | None], facts: dict[str, Any]
) -> None:
    broken = [str(number) for number, loss in enumerate(losses) if loss is None]
    if broken:
        _say(f"warning: the loss is not finite in steps {', '.join(broken)}")
    path = facts["path"]
    if path["requested"] != "kernel" and not path["registered_buffers"]:
        _say(f"warning: no buffer was registered for --path {path['requested']}")
    _say(f"{plural(len(losses), 'step')}; wrote {output / LOSSES} and {output / FACTS}")
    if config.profiling.enabled:
        _say(f"traces of each rank, such as {trace_path(output, 0, config.profiling, 1)}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
