"""Derives the GEMM that an operator computes from its arguments.

The places of A and B follow the signatures of PyTorch's native functions
(``aten/src/ATen/native/native_functions.yaml``). Operators of other libraries are recognised by
name, and only if the sizes of their matrices are unambiguous.

Finds the kernels launched by convolution operators.

cuDNN and MIOpen run some convolutions as plain GEMM kernels (filters of 1 x 1, FFT, im2col): by
name such a kernel is a GEMM, by its operator it is a convolution.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gemmetry.formats.events import MOST_ELEMENTS, Bools, Int64, OperatorArguments, TraceRows
from gemmetry.traces.joins import NONE, JoinedLaunches, decoded_list, enclosing_operator
from gemmetry.traces.names.words import number_format


class GemmShape(NamedTuple):
    """C (batch, m, n) = A (batch, m, k) · B (batch, k, n), as far as the trace specifies it."""

    m: int
    n: int
    k: int
    batch: int = 1
    dtype: str | None = None
    """Formats of A and B: ``bf16``, or ``e4m3:e5m2`` where they differ."""
    layout: str | None = None
    """Layouts of A and B: t is row-major, n column-major, as in names of operations."""
    scaling: str = "none"
    """``tensor``, ``row`` or ``block`` where narrow inputs have scale factors."""

    @property
    def flops(self) -> int:
        """2·batch·m·n·k; four times as many of real numbers where they are complex."""
        real = 2 * self.batch * self.m * self.n * self.k
        return 4 * real if self.dtype in _COMPLEX else real


class _Tensor(NamedTuple):
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str | None
    packed: int = 1
    """Numbers in a stored element, of which `shape` and `strides` count only one."""


OPERAND_PLACES = {
    "aten::mm": (0, 1), "aten::bmm": (0, 1), "aten::matmul": (0, 1), "aten::_int_mm": (0, 1),
    "aten::mv": (0, 1), "aten::dot": (0, 1), "aten::vdot": (0, 1),
    "aten::_scaled_mm": (0, 1), "aten::_scaled_mm_v2": (0, 1),
    "aten::addmm": (1, 2), "aten::_addmm_activation": (1, 2), "aten::addmv": (1, 2),
    "aten::baddbmm": (1, 2), "aten::addbmm": (1, 2), "aten::linear": (0, 1),
    "aten::addmm_": (1, 2), "aten::addmv_": (1, 2), "aten::baddbmm_": (1, 2),
    "aten::addbmm_": (1, 2), "mkldnn::_linear_pointwise": (0, 1),
}  # fmt: skip
"""Operator -> positions of A and B among its arguments."""

_LINEAR = ("aten::linear", "mkldnn::_linear_pointwise")
"""Operators that take B as (n, k). torch.compile turns the first into the second on a CPU."""

SCALED_OPERATORS = ("aten::_scaled_mm", "aten::_scaled_mm_v2")
"""Products of narrow formats with factors. On a CPU torch widens their operands and calls
``aten::mm`` or ``addmm`` from within."""

_OF_OTHERS = re.compile(r"(?<!co)mm\Z|\Ab?mm_|gemm|matmul|(?<!bi)linear\Z|_mm_", re.IGNORECASE)
_NOT_ONE_GEMM = re.compile(r"backward|grouped|moe|attention|conv|quantize", re.IGNORECASE)

_SPELLINGS = {
    "signed char": "s8", "unsigned char": "u8", "long int": "s64",
    "c10::complex<float>": "c64", "c10::complex<double>": "c128",
}  # fmt: skip
_COMPLEX = ("c64", "c128")

_PACKED = {"float4_e2m1fn_x2": ("e2m1", 2), "quint4x2": ("u4", 2), "quint2x4": ("u2", 4)}
"""PyTorch's types of several numbers in a byte -> the format and how many they are."""

_FOUR_BITS = r"(?:fp|mxf|nvf|mxfp|nvfp|_f)4|e2m1|int4|4bit|w4|a4|awq"
_FLOATS_OF_FOUR_BITS = r"f4|fp4|e2m1|a4w4"
"""Formats in names of operators, in small letters."""

_BYTES, _WORDS = ("u8", "s8"), ("s32", "u32")


def is_gemm_operator(name: str) -> bool:
    """Whether an operator of this name may be one GEMM."""
    if name in OPERAND_PLACES:
        return True
    library, _, base = name.partition("::")
    if not base or library in ("aten", "autograd", "torch"):
        return False
    return bool(_OF_OTHERS.search(base)) and not _NOT_ONE_GEMM.search(base)


def gemm_shape(name: str, arguments: OperatorArguments) -> GemmShape | None:
    """The GEMM that the operator `name` computes with `arguments`; None if they do not specify
    it."""
    tensors = _tensors(arguments)
    places = OPERAND_PLACES.get(name)
    if places is None:
        return _of_other_library(name, tensors) if is_gemm_operator(name) else None
    if max(places) >= len(tensors):
        return None
    a, b = (tensors[place] for place in places)
    shape = _product(a, _transposed(b) if name in _LINEAR else b)
    if shape is None or name not in SCALED_OPERATORS:
        return shape
    factors = _factors(arguments)
    scaling = "tensor" if factors == 1 else "row" if factors == shape.m else "block"
    return shape._replace(scaling=scaling)


def _factors(arguments: OperatorArguments) -> int:
    """The scaling of A, from the number of its factors: the third argument, in newer operators a
    list of tensors, the first of which has a factor for each of the smallest parts."""
    shapes = decoded_list(arguments.shapes)
    sizes = shapes[2] if len(shapes) > 2 else []
    if isinstance(sizes, list) and sizes and isinstance(sizes[0], list):
        sizes = sizes[0]
    return math.prod(_sizes(sizes))


def unpacked_for(shape: GemmShape, kernel_dtype: str | None) -> GemmShape:
    """`shape`, whose operator names its operands bytes, as a kernel of fp4 multiplies it: each byte
    holds two numbers along k."""
    if kernel_dtype != "e2m1" or shape.dtype not in _BYTES:
        return shape
    return shape._replace(k=2 * shape.k, dtype=kernel_dtype, scaling="block")


def _of_other_library(name: str, tensors: Sequence[_Tensor]) -> GemmShape | None:
    """The only product that fits (a, b ...) or (out, a, b ...), with b as (k, n) or (n, k)."""
    found = []
    for first, (a, b) in enumerate(pairwise(tensors[:3])):
        for right in (b, _transposed(b)) if len(a.shape) > 1 and len(b.shape) == 2 else ():
            shape = _product(*_packed(name, a, right))
            if shape and (not first or (*a.shape[:-1], shape.n) == tensors[0].shape):
                found.append((first, shape))
    # If the result is among the arguments, it determines the interpretation.
    readings = {s[:3] for first, s in found if first} or {s[:3] for _, s in found}
    if len(readings) != 1:
        return None
    fitting = [shape for _, shape in found if shape[:3] in readings]
    # A square b is ambiguous: its layout is unknown.
    shape = fitting[0] if len(fitting) == 1 else fitting[0]._replace(layout=None)
    # fp4 always has factors by block.
    return shape._replace(scaling="block") if "e2m1" in (shape.dtype or "") else shape


def _product(a: _Tensor, b: _Tensor) -> GemmShape | None:
    """Product by torch.matmul's rules: vectors are rows or columns, leading dimensions are a
    batch."""
    if not a.shape or not b.shape or min(*a.shape, *b.shape) < 1:
        return None
    left = a if len(a.shape) > 1 else _Tensor((1, *a.shape), (), a.dtype, a.packed)
    right = b if len(b.shape) > 1 else _Tensor((*b.shape, 1), (), b.dtype, b.packed)
    left, right = _unpacked(left, -1), _unpacked(right, -2)
    (m, k), (rows, n) = left.shape[-2:], right.shape[-2:]
    if k != rows:
        return None
    lead = left.shape[:-2]
    if len(right.shape) == 2:
        m, batch = m * math.prod(lead), 1
    else:
        try:
            batch = math.prod(np.broadcast_shapes(lead, right.shape[:-2]))
        except ValueError:
            return None
        if batch > MOST_ELEMENTS:
            return None
    layout = "".join(_letter(one) or "" for one in (left, right))
    dtype = ":".join(dict.fromkeys(filter(None, (a.dtype, b.dtype))))
    return GemmShape(m, n, k, batch, dtype or None, layout if len(layout) == 2 else None)


def _packed(name: str, a: _Tensor, b: _Tensor) -> tuple[_Tensor, _Tensor]:
    """Operands of other libraries, whose narrow formats are stored in bytes or words: only the
    operator's name or the sizes show how many numbers each holds.

    Args:
        name: of the operator, which may state a format of 4 bits.
        a: (..., m, k). b: (..., k, n).
    """
    narrow = None
    name = name.lower()
    if re.search(_FOUR_BITS, name):
        narrow = "e2m1" if re.search(_FLOATS_OF_FOUR_BITS, name) else "s4"
    if b.dtype in _WORDS and a.dtype not in _WORDS:
        # 8 numbers of 4 bits in a word, along k or along n; other widths along k.
        k, (rows, columns) = a.shape[-1], b.shape[-2:]
        several = k // rows if rows and k % rows == 0 else 0
        if (several == 8 and narrow) or (several in (4, 8, 16) and "gptq" in name):
            return a, b._replace(dtype=narrow or f"s{32 // several}", packed=several)
        if several == 1 and narrow:
            wide = 8 * columns
            return a, _Tensor((*b.shape[:-1], wide), b.strides and (wide, 1), narrow)
        return a, b._replace(shape=())
    if b.dtype not in _BYTES:
        return a, b
    if narrow and a.dtype in _BYTES and a.shape[-1] == b.shape[-2]:
        a, b = (one._replace(dtype=narrow, packed=2) for one in (a, b))
    elif a.shape[-1] == 2 * b.shape[-2]:
        b = b._replace(dtype=narrow or "s4", packed=2)
    return a, b


def _unpacked(tensor: _Tensor, of_k: int) -> _Tensor:
    """`tensor` in numbers: those of a stored element follow each other along the dimension of
    consecutive elements, or k where strides are missing."""
    if tensor.packed == 1:
        return tensor
    strides, axis, other = tensor.strides, of_k, -3 - of_k
    if len(strides) == len(tensor.shape) and strides[of_k] != 1 and strides[other] == 1:
        axis = other
    shape = list(tensor.shape)
    shape[axis] *= tensor.packed
    scaled = [stride * tensor.packed for stride in strides]
    if scaled:
        scaled[axis] = strides[axis]
    return _Tensor(tuple(shape), tuple(scaled), tensor.dtype)


def _letter(tensor: _Tensor) -> str | None:
    """t: row-major, n: column-major, with or without padding between rows; None: unknown or
    neither."""
    if len(tensor.strides) != len(tensor.shape) or len(tensor.shape) < 2:
        return None
    rows, columns = tensor.shape[-2:]
    row_stride, column_stride = tensor.strides[-2:]
    if column_stride == 1 and (row_stride >= columns or rows == 1):
        return "t"
    return "n" if row_stride == 1 and (column_stride >= rows or columns == 1) else None


def _transposed(tensor: _Tensor) -> _Tensor:
    def swap(sizes: tuple[int, ...]) -> tuple[int, ...]:
        return (*sizes[:-2], sizes[-1], sizes[-2]) if len(sizes) > 1 else sizes

    return tensor._replace(shape=swap(tensor.shape), strides=swap(tensor.strides))


def _tensors(arguments: OperatorArguments) -> list[_Tensor]:
    """The arguments in order; arguments that are not tensors have no sizes."""
    texts = (arguments.shapes, arguments.dtypes, arguments.strides)
    shapes, dtypes, strides = map(decoded_list, texts)
    tensors = []
    for shape, dtype, stride in zip_longest(shapes, dtypes, strides):
        sizes = _sizes(shape)
        sizes = sizes if math.prod(sizes) <= MOST_ELEMENTS else ()
        tensors.append(_Tensor(sizes, _sizes(stride), tensor_format(dtype), packed_in(dtype)))
    return tensors[: len(shapes)]


def _sizes(value: Any) -> tuple[int, ...]:
    is_whole = isinstance(value, list) and all(type(size) is int for size in value)
    return tuple(value) if is_whole else ()


def tensor_format(spelling: Any) -> str | None:
    """Name in gemmetry of a tensor's type in a trace (``c10::BFloat16``, ``signed char``); None if
    it is unknown."""
    if not isinstance(spelling, str):
        return None
    packed = _PACKED.get(spelling.rpartition("::")[2].lower())
    return packed[0] if packed else _SPELLINGS.get(spelling) or number_format(spelling)


def packed_in(spelling: Any) -> int:
    """Count of numbers in an element of a tensor's type, such as 2 of
    ``c10::Float4_e2m1fn_x2``."""
    return _PACKED.get(str(spelling).rpartition("::")[2].lower(), ("", 1))[1]


Integers = npt.NDArray[np.integer[Any]]


_DENSE = 4
"""Number of possible codes per row up to which a table of all codes is faster than sorting."""

_WIDEST = 2**31
"""Different numbers of a column, more than there can be rows: two such make a pair of 62 bits."""


def distinct_rows(*columns: Integers) -> tuple[Int64, Int64]:
    """The distinct rows of a table of integers, and the index of each row among them.

    The same as ``np.unique(..., axis=0)`` with ``return_inverse``, which compares whole rows:
    several times slower, and with several copies of the table in memory.

    Args:
        columns: (rows,) each, at least one.

    Returns:
        (distinct rows, columns) in ascending order, the first column before the second; (rows,).
    """
    rows = len(columns[0])
    code, span = np.zeros(rows, np.int64), 1
    for column in columns:
        low = int(column.min(initial=0))
        width = int(column.max(initial=0)) - low + 1
        if width > _WIDEST:
            column, low, width = np.unique(column, return_inverse=True)[1], 0, rows
        if span * width > _WIDEST**2:
            code, span = np.unique(code, return_inverse=True)[1], rows
        code *= width
        code += column
        code -= low
        span *= width
    which = _ranks(code, span)
    # Any of several equal rows represents them.
    example = np.empty(int(which.max(initial=-1)) + 1, np.int64)
    example[which] = np.arange(rows)
    return np.column_stack([column[example] for column in columns]).astype(np.int64), which


def _ranks(code: Int64, span: int) -> Int64:
    """The index of each code among the distinct ones; codes are from 0 to below `span`."""
    if span <= _DENSE * len(code):
        present = np.zeros(span, bool)
        present[code] = True
        return (np.cumsum(present) - 1)[code]
    order = np.argsort(code, kind="stable")
    ordered = code[order]
    code[order] = np.cumsum(np.append(False, ordered[1:] != ordered[:-1])[: len(code)])
    return code


_CONVOLUTION = re.compile(r"(?:\A|::|_)(?:\w{0,40}_)?conv(?:olution|[123]d|_|\Z)", re.IGNORECASE)
_BACKWARD = re.compile(r"\A\w{0,40}Conv(?:olution|[123]d)\w{0,20}Backward", re.IGNORECASE)
_LOOKED_AT = 256
"""Number of characters of an operator's name that are read."""


def is_convolution_operator(name: str) -> bool:
    """Whether an operator of this name is a convolution or the gradient of one:
    ``aten::cudnn_convolution``, ``aten::conv2d``, ``CudnnConvolutionBackward``."""
    name = name[:_LOOKED_AT]
    is_operator = "::" in name and _CONVOLUTION.search(name.rpartition("::")[2]) is not None
    return is_operator or _BACKWARD.match(name) is not None


def launched_by_convolution(rows: TraceRows, launches: JoinedLaunches) -> Bools:
    """For each row of ``rows.gpu``: whether, going outwards from its launch, a convolution operator
    comes before any operator that is one GEMM. False for work of graphs, whose operators are
    unknown."""
    names = rows.operators.name
    is_convolution = np.array([is_convolution_operator(name) for name in rows.names], bool)[names]
    stops = np.array([is_gemm_operator(name) for name in rows.names], bool)[names] | is_convolution
    start = np.where(launches.from_graph, NONE, launches.operator)
    at = enclosing_operator(start, launches.parent, np.where(stops, 0, NONE))
    return np.append(is_convolution, False)[at]
