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
import re
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from gemmetry.domain.errors import RequestError
from gemmetry.training.keys import DistributedKeys, FsdpKeys

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
