"""Checks the tensors of a call, and finds the operation that they make up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from gemmetry.dispatcher.problems import MatmulProblem, problem_of
from gemmetry.domain.dtypes import BF16, F16
from gemmetry.domain.errors import RequestError, UnknownNameError
from gemmetry.domain.operation import (
    EpilogueStep,
    Layout,
    MatmulShape,
    Operation,
    OperationKind,
    Signature,
)

ACTIVATIONS = (str(EpilogueStep.RELU), str(EpilogueStep.GELU))
_FORMATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
_DISPATCHED = {torch.bfloat16: BF16, torch.float16: F16}
"""Formats that kernels are chosen for. Products of f32 are left to torch: its switches, which
belong to the caller, decide whether they are computed in tf32."""
LARGEST_TENSOR = 2**31
"""Elements from which on kernels, which count in 32 bits, are not used."""


class Arguments(NamedTuple):
    """The arguments of a call, matrices only."""

    a: torch.Tensor
    b: torch.Tensor
    addend: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    out: torch.Tensor | None = None
    alpha: float = 1.0
    beta: float = 0.0
    activation: str | None = None

    @property
    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The inputs that were given, by name."""
        for name in ("a", "b", "addend", "bias"):
            tensor = getattr(self, name)
            if tensor is not None:
                yield name, tensor

    @property
    def is_plain(self) -> bool:
        """Whether it is the product of two matrices and nothing else, into a new one."""
        others = (self.addend, self.bias, self.out, self.activation)
        return (self.alpha, self.beta) == (1, 0) and all(one is None for one in others)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for calls that the same function computes."""
        found: list[object] = [self.alpha, self.beta, self.activation]
        for tensor in (self.a, self.b, self.addend, self.bias, self.out):
            if tensor is None:
                found.append(None)
            else:
                found += [tensor.shape, tensor.stride(), tensor.dtype, tensor.device]
        return tuple(found)


def check(call: Arguments) -> None:
    """Refuse a call that has no meaning.

    Raises:
        RequestError: shapes, formats or devices do not fit, or `out` overlaps an input.
    """
    a, b = call.a, call.b
    if a.dim() != 2 or b.dim() != 2:
        raise RequestError(
            f"matmul takes matrices, not tensors of {a.dim()} and {b.dim()} dimensions",
            hint="Give b as a matrix; a may have leading dimensions. Batches: torch.bmm.",
        )
    if a.shape[1] != b.shape[0]:
        raise RequestError(
            f"a is {_size(a)} and b is {_size(b)}: the columns of a are not the rows of b",
            hint="Did you mean b.mT?",
        )
    if a.dtype not in _FORMATS:
        raise RequestError(
            f"matmul takes {', '.join(map(_plain, _FORMATS))}, not {_plain(a.dtype)}",
            hint="For fp8 use torch._scaled_mm, for int8 torch._int_mm.",
        )
    m, n = a.shape[0], b.shape[1]
    shapes = {"b": tuple(b.shape), "addend": (m, n), "bias": (n,)}
    outputs = [] if call.out is None else [("out", call.out)]
    for name, tensor in (*call.tensors, *outputs):
        if tensor.dtype != a.dtype:
            raise RequestError(
                f"{name} is {_plain(tensor.dtype)} and a is {_plain(a.dtype)}",
                hint=f"Convert one of them: {name}.to(a.dtype).",
            )
        if tensor.device != a.device:
            raise RequestError(
                f"{name} is on {tensor.device} and a is on {a.device}",
                hint=f"Move one of them: {name}.to(a.device).",
            )
        wanted = shapes.get(name, (m, n) if name == "out" else tuple(a.shape))
        if tuple(tensor.shape) != wanted:
            raise RequestError(
                f"{name} is {_size(tensor)}, not {'x'.join(map(str, wanted))}",
                hint="The result is as high as a and as wide as b; bias has its width.",
            )
    _check_numbers(call)
    if call.out is not None:
        _check_output(call, call.out)


def _check_numbers(call: Arguments) -> None:
    if call.activation is not None and call.activation not in ACTIVATIONS:
        raise UnknownNameError("activation", call.activation, ACTIVATIONS)
    if not (math.isfinite(call.alpha) and math.isfinite(call.beta)):
        raise RequestError(
            f"alpha {call.alpha} and beta {call.beta} must be finite", hint="Check the factors."
        )
    if (call.beta != 0) != (call.addend is not None):
        what = f"beta is {call.beta:g}, but there is no addend"
        if call.addend is not None:
            what = "beta is 0, so addend would be ignored"
        raise RequestError(what, hint="Give both beta and addend, or neither.")


def _check_output(call: Arguments, out: torch.Tensor) -> None:
    if any(stride == 0 and size > 1 for stride, size in zip(out.stride(), out.shape, strict=True)):
        raise RequestError(
            "several elements of out share one place in memory",
            hint="Give a tensor of its own, not one that expand() made.",
        )
    for name, tensor in call.tensors:
        if overlaps(out, tensor):
            raise RequestError(
                f"out overlaps {name} in memory, which would be read after it was overwritten",
                hint="Give a tensor of its own, or leave out= out.",
            )


def overlaps(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors have a byte in common. Rows whose elements are not contiguous count as
    if they were."""
    if left.numel() == 0 or right.numel() == 0 or left.device != right.device:
        return False
    first, second = _rows(left), _rows(right)
    if first[:, 1].max() <= second[:, 0].min() or second[:, 1].max() <= first[:, 0].min():
        return False
    # Of the rows in the order of their addresses, one that begins before an earlier one of the
    # other tensor has ended overlaps it.
    ends = (np.maximum.accumulate(rows[:, 1]) for rows in (first, second))
    for rows, others, other_ends in zip((first, second), (second, first),
                                        reversed(list(ends)), strict=True):  # fmt: skip
        before = np.searchsorted(others[:, 0], rows[:, 0], side="right")
        has_any = before > 0
        if (other_ends[before[has_any] - 1] > rows[has_any, 0]).any():
            return True
    return False


def _rows(tensor: torch.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """First and last address (exclusive) of each contiguous stretch, in order; (count, 2)."""
    axes = sorted(zip(tensor.stride(), tensor.shape, strict=True), reverse=True)
    offsets, span = np.zeros(1, np.int64), 1
    if axes:
        stride, size = axes[-1]
        span = stride * (size - 1) + 1
    for stride, size in axes[:-1]:
        steps = np.arange(size, dtype=np.int64) * stride
        offsets = (offsets[:, None] + steps[None, :]).reshape(-1)
    begin = tensor.data_ptr() + np.sort(offsets) * tensor.element_size()
    return np.stack([begin, begin + span * tensor.element_size()], axis=1)


def problem_of_call(call: Arguments) -> MatmulProblem | None:
    """The problem that kernels are chosen for; None for a call that is left to torch: empty or
    huge matrices, other formats, matrices that are not packed."""
    a, b = call.a, call.b
    dtype = _DISPATCHED.get(a.dtype)
    m, k = a.shape
    n = b.shape[1]
    if dtype is None or a.is_meta:
        return None
    if min(m, n, k) == 0 or max(m * k, n * k, m * n) >= LARGEST_TENSOR:
        return None
    layouts = [layout_of(a), layout_of(b, Layout.COLUMN)]
    result = Layout.ROW if call.out is None else layout_of(call.out)
    if call.addend is not None and not is_stored(call.addend, result):
        return None
    if None in layouts or result is None or not (call.bias is None or call.bias.is_contiguous()):
        return None
    steps = [EpilogueStep.BIAS] if call.bias is not None else []
    if call.activation is not None:
        steps.append(EpilogueStep(call.activation))
    signature = Signature(
        OperationKind.MATMUL, dtype, dtype, dtype,
        lhs_layout=layouts[0] or Layout.ROW, rhs_layout=layouts[1] or Layout.ROW,
        result_layout=result, alpha=call.alpha, beta=call.beta, epilogue=tuple(steps),
    )  # fmt: skip
    return problem_of(Operation(signature, MatmulShape(m, n, k)))


def layout_of(matrix: torch.Tensor, preferred: Layout = Layout.ROW) -> Layout | None:
    """How a packed matrix is stored, `preferred` for a vector, which is stored both ways; None for
    one that is not packed."""
    found = [layout for layout in (Layout.ROW, Layout.COLUMN) if is_stored(matrix, layout)]
    return preferred if preferred in found else next(iter(found), None)


def is_stored(matrix: torch.Tensor, layout: Layout | None) -> bool:
    """Whether a matrix is packed in that layout."""
    as_stored = matrix.mT if layout is Layout.COLUMN else matrix
    return layout is not None and as_stored.is_contiguous()


def _size(tensor: torch.Tensor) -> str:
    return "x".join(map(str, tensor.shape))


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
