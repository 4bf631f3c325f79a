"""torch's process-wide switches that decide what a product computes, and whose turn they stand for.

One worker launches dispatches of several providers in turn. Products of the torch provider compute
what an operation's name promises; a user's function finds the switches as users' code left them.
Nothing here imports torch before a mode is applied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from gemmetry.domain.dtypes import F16, TF32
from gemmetry.domain.operation import Operation
from gemmetry.domain.target import TargetKind

_LIBRARY = "cuda.preferred_blas_library"
"""The one switch that is a function: called without arguments it tells, with one it sets."""


@dataclass(frozen=True, slots=True)
class MathMode:
    """What switches must hold while a product of the torch provider is launched."""

    switches: tuple[tuple[str, Any], ...]
    """Path below ``torch.backends`` -> value."""

    def apply(self) -> None:
        """Set the switches, unless they stand so since the last launch of this worker."""
        if _turn.mode is self:
            return
        if _turn.mode != self:
            users_turn()
            _turn.users = [(path, _get(path)) for path, _ in self.switches]
            for path, value in self.switches:
                _set(path, value)
        _turn.mode = self


class _Turn:
    """Whose switches stand in this process."""

    mode: MathMode | None = None
    """None: those of users' code."""
    users: list[tuple[str, Any]]
    """What `mode` has overwritten."""

    def __init__(self) -> None:
        self.users = []


_turn = _Turn()


def users_turn() -> None:
    """Give the switches back as users' code, or torch itself, left them; before such code runs."""
    if _turn.mode is None:
        return
    for path, value in _turn.users:
        _set(path, value)
    _turn.mode, _turn.users = None, []


def math_mode(operation: Operation, kind: TargetKind, library: str = "cublas") -> MathMode:
    """The switches that give `operation` the arithmetic its name promises.

    Args:
        library: on GPUs, a value of ``torch.backends.cuda.preferred_blas_library``.
    """
    s = operation.signature
    if kind is TargetKind.CPU:
        # oneDNN computes f32 in bf16 or tf32 where it is allowed to.
        return MathMode(
            (("mkldnn.matmul.fp32_precision", "ieee"), ("mkldnn.conv.fp32_precision", "ieee"))
        )
    precision = "tf32" if s.lhs is TF32 else "ieee"
    switches = (
        ("cuda.matmul.fp32_precision", precision),
        ("cudnn.conv.fp32_precision", precision),
        ("cuda.matmul.allow_fp16_accumulation", s.accumulator is F16),
        # Partial sums of split-K kernels stay in f32, as the operation's accumulator says.
        ("cuda.matmul.allow_fp16_reduced_precision_reduction", False),
        ("cuda.matmul.allow_bf16_reduced_precision_reduction", False),
    )
    # ROCm's libraries go by other names.
    named = ((_LIBRARY, library),) if kind is TargetKind.CUDA else ()
    return MathMode((*switches, *named))


def _owner(path: str) -> tuple[Any, str]:
    import torch

    *parts, name = path.split(".")
    return reduce(getattr, parts, torch.backends), name


def _get(path: str) -> Any:
    owner, name = _owner(path)
    value = getattr(owner, name)
    # Of the enumeration that it returns, the function takes the name in small letters.
    return str(value()).rpartition(".")[2].lower() if path == _LIBRARY else value


def _set(path: str, value: Any) -> None:
    owner, name = _owner(path)
    if path != _LIBRARY:
        setattr(owner, name, value)
        return
    library: Callable[..., object] = getattr(owner, name)
    if _get(path) != value:
        library(value)
