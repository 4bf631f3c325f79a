"""What is computed: an Operation is a Signature (everything but the size) and a shape.

    C = epilogue(alpha · scale_a · scale_b · A @ B + beta · C)

where factors of blocks (:mod:`gemmetry.domain.block_scaling`) apply to the elements of A and B.
FLOPs and bytes follow the field's convention: 2·M·N·K multiply-adds, and *compulsory* traffic,
each input read once and the output written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import NamedTuple

from gemmetry.domain.block_scaling import BlockScaling, parse_block_scaling
from gemmetry.domain.dtypes import (
    BF16,
    E2M1,
    E8M0,
    F16,
    F32,
    F64,
    S32,
    TF32,
    DType,
    default_accumulator,
)
from gemmetry.domain.errors import RequestError, UnknownNameError


class OperationKind(StrEnum):
    """Kinds of operation; the value is the first part of the name."""

    MATMUL = "matmul"
    BATCH_MATMUL = "batch_matmul"
    MATMUL_SPLITK = "matmul_splitk"
    CONV2D = "conv2d"


class Layout(StrEnum):
    """Memory layout of a tensor; matrix letters follow the BLAS (t = row-major)."""

    ROW = "t"
    COLUMN = "n"
    NHWC = "nhwc"
    HWCF = "hwcf"


class EpilogueStep(StrEnum):
    """An element-wise step fused after the product; steps apply in the order listed."""

    BIAS = "bias"
    """Add a vector of length N to every row."""
    RELU = "relu"
    GELU = "gelu"
    """x·Φ(x) with the exact error function (torch's default, not the tanh form)."""
    RESIDUAL = "residual"
    """Add a tensor of the output's shape."""


class Scaling(StrEnum):
    """Factors that dequantise narrow inputs, in f32; those of blocks are a
    :class:`~gemmetry.domain.block_scaling.BlockScaling`."""

    NONE = "none"
    TENSOR = "tensor"
    """One factor for A, one for B."""
    ROW = "row"
    """One factor per row of A and per column of B."""


def parse_scaling(text: str) -> Scaling | BlockScaling:
    """``none``, ``tensor``, ``row``, or blocks as in names (``vs32_e8m0``, ``vs1x128``).

    Raises:
        UnknownNameError: none of these.
    """
    name = text.strip().lower()
    blocks = parse_block_scaling(name)
    if blocks is None and name not in tuple(Scaling):
        examples = ("vs32_e8m0", "vs16_e4m3", "vs1x128", "vs1x128_vs128x128")
        raise UnknownNameError("scaling", text, [*Scaling, *examples])
    return Scaling(name) if blocks is None else blocks


class MatmulShape(NamedTuple):
    """A is (batch, m, k), B is (batch, k, n), C is (batch, m, n); batch is 1 for a plain matmul."""

    m: int
    n: int
    k: int
    batch: int = 1


class Conv2dShape(NamedTuple):
    """Input (n, h, w, c), filter (r, s, c, f), output (n, p, q, f); padding is zeros."""

    n: int
    h: int
    w: int
    c: int
    r: int
    s: int
    f: int
    stride_h: int = 1
    stride_w: int = 1
    pad_h: int = 0
    pad_w: int = 0

    @property
    def p(self) -> int:
        """Output height."""
        return (self.h + 2 * self.pad_h - self.r) // self.stride_h + 1

    @property
    def q(self) -> int:
        """Output width."""
        return (self.w + 2 * self.pad_w - self.s) // self.stride_w + 1


Shape = MatmulShape | Conv2dShape


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of an operation: its role, logical shape and how it is stored.

    ``shape`` is logical, e.g. (M, K); ``storage_shape`` is the C-contiguous array that is
    allocated, e.g. (K, M) for a column-major A.
    """

    role: str
    """lhs, rhs, addend (the C of beta·C), scale_a, scale_b, bias, residual or result."""
    shape: tuple[int, ...]
    dtype: DType
    layout: Layout = Layout.ROW

    @property
    def storage_shape(self) -> tuple[int, ...]:
        if self.layout is Layout.COLUMN:
            return (*self.shape[:-2], self.shape[-1], self.shape[-2])
        return self.shape

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """As the formats define them: two elements of e2m1 share a byte."""
        return -(-self.elements * self.dtype.storage_bits // 8)


@dataclass(frozen=True, slots=True)
class Signature:
    """Everything that defines the result except the size; validated once, shared by many shapes."""

    kind: OperationKind
    lhs: DType
    rhs: DType
    result: DType
    lhs_layout: Layout = Layout.ROW
    rhs_layout: Layout = Layout.ROW
    result_layout: Layout = Layout.ROW
    accumulator: DType = field(default=None)  # type: ignore[assignment]  # None: the default one
    split_k_slices: int = 1
    scaling: Scaling | BlockScaling = Scaling.NONE
    alpha: float = 1.0
    beta: float = 0.0
    epilogue: tuple[EpilogueStep, ...] = ()

    def __post_init__(self) -> None:
        if self.accumulator is None:
            accumulator = default_accumulator(self.lhs, self.rhs, self.result)
            object.__setattr__(self, "accumulator", accumulator)
        _check_signature(self)

    @property
    def blocks(self) -> BlockScaling | None:
        """The blocks that have scale factors, if that is how the operands are scaled."""
        return self.scaling if isinstance(self.scaling, BlockScaling) else None

    @property
    def layout_pair(self) -> str:
        """``tt``, ``tn``, ``nt`` or ``nn`` for a matmul; ``nhwc_hwcf`` for a convolution."""
        joint = "_" if self.kind is OperationKind.CONV2D else ""
        return f"{self.lhs_layout}{joint}{self.rhs_layout}"


def _check_signature(signature: Signature) -> None:
    s = signature
    problem = ""
    matrix = {Layout.ROW, Layout.COLUMN}
    is_conv = s.kind is OperationKind.CONV2D
    layouts = (s.lhs_layout, s.rhs_layout, s.result_layout)
    if is_conv and layouts != (Layout.NHWC, Layout.HWCF, Layout.NHWC):
        problem = "conv2d takes an nhwc input, an hwcf filter and an nhwc result"
    elif not is_conv and not matrix.issuperset(layouts):
        problem = "a matmul takes the layouts t (row-major) and n (column-major)"
    elif s.lhs.is_integer != s.rhs.is_integer or s.lhs.is_integer != s.result.is_integer:
        problem = "integer and floating-point operands cannot be mixed"
    elif s.lhs.is_integer and (s.result is not S32 or s.accumulator is not S32):
        problem = "integer products accumulate in s32 and return it (s8 would wrap around)"
    elif not s.lhs.is_integer and s.accumulator not in (F64, F32, F16, BF16):
        problem = f"{s.accumulator} is not an accumulator format; use f64, f32, f16 or bf16"
    elif E8M0 in (s.lhs, s.rhs, s.result) or s.result is E2M1:
        problem = "e8m0 is a format of scale factors, and e2m1 one of inputs"
    elif s.blocks is not None and s.blocks.problem:
        problem = s.blocks.problem
    elif s.blocks is not None and max(s.lhs.storage_bits, s.rhs.storage_bits) > 8:
        problem = "blocks with scale factors have elements of 8 or 4 bits"
    elif s.result is TF32:
        problem = "tf32 is an input format; the result of a tf32 product is f32"
    elif s.split_k_slices < 1 or (s.split_k_slices > 1) != (s.kind is OperationKind.MATMUL_SPLITK):
        problem = "matmul_splitk takes 2 or more slices, the other kinds none"
    elif not (math.isfinite(s.alpha) and math.isfinite(s.beta)):
        problem = "alpha and beta must be finite"
    elif s.lhs.is_integer and (s.alpha != 1 or s.beta not in (0, 1) or s.scaling != Scaling.NONE):
        problem = "integer products take alpha 1, beta 0 or 1 and no scaling"
    elif s.lhs.is_integer and EpilogueStep.GELU in s.epilogue:
        problem = "gelu needs a floating-point result"
    elif len(set(s.epilogue)) != len(s.epilogue):
        problem = "an epilogue step appears twice"
    elif is_conv and (s.alpha != 1 or s.beta != 0 or s.scaling is not Scaling.NONE):
        problem = "conv2d takes no alpha, beta or scaling"
    if problem:
        raise RequestError(
            f"invalid {s.kind} of {s.lhs}, {s.rhs} -> {s.result}: {problem}",
            hint="See gemmetry help names for what each kind of operation accepts.",
        )


@dataclass(frozen=True)  # Without slots: its tensors are needed at every launch, and cached.
class Operation:
    """A Signature at one shape: the complete definition of a result.

    Construction does not validate the shape, as a plan creates millions; :func:`check_shape` does,
    once per axis, where shapes enter.
    """

    signature: Signature
    shape: Shape

    @property
    def kind(self) -> OperationKind:
        return self.signature.kind

    @property
    def matmul_shape(self) -> MatmulShape:
        """The GEMM this operation is; a convolution as its implicit GEMM (n·p·q × f × r·s·c)."""
        shape = self.shape
        if isinstance(shape, MatmulShape):
            return shape
        return MatmulShape(shape.n * shape.p * shape.q, shape.f, shape.r * shape.s * shape.c)

    @property
    def flops(self) -> int:
        """2·batch·M·N·K; by convention, epilogue, alpha and beta are not counted."""
        m, n, k, batch = self.matmul_shape
        return 2 * batch * m * n * k

    @property
    def bytes(self) -> int:
        """Compulsory traffic: every input read once, the result written once."""
        return sum(spec.bytes for spec in self.inputs) + self.output.bytes

    @cached_property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The inputs of an executable, in this order: lhs, rhs, then those of addend, scale_a,
        scale_b, bias and residual that the signature has."""
        s = self.signature
        if isinstance(self.shape, Conv2dShape):
            c = self.shape
            tensors = [
                TensorSpec("lhs", (c.n, c.h, c.w, c.c), s.lhs, Layout.NHWC),
                TensorSpec("rhs", (c.r, c.s, c.c, c.f), s.rhs, Layout.HWCF),
            ]
            channels = c.f
        else:
            m, n, k, _ = self.shape
            lead = self._lead
            tensors = [
                TensorSpec("lhs", (*lead, m, k), s.lhs, s.lhs_layout),
                TensorSpec("rhs", (*lead, k, n), s.rhs, s.rhs_layout),
            ]
            channels = n
            if s.beta != 0:
                tensors.append(TensorSpec("addend", self.output.shape, s.result, s.result_layout))
            if s.scaling is not Scaling.NONE:
                tensors += self._factors(m, n, k)
        if EpilogueStep.BIAS in s.epilogue:
            tensors.append(TensorSpec("bias", (channels,), s.result))
        if EpilogueStep.RESIDUAL in s.epilogue:
            tensors.append(TensorSpec("residual", self.output.shape, s.result, s.result_layout))
        return tuple(tensors)

    def _factors(self, m: int, n: int, k: int) -> tuple[TensorSpec, TensorSpec]:
        """scale_a and scale_b. Factors of blocks are contiguous along K, except f32 factors of
        blocks of one row or column, which are contiguous along M and N, as cuBLAS requires."""
        blocks, lead = self.signature.blocks, self._lead
        if blocks is None:
            rowwise = self.signature.scaling is Scaling.ROW
            return (
                TensorSpec("scale_a", (*lead, m, 1) if rowwise else (1,), F32),
                TensorSpec("scale_b", (*lead, 1, n) if rowwise else (1,), F32),
            )
        depth = -(-k // blocks.depth)
        shape_a = (*lead, -(-m // blocks.rows), depth)
        shape_b = (*lead, depth, -(-n // blocks.columns))
        along_m, along_n = (blocks.dtype is F32 and of == 1 for of in (blocks.rows, blocks.columns))
        return (
            TensorSpec("scale_a", shape_a, blocks.dtype, Layout.COLUMN if along_m else Layout.ROW),
            TensorSpec("scale_b", shape_b, blocks.dtype, Layout.ROW if along_n else Layout.COLUMN),
        )

    @cached_property
    def output(self) -> TensorSpec:
        s = self.signature
        if isinstance(self.shape, Conv2dShape):
            c = self.shape
            return TensorSpec("result", (c.n, c.p, c.q, c.f), s.result, Layout.NHWC)
        m, n, _, _ = self.shape
        return TensorSpec("result", (*self._lead, m, n), s.result, s.result_layout)

    @property
    def _lead(self) -> tuple[int, ...]:
        is_batched = self.kind is OperationKind.BATCH_MATMUL
        return (self.matmul_shape.batch,) if is_batched else ()

    def __str__(self) -> str:
        return operation_name(self)


def check_shape(signature: Signature, shape: Shape) -> None:
    """Reject invalid sizes.

    Raises:
        RequestError: a size is not positive, K is not divisible by the slices, or the output is
            empty.
    """
    problem = ""
    if isinstance(shape, Conv2dShape):
        sizes = {name: size for name, size in shape._asdict().items() if "pad" not in name}
        if shape.pad_h < 0 or shape.pad_w < 0:
            problem = f"padding {shape.pad_h}x{shape.pad_w} is negative"
        elif min(sizes.values()) > 0 and (shape.p < 1 or shape.q < 1):
            problem = f"the filter {shape.r}x{shape.s} is larger than the padded input"
    else:
        sizes = shape._asdict()
        if shape.k > 0 and shape.k % signature.split_k_slices:
            problem = f"k={shape.k} does not divide into {signature.split_k_slices} slices"
    small = [f"{name}={size}" for name, size in sizes.items() if size < 1]
    if small:
        problem = f"{', '.join(small)}: sizes start at 1"
    if problem:
        raise RequestError(
            f"{signature.kind}: {problem}", hint="Give every dimension a positive size that fits."
        )


def print_number(value: float) -> str:
    """A float as a name part: ``m`` for minus, ``p`` for the point (-0.5 -> ``m0p5``)."""
    text = repr(float(value)).removesuffix(".0").replace(".0e", "e").replace("+", "")
    return text.replace("-", "m").replace(".", "p")


@lru_cache(maxsize=4096)
def _suffix(signature: Signature) -> str:
    s = signature
    parts = [
        f"{s.lhs}{s.lhs_layout}",
        f"{s.rhs}{s.rhs_layout}",
        f"{s.result}{s.result_layout}",
    ]
    if s.split_k_slices > 1:
        parts.append(f"slices{s.split_k_slices}")
    plain = Signature(OperationKind.MATMUL, s.lhs, s.rhs, s.result)
    if s.accumulator is not plain.accumulator:
        parts.append(f"acc{s.accumulator}")
    if s.blocks is not None:
        parts.append(str(s.blocks))
    elif s.scaling is not Scaling.NONE:
        parts.append(f"scale{s.scaling}")
    if s.alpha != 1:
        parts.append(f"alpha{print_number(s.alpha)}")
    if s.beta != 0:
        parts.append(f"beta{print_number(s.beta)}")
    parts.extend(s.epilogue)
    return "_" + "_".join(parts)


def operation_namer(signature: Signature) -> Callable[[MatmulShape | Conv2dShape], str]:
    """A function from shape to name for one signature; fast enough to enumerate millions of
    names."""
    prefix, suffix = f"{signature.kind}_", _suffix(signature)
    if signature.kind is OperationKind.CONV2D:

        def name_conv(shape: MatmulShape | Conv2dShape) -> str:
            n, h, w, c, r, s, f, stride_h, stride_w, pad_h, pad_w = Conv2dShape(*shape)
            return (
                f"{prefix}{n}x{h}x{w}x{c}_{r}x{s}x{f}"
                f"_stride{stride_h}x{stride_w}_pad{pad_h}x{pad_w}{suffix}"
            )

        return name_conv
    if signature.kind is OperationKind.BATCH_MATMUL:

        def name_batch(shape: MatmulShape | Conv2dShape) -> str:
            m, n, k, batch = shape[:4]
            return f"{prefix}{batch}x{m}x{n}x{k}{suffix}"

        return name_batch

    def name_matmul(shape: MatmulShape | Conv2dShape) -> str:
        return f"{prefix}{shape[0]}x{shape[1]}x{shape[2]}{suffix}"

    return name_matmul


def operation_name(operation: Operation) -> str:
    """The canonical name, e.g. ``matmul_3456x1024x2048_f16t_f16t_f16t``."""
    return operation_namer(operation.signature)(operation.shape)
