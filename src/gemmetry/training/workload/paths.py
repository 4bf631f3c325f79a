"""How the bytes of collectives move: by kernels, by kernels on symmetric memory, by copy engines.

Symmetric memory is registered with NCCL as a window, which lets NCCL choose its kernels for such
buffers, or with the policy of zero CTAs its copy engines, which leave the multiprocessors to the
GEMMs. Copy engines do not reduce, so only FSDP2's all-gathers can take these paths. NCCL falls back
silently; the trace shows which path was taken.

Sources: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/bufferreg.html and
https://github.com/pytorch/pytorch/pull/176613.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from gemmetry.domain.errors import RequestError
from gemmetry.training.keys import DistributedKeys
from gemmetry.training.workload.parallel import Parallel
from gemmetry.training.workload.ranks import Ranks

PATHS = ("kernel", "symmetric", "copy_engine")

_FIRST_NCCL = {"symmetric": (2, 27), "copy_engine": (2, 28)}
"""The first NCCL with symmetric kernels, and with the policy of zero CTAs."""

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
        return "this torch is built for ROCm and cannot register windows with RCCL"
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
    import torch.distributed._symmetric_memory as symmetric_memory

    if not hasattr(symmetric_memory, "get_mem_pool"):
        return f"torch {torch.__version__} cannot allocate symmetric memory from a pool"
    policy = os.environ.get("NCCL_CTA_POLICY", "")
    if path == "symmetric" and policy in (_ZERO_CTAS, "ZERO"):
        return f"NCCL_CTA_POLICY={policy} requests copy engines"
    return ""


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


class RegisteredAllGather:
    """FSDP2's all-gather into symmetric memory; only the output has to be registered, as its input
    is a part of it."""

    def __init__(self, device: torch.device) -> None:
        import torch.distributed._symmetric_memory as symmetric_memory

        self._memory: Any = symmetric_memory
        self._memory.set_backend("NCCL")
        self._pool: Any = symmetric_memory.get_mem_pool(device)
        # torch 2.13 has a new name for it, and a warning on the old one.
        self._gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
        self.windows: set[int] = set()
        """Addresses of the buffers that were registered."""

    def allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Memory from the pool, which is used again, so that it is registered once."""
        with torch.cuda.use_mem_pool(self._pool):
            return torch.empty(size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: Any,
        async_op: bool = False,
    ) -> Any:
        """Register the output unless it is, and gather."""
        self._memory.rendezvous(output_tensor, group=group.group_name)
        self.windows.add(output_tensor.data_ptr())
        return self._gather(output_tensor, input_tensor, group=group, async_op=async_op)


class ConfiguredPath:
    """The path that was requested, and what was configured for it."""

    def __init__(self, path: str, parallel: Parallel, ranks: Ranks) -> None:
        """Registers the all-gathers of the model, unless kernels move the bytes."""
        self.requested = path
        self._gather: RegisteredAllGather | None = None
        if path != "kernel":
            self._gather = RegisteredAllGather(ranks.device)
            _use(self._gather, parallel.model)

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
    # The communicator must exist before a buffer is registered with it.
    dist.barrier()
    for module in model.modules():
        if hasattr(module, "set_custom_all_gather"):
            module.set_custom_all_gather(gather)
