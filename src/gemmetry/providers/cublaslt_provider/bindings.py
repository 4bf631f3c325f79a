"""An operation as cuBLASLt sees it: column-major matrices, data types, scale modes, epilogue.

cuBLASLt computes ``D = epilogue(alpha · op(A) · op(B) + beta · C)`` on column-major matrices. A
row-major C is Dᵀ, which is Bᵀ · Aᵀ: the operands change places, and nothing is copied. Numbers are
those of ``library_types.h``, ``cublas_api.h`` and ``cublasLt.h`` of CUDA 13.

The only module that calls cuBLASLt: ``nvmath.bindings.cublasLt`` with its pointers, sizes and
status codes behind Python objects.

The structures are those of ``cublasLt.h`` (CUDA 13). Needs a driver; the functions that need a
device as well use the current one.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from functools import cache
from typing import Any

import numpy as np

from gemmetry.domain.errors import DispatchError, LaunchError, OutOfMemoryError, UnsupportedError
from gemmetry.domain.operation import (
    BF16,
    E4M3,
    E5M2,
    F16,
    F32,
    F64,
    S8,
    S32,
    TF32,
    DType,
    EpilogueStep,
    Layout,
    Operation,
    Scaling,
    TensorSpec,
)


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
    first, second = ("rhs", "lhs") if s.result_layout is Layout.ROW else ("lhs", "rhs")
    batch = operation.matmul_shape.batch
    matrices = {role: _matrix(by_role[role], batch) for role in (first, second, "result")}
    bias = EpilogueStep.BIAS in s.epilogue
    c_role = next((role for role in ("addend", "residual") if role in by_role), "")
    is_scaled = s.scaling is not Scaling.NONE
    scale_modes = (_scale_mode(operation, first), _scale_mode(operation, second))
    factors = {"lhs": "scale_a", "rhs": "scale_b"}
    return GemmProblem(
        a=matrices[first],
        b=matrices[second],
        d=matrices["result"],
        c_role=c_role,
        transposed=tuple(  # type: ignore[arg-type]
            by_role[role].layout is not s.result_layout for role in (first, second)
        ),
        compute=Compute.TF32 if s.lhs is TF32 else Compute[s.accumulator.name.upper()],
        scale_type=CUDA_TYPES[s.accumulator],
        alpha=s.alpha,
        beta=1.0 if c_role == "residual" else s.beta,
        epilogue=_EPILOGUES[EpilogueStep.RELU in s.epilogue, bias],
        has_bias=bias,
        scale_modes=scale_modes if is_scaled else None,
        scale_roles=(factors[first], factors[second]) if is_scaled else ("", ""),
        reductions=Reduction(7) if s.result is s.accumulator else Reduction.COMPUTE,
    )


def _matrix(spec: TensorSpec, batch: int) -> Matrix:
    """A stored array read column by column: its last axis is contiguous, and so are columns."""
    *_, columns, rows = spec.storage_shape
    return Matrix(spec.role, CUDA_TYPES[spec.dtype], rows, columns, batch)


def _scale_mode(operation: Operation, role: str) -> ScaleMode:
    s = operation.signature
    if s.blocks is None:
        return ScaleMode.LINE if s.scaling is Scaling.ROW else ScaleMode.TENSOR
    lines = s.blocks.rows if role == "lhs" else s.blocks.columns
    return ScaleMode.LINE_128 if lines == 1 else ScaleMode.BLOCK_128


MODULE = "nvmath.bindings.cublasLt"

_UNSUPPORTED = ("NOT_SUPPORTED", "INVALID_VALUE", "ARCH_MISMATCH")
_OUT_OF_MEMORY = "ALLOC_FAILED"
_MOST_IDS = 512
_ALIGNMENT_BYTES = 16
"""Of the buffers that algorithms are chosen for: what gemmetry's devices guarantee."""


class Result(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``: an algorithm (opaque) with the workspace it needs."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )

    @property
    def address(self) -> int:
        """Of the algorithm, which comes first."""
        return ctypes.addressof(self)

    @property
    def stored(self) -> str:
        """The algorithm as hexadecimal digits, which the same version of the library can use
        again."""
        return bytes(self.algorithm).hex()

    def copy(self) -> Result:
        """One that can be changed independently."""
        return Result.from_buffer_copy(self)


def stored_result(digits: str, workspace_bytes: int) -> Result:
    """The inverse of :attr:`Result.stored`.

    Raises:
        ValueError: these are no digits of an algorithm.
    """
    found = Result(workspace_bytes=workspace_bytes)
    data = bytes.fromhex(digits)
    size = ctypes.sizeof(found.algorithm)
    if len(data) != size:
        raise ValueError(f"an algorithm has {size} bytes, not {len(data)}")
    ctypes.memmove(found.address, data, len(data))
    return found


@cache
def library() -> Any:
    """The module of nvmath-python."""
    from importlib import import_module

    return import_module(MODULE)


@cache
def members(enumeration: str) -> Mapping[str, int]:
    """Names and values of an enumeration of the bindings."""
    return {name: int(value) for name, value in getattr(library(), enumeration).__members__.items()}


def version() -> str:
    """``13.2.2``: that of the library in use.

    Raises:
        LaunchError: the library or the driver is missing.
    """
    with errors("loading cuBLASLt"):
        number = int(library().get_version())
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


@contextmanager
def errors(doing: str) -> Iterator[None]:
    """Turn the bindings' exceptions within the context into those of a dispatch."""
    try:
        yield
    except DispatchError:
        raise
    except Exception as error:  # cuBLASLtError, and what loading a library raises
        raise _translated(error, doing) from error


def _translated(error: Exception, doing: str) -> DispatchError:
    text = str(error).strip().partition(". You can set")[0]
    line = next(iter(text.splitlines()), "") or type(error).__name__
    message = f"cuBLASLt failed while {doing}: {line}"
    if any(f"CUBLAS_STATUS_{status}" in text for status in _UNSUPPORTED):
        return UnsupportedError(message)
    if f"CUBLAS_STATUS_{_OUT_OF_MEMORY}" in text:
        return OutOfMemoryError(message, hint="Use a smaller shape, or free memory of the device.")
    return LaunchError(message, hint="CUBLASLT_LOG_LEVEL=5 makes the library log its calls.")


@cache
def handle(device_index: int) -> int:
    """The library's handle for a device, which is the current one; it lives as long as the process,
    and all threads may use it."""
    with errors(f"opening cuda:{device_index}"):
        return int(library().create())


class Matmul:
    """A problem as the library's descriptors. The device that `handle` belongs to is current."""

    def __init__(self, problem: GemmProblem, lt_handle: int, workspace_bytes: int) -> None:
        """
        Args:
            workspace_bytes: what an algorithm may use at most.
        """
        self._lt, self._handle = library(), lt_handle
        self._problem, self._limit = problem, workspace_bytes
        self._lock = threading.Lock()
        self._close: list[Callable[[], None]] = []
        self._pointers: dict[int, ctypes.c_int64] = {}
        self._factors = (_scalar(problem.alpha, problem), _scalar(problem.beta, problem))
        self._scalars = [ctypes.addressof(factor) for factor in self._factors]
        with errors("describing a product"):
            self._desc = self._described()
            self._layouts = [self._layout(one) for one in (problem.a, problem.b, problem.d)]

    def close(self) -> None:
        """Free the descriptors."""
        while self._close:
            self._close.pop()()

    def proposals(self, count: int) -> list[Result]:
        """What the heuristic proposes, the most promising first; [] if there is none."""
        lt, found = self._lt, (Result * count)()
        returned = ctypes.c_int(0)
        with errors("asking its heuristic"):
            preference = lt.matmul_preference_create()
        try:
            with errors("asking its heuristic"):
                limits = {
                    "MAX_WORKSPACE_BYTES": self._limit,
                    "REDUCTION_SCHEME_MASK": int(self._problem.reductions),
                    **{f"MIN_ALIGNMENT_{matrix}_BYTES": _ALIGNMENT_BYTES for matrix in "ABCD"},
                }
                for name, value in limits.items():
                    self._set("matmul_preference", preference, name, value)
                lt.matmul_algo_get_heuristic(
                    self._handle, self._desc, *self._four_layouts, preference, count,
                    ctypes.addressof(found), ctypes.addressof(returned),
                )  # fmt: skip
        except UnsupportedError:
            return []
        finally:
            lt.matmul_preference_destroy(preference)
        return [one.copy() for one in found[: returned.value] if one.state == 0]

    def ids(self) -> list[int]:
        """Identifiers of all algorithms for these formats."""
        with errors("listing its algorithms"):
            found = self._lt.matmul_algo_get_ids(self._handle, *self._formats, _MOST_IDS)
        return [int(one) for one in found]

    def initialised(self, algorithm_id: int) -> Result:
        """An algorithm with the library's own values.

        Raises:
            UnsupportedError: the algorithm is not for these formats.
        """
        found = Result()
        with errors(f"preparing the algorithm {algorithm_id}"):
            self._lt.matmul_algo_init(self._handle, *self._formats, algorithm_id, found.address)
        return found

    def checked(self, result: Result) -> Result | None:
        """The algorithm with the workspace it needs; None if it does not compute this problem, or
        needs more workspace than is allowed."""
        found = Result()
        try:
            with errors("checking an algorithm"):
                self._lt.matmul_algo_check(
                    self._handle, self._desc, *self._four_layouts, result.address, found.address
                )
        except UnsupportedError:
            return None
        if found.state != 0 or found.workspace_bytes > self._limit:
            return None
        ctypes.memmove(found.address, result.address, ctypes.sizeof(found.algorithm))
        return found

    def configure(self, result: Result, attribute: str, value: int) -> None:
        """Set one value of ``cublasLtMatmulAlgoConfigAttributes_t``.

        Raises:
            UnsupportedError: the algorithm lacks `attribute`.
        """
        with errors(f"setting {attribute} to {value}"):
            self._set("matmul_algo_config", result.address, attribute, value)

    def configured(self, result: Result, attribute: str) -> int:
        """One value of ``cublasLtMatmulAlgoConfigAttributes_t``."""
        lt, kind = self._lt, self._lt.MatmulAlgoConfigAttribute[attribute]
        cell = np.zeros(1, lt.get_matmul_algo_config_attribute_dtype(kind))
        written = ctypes.c_size_t(0)
        with errors(f"reading {attribute}"):
            lt.matmul_algo_config_get_attribute(
                result.address, kind, cell.ctypes.data, cell.nbytes, ctypes.addressof(written)
            )
        return int(cell[0])

    def capability(self, result: Result, attribute: str) -> list[int]:
        """The values of one of ``cublasLtMatmulAlgoCapAttributes_t``: one, or a list of tiles or
        stages."""
        lt, kind = self._lt, self._lt.MatmulAlgoCapAttribute[attribute]
        dtype = np.dtype(lt.get_matmul_algo_cap_attribute_dtype(kind))
        size = ctypes.c_size_t(0)
        with errors(f"reading {attribute}"):
            # The library takes a buffer of exactly the size that it reports without one.
            lt.matmul_algo_cap_get_attribute(result.address, kind, 0, 0, ctypes.addressof(size))
            cells = np.zeros(size.value // dtype.itemsize, dtype)
            if cells.size:
                lt.matmul_algo_cap_get_attribute(
                    result.address, kind, cells.ctypes.data, cells.nbytes, ctypes.addressof(size)
                )
        return [int(one) for one in cells]

    def launch(
        self, result: Result, addresses: Sequence[int], pointers: Mapping[str, int],
        workspace: int, stream: int,
    ) -> None:  # fmt: skip
        """Submit one product.

        Args:
            addresses: of cuBLASLt's A, B, C and D.
            pointers: of what the descriptor refers to, by :meth:`pointer_names`.
            workspace: address of as many bytes as the algorithm needs.
        """
        a, b, c, d = addresses
        lt, (a_layout, b_layout, c_layout, d_layout) = self._lt, self._four_layouts
        alpha, beta = self._scalars
        with self._lock, errors("launching"):
            for name, address in pointers.items():
                self._point(name, address)
            lt.matmul(
                self._handle, self._desc, alpha, a, a_layout, b, b_layout, beta, c, c_layout,
                d, d_layout, result.address, workspace, result.workspace_bytes, stream,
            )  # fmt: skip

    @property
    def pointer_names(self) -> dict[str, str]:
        """Attributes of the descriptor that are addresses -> the role of the tensor there."""
        found = {"BIAS_POINTER": "bias"} if self._problem.has_bias else {}
        if self._problem.scale_modes is not None:
            names = ("A_SCALE_POINTER", "B_SCALE_POINTER")
            found |= dict(zip(names, self._problem.scale_roles, strict=True))
        return found

    def point(self, addresses: Mapping[str, int]) -> None:
        """Set addresses that the heuristic sees; each launch sets its own."""
        with self._lock, errors("describing a product"):
            for name, address in addresses.items():
                self._point(name, address)

    def _point(self, name: str, address: int) -> None:
        kind = int(self._lt.MatmulDescAttribute[name])
        cell = self._pointers.get(kind)
        if cell is None or cell.value != address:
            cell = self._pointers.setdefault(kind, ctypes.c_int64())
            cell.value = address
            self._lt.matmul_desc_set_attribute(self._desc, kind, ctypes.addressof(cell), 8)

    def _set(self, group: str, owner: int, name: str, value: int) -> None:
        """Set one attribute of a descriptor; `group` as in the names of the bindings."""
        lt, enumeration = self._lt, f"{group.title().replace('_', '')}Attribute"
        kind = getattr(lt, enumeration)[name]
        cell = np.array([value], getattr(lt, f"get_{group}_attribute_dtype")(kind))
        getattr(lt, f"{group}_set_attribute")(owner, kind, cell.ctypes.data, cell.nbytes)

    @property
    def _formats(self) -> tuple[int, ...]:
        """cuBLASLt data types of: compute, scale, A, B, C, D."""
        p = self._problem
        return (p.compute, p.scale_type, p.a.type, p.b.type, p.d.type, p.d.type)

    @property
    def _four_layouts(self) -> tuple[int, int, int, int]:
        a, b, d = self._layouts
        return a, b, d, d

    def _described(self) -> int:
        lt, problem = self._lt, self._problem
        desc = lt.matmul_desc_create(problem.compute, problem.scale_type)
        self._close.append(lambda: lt.matmul_desc_destroy(desc))
        values = {
            "TRANSA": int(problem.transposed[0]),
            "TRANSB": int(problem.transposed[1]),
            "EPILOGUE": problem.epilogue,
        }
        if problem.has_bias:
            values["BIAS_DATA_TYPE"] = problem.d.type
        if problem.scale_modes is not None:
            values["A_SCALE_MODE"], values["B_SCALE_MODE"] = problem.scale_modes
        for name, value in values.items():
            self._set("matmul_desc", desc, name, value)
        return int(desc)

    def _layout(self, matrix: Matrix) -> int:
        lt = self._lt
        layout = lt.matrix_layout_create(matrix.type, matrix.rows, matrix.columns, matrix.rows)
        self._close.append(lambda: lt.matrix_layout_destroy(layout))
        stride = matrix.rows * matrix.columns
        values = {"BATCH_COUNT": matrix.batch, "STRIDED_BATCH_OFFSET": stride}
        for name, value in values.items() if matrix.batch > 1 else ():
            self._set("matrix_layout", layout, name, value)
        return int(layout)


def _scalar(value: float, problem: GemmProblem) -> Any:
    """alpha or beta in host memory, in the format that the computation takes it in."""
    if problem.compute == Compute.F16:
        return ctypes.c_uint16(int(np.float16(value).view(np.uint16)))
    if problem.compute == Compute.S32:
        return ctypes.c_int32(int(value))
    return (ctypes.c_double if problem.compute == Compute.F64 else ctypes.c_float)(value)
