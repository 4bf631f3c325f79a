"""Number formats of operands, results and accumulators.

Significand and exponent facts: IEEE 754-2019 (f64, f32, f16), the bfloat16 and TF32 definitions
of Intel and NVIDIA, "FP8 Formats for Deep Learning" (arXiv 2209.05433) for e4m3 and e5m2, and the
OCP Microscaling Formats (MX) Specification 1.0, section 5, for e2m1 and e8m0.

Scale factors of blocks: one factor for so many rows by so many elements along K.

The factor of element (i, k) of A is ``scale_a[i // rows, k // depth]``, that of element (k, j) of B
``scale_b[k // depth, j // columns]``; the last block along an axis may be shorter. docs/names.md
has the grammar of the names, docs/block-scaled.md the formats.

What is computed: an Operation is a Signature (everything but the size) and a shape.

    C = epilogue(alpha · scale_a · scale_b · A @ B + beta · C)

where factors of blocks (:mod:`gemmetry.domain.operation`) apply to the elements of A and B.
FLOPs and bytes follow the field's convention: 2·M·N·K multiply-adds, and *compulsory* traffic,
each input read once and the output written once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import NamedTuple

from gemmetry.domain.errors import RequestError, UnknownNameError


@dataclass(frozen=True, slots=True, eq=False)  # There is one object per format.
class DType:
    """A number format.

    ``significand_bits`` counts the hidden bit (f32: 24), so the unit roundoff of
    round-to-nearest is ``2**-significand_bits``; it is 0 for integers.
    """

    name: str
    storage_bits: int
    significand_bits: int
    maximum: float
    """Largest finite value."""
    description: str

    @property
    def is_integer(self) -> bool:
        return self.significand_bits == 0

    @property
    def is_fp8(self) -> bool:
        return self.storage_bits == 8 and self.significand_bits > 1

    @property
    def itemsize(self) -> int:
        """Bytes of one stored element (tf32 is stored in 4); 1 for e2m1, two of which share a byte
        on a GPU."""
        return max(self.storage_bits // 8, 1)

    @property
    def unit_roundoff(self) -> float:
        """Largest relative error of rounding to nearest; 0 for integers."""
        return 0.0 if self.is_integer else 2.0**-self.significand_bits

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        """Copies and unpickled objects are the one object of the format."""
        return parse_dtype, (self.name,)


F64 = DType("f64", 64, 53, 1.7976931348623157e308, "IEEE 754 binary64")
F32 = DType("f32", 32, 24, 3.4028234663852886e38, "IEEE 754 binary32")
TF32 = DType("tf32", 32, 11, 3.4011621342146535e38, "10-bit mantissa, stored as binary32")
F16 = DType("f16", 16, 11, 65504.0, "IEEE 754 binary16")
BF16 = DType("bf16", 16, 8, 3.3895313892515355e38, "bfloat16: binary32's exponent, 7-bit mantissa")
E4M3 = DType("e4m3", 8, 4, 448.0, "fp8 E4M3 (OCP, finite only)")
E5M2 = DType("e5m2", 8, 3, 57344.0, "fp8 E5M2 (OCP)")
E4M3FNUZ = DType("e4m3fnuz", 8, 4, 240.0, "fp8 E4M3 of AMD gfx942: no infinity, one zero")
E5M2FNUZ = DType("e5m2fnuz", 8, 3, 57344.0, "fp8 E5M2 of AMD gfx942: no infinity, one zero")
E2M1 = DType("e2m1", 4, 2, 6.0, "fp4 E2M1 (OCP, finite only): 0, 0.5, 1, 1.5, 2, 3, 4, 6")
E8M0 = DType("e8m0", 8, 1, 2.0**127, "scale factors (OCP): powers of two from 2^-127, and NaN")
S8 = DType("s8", 8, 0, 127.0, "signed 8-bit integer")
S32 = DType("s32", 32, 0, 2147483647.0, "signed 32-bit integer")

DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (F64, F32, TF32, F16, BF16, E4M3, E5M2, E4M3FNUZ, E5M2FNUZ, E2M1, E8M0, S8, S32)
}

DTYPE_ALIASES: dict[str, str] = {
    "fp64": "f64", "float64": "f64", "double": "f64",
    "fp32": "f32", "float32": "f32", "float": "f32",
    "fp16": "f16", "float16": "f16", "half": "f16",
    "bfloat16": "bf16",
    "fp8": "e4m3", "fp8e4m3": "e4m3", "float8_e4m3fn": "e4m3", "f8e4m3fn": "e4m3",
    "fp8e5m2": "e5m2", "float8_e5m2": "e5m2", "f8e5m2": "e5m2",
    "float8_e4m3fnuz": "e4m3fnuz", "float8_e5m2fnuz": "e5m2fnuz",
    "float8e4m3fn": "e4m3", "float8e5m2": "e5m2",
    "fp4": "e2m1", "float4e2m1fn": "e2m1", "float4_e2m1fn": "e2m1", "f4e2m1fn": "e2m1",
    "float8e8m0fnu": "e8m0", "float8_e8m0fnu": "e8m0", "f8e8m0fnu": "e8m0", "ue8m0": "e8m0",
    "int8": "s8", "i8": "s8", "int32": "s32", "i32": "s32",
}  # fmt: skip


def parse_dtype(text: str) -> DType:
    """The format named `text`, by its name here or an alias (``fp16``, ``bfloat16``, ``int8``).

    Raises:
        UnknownNameError: no such format.
    """
    key = text.strip().lower()
    key = DTYPE_ALIASES.get(key, key)
    if key not in DTYPES:
        raise UnknownNameError("dtype", text, [*DTYPES, *DTYPE_ALIASES])
    return DTYPES[key]


def default_accumulator(lhs: DType, rhs: DType, result: DType) -> DType:
    """The accumulator of an operation whose name does not specify one: the widest in common use.

    It is f64 for f64 inputs, s32 for integers and f32 otherwise, as in cuBLAS, MKL and XLA.
    """
    if lhs.is_integer:
        return S32
    return F64 if F64 in (lhs, rhs, result) else F32


def default_result(lhs: DType, rhs: DType) -> DType:
    """The result type used when a request names only the inputs: s8→s32, fp8 and fp4→bf16,
    tf32→f32."""
    if lhs.is_integer:
        return S32
    if lhs is TF32 or rhs is TF32:
        return F32
    if min(lhs.storage_bits, rhs.storage_bits) <= 8:
        return BF16
    return lhs if lhs.storage_bits >= rhs.storage_bits else rhs


SCALE_FORMATS = (E8M0, E4M3, F32)
"""Formats of the factors: powers of two (OCP MX), e4m3 (NVFP4), f32 (fp8 by 1×128 and 128×128)."""

_TEXT = re.compile(
    r"vs(?P<lhs>\d{1,6}(?:x\d{1,6})?)(?:_vs(?P<rhs>\d{1,6}(?:x\d{1,6})?))?"
    rf"(?:_(?P<dtype>{'|'.join(map(str, SCALE_FORMATS))}))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class BlockScaling:
    """The blocks of A and B that share a factor, and the format of the factors."""

    depth: int
    """Elements along K."""
    dtype: DType = F32
    rows: int = 1
    """Rows of A."""
    columns: int = 1
    """Columns of B."""

    def __str__(self) -> str:
        """``vs16_e8m0``, ``vs1x128``, ``vs1x128_vs128x128``: blocks of one row with factors of 8
        bits are written as a vector's size, as hardware calls them."""
        is_vector = self.rows == self.columns == 1 and self.dtype is not F32
        blocks = [f"vs{self.depth}"] if is_vector else [f"vs{self.rows}x{self.depth}"]
        if self.columns != self.rows:
            blocks.append(f"vs{self.columns}x{self.depth}")
        return "_".join(blocks if self.dtype is F32 else [*blocks, str(self.dtype)])

    @property
    def of_lines(self) -> BlockScaling:
        """Scaling with one factor for each row of A and each column of B."""
        return BlockScaling(self.depth, self.dtype)

    @property
    def problem(self) -> str:
        """Reason why the scaling does not exist; "" if it does."""
        if min(self.depth, self.rows, self.columns) < 1:
            return "blocks have at least one row and one element"
        if self.dtype not in SCALE_FORMATS:
            return f"factors are {', '.join(map(str, SCALE_FORMATS))}, not {self.dtype}"
        return ""


def parse_block_scaling(text: str) -> BlockScaling | None:
    """The inverse of ``str``, which also reads ``vs128`` for ``vs1x128`` and a format that is
    usually left out; None for other texts and for blocks of A and B that differ along K."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    sides = (match["lhs"].split("x"), (match["rhs"] or match["lhs"]).split("x"))
    (rows, depth), (columns, depth_b) = ((int(side[0]) if side[1:] else 1, int(side[-1]))
                                         for side in sides)  # fmt: skip
    dtype = next((d for d in SCALE_FORMATS if d.name == match["dtype"]), F32)
    scaling = BlockScaling(depth, dtype, rows, columns)
    return scaling if depth == depth_b and not scaling.problem else None


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
    :class:`~gemmetry.domain.operation.BlockScaling`."""

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
        """Bytes as the formats define them: two elements of e2m1 share a byte."""
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


def _check_signature(s: Signature) -> None:
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
        else:
            m, n, k, _ = self.shape
            lead = self._lead
            tensors = [
                TensorSpec("lhs", (*lead, m, k), s.lhs, s.lhs_layout),
                TensorSpec("rhs", (*lead, k, n), s.rhs, s.rhs_layout),
            ]
            if s.beta != 0:
                tensors.append(TensorSpec("addend", self.output.shape, s.result, s.result_layout))
            if s.scaling is not Scaling.NONE:
                tensors += self._factors(m, n, k)
        if EpilogueStep.BIAS in s.epilogue:
            tensors.append(TensorSpec("bias", self.output.shape[-1:], s.result))
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
        return (self.matmul_shape.batch,) if self.kind is OperationKind.BATCH_MATMUL else ()

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
def _suffix(s: Signature) -> str:
    scale = "" if s.scaling is Scaling.NONE else f"scale{s.scaling}"
    has_own_accumulator = s.accumulator is not default_accumulator(s.lhs, s.rhs, s.result)
    parts = (
        f"_{s.lhs}{s.lhs_layout}_{s.rhs}{s.rhs_layout}_{s.result}{s.result_layout}",
        f"slices{s.split_k_slices}" if s.split_k_slices > 1 else "",
        f"acc{s.accumulator}" if has_own_accumulator else "",
        scale if s.blocks is None else str(s.blocks),
        "" if s.alpha == 1 else f"alpha{print_number(s.alpha)}",
        "" if s.beta == 0 else f"beta{print_number(s.beta)}",
        *s.epilogue,
    )
    return "_".join(filter(None, parts))


def operation_namer(signature: Signature) -> Callable[[MatmulShape | Conv2dShape], str]:
    """A function from shape to name for one signature; fast enough to enumerate millions of
    names."""
    kind, suffix = signature.kind, _suffix(signature)
    if kind is OperationKind.CONV2D:
        form = f"{kind}_%sx%sx%sx%s_%sx%sx%s_stride%sx%s_pad%sx%s{suffix}"
        return lambda shape: form % shape
    if kind is OperationKind.BATCH_MATMUL:
        form = f"{kind}_%sx%sx%sx%s{suffix}"
        return lambda shape: form % (shape[3], *shape[:3])
    return lambda shape: f"{kind}_{shape[0]}x{shape[1]}x{shape[2]}{suffix}"


def operation_name(operation: Operation) -> str:
    """The canonical name, e.g. ``matmul_3456x1024x2048_f16t_f16t_f16t``."""
    return operation_namer(operation.signature)(operation.shape)
