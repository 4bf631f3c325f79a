"""Finds the kernels of all families, and the one that a configuration belongs to."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache

from gemmetry.domain.dispatch import DEFAULT_CONFIGURATION, Configuration
from gemmetry.domain.operation import Operation, OperationKind
from gemmetry.domain.target import Target, TargetKind
from gemmetry.providers import cuda_provider
from gemmetry.providers.cuda_provider.launching.kernel import TARGET_ARCHITECTURE, CudaKernel

LARGEST_TENSOR = 2**31 - 1
"""Elements of a tensor: kernels count in 32 bits."""

_PROVIDER = "provider"


@cache
def kernels() -> tuple[CudaKernel, ...]:
    """All kernels: those that are not on the ladder first, then its rungs, the highest first, which
    is the order in which ``default`` chooses."""
    found: list[CudaKernel] = []
    for module in pkgutil.iter_modules(cuda_provider.__path__):
        if module.ispkg or module.name == _PROVIDER:
            continue
        family = importlib.import_module(f"{cuda_provider.__name__}.{module.name}")
        found += getattr(family, "KERNELS", ())
    return tuple(sorted(found, key=lambda kernel: (kernel.rung is not None, -(kernel.rung or 0))))


def kernel_of(configuration: str) -> CudaKernel | None:
    """The kernel that a configuration's name belongs to; None if there is none."""
    key = configuration.partition("_")[0]
    return next((kernel for kernel in kernels() if kernel.key == key), None)


def reason_against(operation: Operation, target: Target) -> str | None:
    """None if one of the kernels computes `operation` on `target`, else the reason."""
    if reason := _target_reason(target) or _size_reason(operation):
        return reason
    if operation.signature.kind is not OperationKind.MATMUL:
        return f"the CUDA kernels do matmul, not {operation.signature.kind}"
    reasons = [kernel.refusal(operation) for kernel in kernels()]
    return None if None in reasons else next(iter(reasons), "there are no CUDA kernels")


def choose(operation: Operation) -> Configuration | None:
    """The configuration of ``default``: the first one of the first kernel that computes
    `operation`; None if none does."""
    return next((one for kernel in kernels() for one in kernel.legal(operation)[:1]), None)


def worth_trying(operation: Operation) -> Iterator[Configuration]:
    """``default`` with its actual parameters, then every listed configuration that computes
    `operation`."""
    chosen = choose(operation)
    if chosen is None:
        return
    yield Configuration(DEFAULT_CONFIGURATION, chosen.parameters)
    for kernel in kernels():
        if kernel.is_listed:
            yield from kernel.legal(operation)


def is_hopper(target: Target) -> bool:
    """Whether a target runs the kernels."""
    architecture = target.architecture.rstrip("a")
    return target.kind is TargetKind.CUDA and architecture == TARGET_ARCHITECTURE


def _target_reason(target: Target) -> str | None:
    if is_hopper(target):
        return None
    return f"the CUDA kernels are for NVIDIA Hopper (cuda-{TARGET_ARCHITECTURE}), not {target}"


def _size_reason(operation: Operation) -> str | None:
    for spec in (*operation.inputs, operation.output):
        if spec.elements > LARGEST_TENSOR:
            sizes = "x".join(map(str, spec.shape))
            return f"{spec.role} ({sizes}) has more than {LARGEST_TENSOR} elements"
    return None
