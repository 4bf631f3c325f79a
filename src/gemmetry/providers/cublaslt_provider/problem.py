"""An operation as cuBLASLt sees it: column-major matrices, data types, scale modes, epilogue.

cuBLASLt computes ``D = epilogue(alpha · op(A) · op(B) + beta · C)`` on column-major matrices. A
row-major C is Dᵀ, which is Bᵀ · Aᵀ: the operands change places, and nothing is copied. Numbers are
those of ``library_types.h``, ``cublas_api.h`` and ``cublasLt.h`` of CUDA 13.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag

from gemmetry.domain.dtypes import BF16, E4M3, E5M2, F16, F32, F64, S8, S32, TF32, DType
from gemmetry.domain.operation import EpilogueStep, Layout, Operation, Scaling, TensorSpec


class Compute(IntEnum):
    """``cublasComputeType_t``."""

    F16 = 64
    F32 = 68
    F64 = 70
    S32 = 72
    TF32 = 77


class ScaleMode(IntEnum):
    """``cublasLtMatmulMatrixScale_t``."""

    TENSOR = 0
    LINE = 3
    """One f32 for each row of A or column of B."""
    LINE_128 = 4
    """One f32 for 128 elements of a row of A or column of B."""
    BLOCK_128 = 5
    """One f32 for a block of 128x128."""


class Reduction(IntFlag):
    """``cublasLtReductionScheme_t``: how the parts of a split K are summed."""

    NONE = 0
    INPLACE = 1
    """In the output, in its format."""
    COMPUTE = 2
    """In the workspace, in the accumulator's format."""
    OUTPUT = 4
    """In the workspace, in the output's format."""


CUDA_TYPES: dict[DType, int] = {
    F32: 0, F64: 1, F16: 2, S8: 3, S32: 10, BF16: 14, E4M3: 28, E5M2: 29, TF32: 0,
}  # fmt: skip
"""``cudaDataType_t`` of each format that the provider uses."""

_EPILOGUES = {(False, False): 1, (True, False): 2, (False, True): 4, (True, True): 6}
"""(relu, bias) -> ``cublasLtEpilogue_t``."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A column-major matrix, or a batch of them one after the other."""

    role: str
    """Of the tensor in the operation's inputs, or ``result``."""
    type: int
    rows: int
    columns: int
    batch: int

    @property
    def batch_stride(self) -> int:
        """Elements from one matrix of the batch to the next."""
        return self.rows * self.columns


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmProblem:
    """Everything that cuBLASLt has to know of an operation."""

    a: Matrix
    b: Matrix
    d: Matrix
    """C has the same form."""
    c_role: str
    """The tensor that beta applies to; "": there is none."""
    transposed: tuple[bool, bool]
    """Whether op(A) and op(B) transpose."""
    compute: int
    scale_type: int
    """``cudaDataType_t`` of alpha and beta."""
    alpha: float
    beta: float
    epilogue: int
    has_bias: bool
    scale_modes: tuple[int, int] | None
    """Of the factors of A and B; None: they have none."""
    scale_roles: tuple[str, str] = ("", "")
    reductions: Reduction
    """Schemes that keep partial sums in the accumulator's format."""


def problem_of(operation: Operation) -> GemmProblem:
    """The problem that computes `operation`, which the provider supports."""
    s = operation.signature
    by_role = {spec.role: spec for spec in (*operation.inputs, operation.output)}
    is_turned = s.result_layout is Layout.ROW
    first, second = ("rhs", "lhs") if is_turned else ("lhs", "rhs")
    batch = operation.matmul_shape.batch
    matrices = {role: _matrix(by_role[role], batch) for role in (first, second, "result")}
    bias = EpilogueStep.BIAS in s.epilogue
    c_role = next((role for role in ("addend", "residual") if role in by_role), "")
    scale_modes = None
    if s.scaling is not Scaling.NONE:
        modes = {"lhs": _scale_mode(operation, "lhs"), "rhs": _scale_mode(operation, "rhs")}
        scale_modes = (modes[first], modes[second])
    factors = {"lhs": "scale_a", "rhs": "scale_b"}
    is_exact = s.result is s.accumulator
    return GemmProblem(
        a=matrices[first],
        b=matrices[second],
        d=matrices["result"],
        c_role=c_role,
        transposed=tuple(  # type: ignore[arg-type]
            by_role[role].layout is not s.result_layout for role in (first, second)
        ),
        compute=_compute(s.lhs, s.accumulator),
        scale_type=CUDA_TYPES[s.accumulator],
        alpha=s.alpha,
        beta=1.0 if c_role == "residual" else s.beta,
        epilogue=_EPILOGUES[EpilogueStep.RELU in s.epilogue, bias],
        has_bias=bias,
        scale_modes=scale_modes,
        scale_roles=(factors[first], factors[second]) if scale_modes else ("", ""),
        reductions=Reduction(7) if is_exact else Reduction.COMPUTE,
    )


def _matrix(spec: TensorSpec, batch: int) -> Matrix:
    """A stored array read column by column: its last axis is contiguous, and so are columns."""
    *_, columns, rows = spec.storage_shape
    return Matrix(spec.role, CUDA_TYPES[spec.dtype], rows, columns, batch)


def _compute(lhs: DType, accumulator: DType) -> Compute:
    return Compute.TF32 if lhs is TF32 else Compute[accumulator.name.upper()]


def _scale_mode(operation: Operation, role: str) -> ScaleMode:
    s = operation.signature
    if s.blocks is None:
        return ScaleMode.LINE if s.scaling is Scaling.ROW else ScaleMode.TENSOR
    lines = s.blocks.rows if role == "lhs" else s.blocks.columns
    return ScaleMode.LINE_128 if lines == 1 else ScaleMode.BLOCK_128
