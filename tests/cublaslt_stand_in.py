"""A stand-in for ``nvmath.bindings.cublasLt`` that computes on host memory.

Callers are held to the library's protocol: descriptors that exist, attributes of the right size and
enough workspace. Algorithms are the stand-in's own and legal for the problem. Everything that a
descriptor refers to has an address, and for fp8 A is transposed and B is not. Products are computed
by numpy from the addresses alone. A wrong leading dimension, transposition, stride, scale or
epilogue therefore gives a wrong result. A launch advances a pretended clock by the algorithm's
time.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from functools import partialmethod
from itertools import count
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

MAGIC = 0xC0B1A5
TYPES = {
    0: np.float32, 1: np.float64, 2: np.float16, 3: np.int8, 10: np.int32, 14: ml_dtypes.bfloat16,
    28: ml_dtypes.float8_e4m3fn, 29: ml_dtypes.float8_e5m2,
}  # fmt: skip
FP8 = (28, 29)
SCALES = {64: np.float16, 68: np.float32, 77: np.float32, 70: np.float64, 72: np.int32}
RELU, BIAS = 2, 4
FIELDS = ("ID", "TILE_ID", "STAGES_ID", "SPLITK_NUM", "REDUCTION_SCHEME", "CTA_SWIZZLING",
          "CUSTOM_OPTION", "INNER_SHAPE_ID", "CLUSTER_SHAPE_ID")  # fmt: skip
HIDDEN = "HIDDEN"
"""A part of an algorithm that no attribute shows."""
RESULT_BYTES = 96
WORKSPACE_PER_SPLIT = 4
"""Bytes for each element of C."""


class StandInError(Exception):
    """Worded as the bindings word theirs."""

    def __init__(self, status: str, why: str) -> None:
        super().__init__(
            f"{why} (CUBLAS_STATUS_{status}). You can set CUBLASLT_LOG_LEVEL=5 environment variable"
        )


def unsupported(why: str) -> StandInError:
    return StandInError("NOT_SUPPORTED", why)


@dataclass
class Kernel:
    """What the library has of one algorithm identifier."""

    tiles: tuple[int, ...]
    stages: tuple[int, ...]
    clusters: tuple[int, ...] = (0,)
    splits: bool = False
    custom_max: int = 0
    swizzles: bool = False
    types: tuple[int, ...] = tuple(TYPES)
    hidden: int = 0
    """What its proposals hold besides their attributes."""


@dataclass
class Description:
    """A matmul descriptor, layout or preference: its values by attribute."""

    values: dict[int, int] = field(default_factory=dict)
    formats: tuple[int, int] = (0, 0)


class StandIn:
    """The functions of the module that the provider calls; the enumerations are the module's."""

    def __init__(self, real: Any, version: int = 130202) -> None:
        """
        Args:
            real: the module of nvmath-python, for its enumerations and the sizes of attributes.
        """
        self._real, self._version = real, version
        self._numbers = count(1000)
        self._kinds: dict[str, dict[int, Description]] = {}
        self.kernels = {
            66: Kernel((20, 23, 24), (35, 36), clusters=(0, 3, 5)),
            21: Kernel((15, 20), (11, 16), splits=True, custom_max=1, swizzles=True),
            90: Kernel((1,), (1,), types=(3,)),
        }
        self.clock_ns = 0.0
        self.times_ns: dict[tuple[int, ...], float] = {}
        self.launched: list[tuple[int, ...]] = []
        self.streams: list[int] = []
        self.fails: str = ""
        """Status that launches end with; "": they work."""

    def __getattr__(self, name: str) -> Any:
        # Enumerations, and the types of attributes.
        if name[0].isupper() or name.startswith("get_"):
            return getattr(self._real, name)
        raise AttributeError(name)

    def get_version(self) -> int:
        return self._version

    def create(self) -> int:
        return self._new("handle", Description())

    @property
    def alive(self) -> dict[str, int]:
        """Descriptors that were not destroyed, by kind."""
        return {kind: len(ones) for kind, ones in self._kinds.items() if kind != "handle" and ones}

    # Descriptors

    def matmul_desc_create(self, compute, scale):
        return self._new("matmul_desc", Description(formats=(int(compute), int(scale))))

    def matrix_layout_create(self, kind, rows, columns, leading):
        if kind not in TYPES or rows < 1 or columns < 1 or leading < rows:
            raise StandInError("INVALID_VALUE", f"a layout {kind} {rows}x{columns}, {leading}")
        names = self._real.MatrixLayoutAttribute
        values = {names.TYPE: kind, names.ROWS: rows, names.COLS: columns, names.LD: leading}
        values |= {names.BATCH_COUNT: 1, names.STRIDED_BATCH_OFFSET: 0}
        return self._new("matrix_layout", Description({int(k): int(v) for k, v in values.items()}))

    def matmul_preference_create(self):
        return self._new("matmul_preference", Description())

    def _destroy(self, kind, number):
        self._known(kind, number)
        del self._kinds[kind][number]

    matmul_desc_destroy = partialmethod(_destroy, "matmul_desc")
    matrix_layout_destroy = partialmethod(_destroy, "matrix_layout")
    matmul_preference_destroy = partialmethod(_destroy, "matmul_preference")

    def _set(self, kind, number, attribute, address, size):
        types = getattr(self._real, f"get_{kind}_attribute_dtype")
        value = self._value(address, size, types(attribute))
        self._known(kind, number).values[int(attribute)] = value

    matmul_desc_set_attribute = partialmethod(_set, "matmul_desc")
    matrix_layout_set_attribute = partialmethod(_set, "matrix_layout")
    matmul_preference_set_attribute = partialmethod(_set, "matmul_preference")

    # Algorithms

    def matmul_algo_get_ids(self, handle, *formats):
        self._known("handle", handle)
        *_, most = formats
        return tuple(n for n, kernel in self.kernels.items() if formats[2] in kernel.types)[:most]

    def matmul_algo_init(self, handle, *rest):
        *formats, algorithm_id, address = rest
        if algorithm_id not in self.matmul_algo_get_ids(handle, *formats, 100):
            raise StandInError("INVALID_VALUE", f"no algorithm {algorithm_id} for these formats")
        self._write(address, _blank() | {"ID": algorithm_id, "SPLITK_NUM": 1})

    def matmul_algo_config_set_attribute(self, algorithm, kind, address, size):
        values = self._read(algorithm)
        dtype = self._real.get_matmul_algo_config_attribute_dtype(kind)
        name = self._real.MatmulAlgoConfigAttribute(kind).name
        self._write(algorithm, values | {name: self._value(address, size, dtype)})

    def matmul_algo_config_get_attribute(self, algorithm, kind, address, size, written):
        name = self._real.MatmulAlgoConfigAttribute(kind).name
        dtype = self._real.get_matmul_algo_config_attribute_dtype(kind)
        self._give(address, size, written, dtype, [self._read(algorithm)[name]])

    def matmul_algo_cap_get_attribute(self, algorithm, kind, address, size, written):
        kernel = self.kernels[self._read(algorithm)["ID"]]
        name = self._real.MatmulAlgoCapAttribute(kind).name
        found = {
            "TILE_IDS": kernel.tiles, "STAGES_IDS": kernel.stages,
            "SPLITK_SUPPORT": [int(kernel.splits)], "REDUCTION_SCHEME_MASK": [7],
            "CTA_SWIZZLING_SUPPORT": [int(kernel.swizzles)],
            "CUSTOM_OPTION_MAX": [kernel.custom_max],
        }[name]  # fmt: skip
        dtype = self._real.get_matmul_algo_cap_attribute_dtype(kind)
        self._give(address, size, written, dtype, list(found))

    def matmul_algo_check(self, handle, desc, a, b, c, d, algorithm, result):
        problem = self._problem(handle, desc, a, b, c, d)
        self._write_result(result, _blank(), self._workspace(problem, self._read(algorithm)))

    def matmul_algo_get_heuristic(
        self, handle, desc, a, b, c, d, preference, most, results, returned
    ):
        problem = self._problem(handle, desc, a, b, c, d)
        names = self._real.MatmulPreferenceAttribute
        preferred = self._known("matmul_preference", preference).values
        limit = preferred.get(int(names.MAX_WORKSPACE_BYTES), 0)
        mask = preferred.get(int(names.REDUCTION_SCHEME_MASK), 7)
        found = 0
        for values in self._candidates(problem.a_type):
            workspace = self._workspace(problem, values)
            if found < most and workspace <= limit and not values["REDUCTION_SCHEME"] & ~mask:
                self._write_result(results + found * RESULT_BYTES, values, workspace)
                found += 1
        if not found:
            raise unsupported("no algorithm")
        ctypes.c_int.from_address(returned).value = found

    def matmul(
        self, handle, desc, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout,
        algorithm, workspace, workspace_bytes, stream,
    ):  # fmt: skip
        problem = self._problem(handle, desc, a_layout, b_layout, c_layout, d_layout)
        values = self._read(algorithm)
        needed = self._workspace(problem, values)
        if workspace_bytes < needed or (needed and not workspace):
            raise StandInError("INVALID_VALUE", f"a workspace of {workspace_bytes} bytes")
        if any(address % 16 for address in (a, b, c, d)):
            raise StandInError("INVALID_VALUE", "an address is not aligned")
        if self.fails:
            raise StandInError(self.fails, "a pretended failure")
        key = tuple(values[name] for name in FIELDS)
        self.launched.append(key)
        self.streams.append(stream)
        self.clock_ns += self.times_ns.get(key, 200_000.0)
        self._compute(problem, alpha, a, b, beta, c, d)

    # The product

    def _compute(self, problem, alpha, a, b, beta, c, d):
        wide = np.int64 if problem.compute == 72 else np.float64
        factors = [_stored(address, SCALES[problem.compute])[0] for address in (alpha, beta)]
        for batch in range(problem.batch):
            at = [self._matrix(one, address, batch) for one, address in
                  ((problem.a, a), (problem.b, b), (problem.c, c), (problem.d, d))]  # fmt: skip
            left, right, addend, out = at
            left, right = left.astype(wide), right.astype(wide)
            left = left.T if problem.transposed[0] else left
            right = right.T if problem.transposed[1] else right
            if problem.scales:
                left = left * _factors(*problem.scales[0], left.shape)
                right = right * _factors(*problem.scales[1], right.shape[::-1]).T
            total = factors[0].astype(wide) * (left @ right)
            if factors[1]:
                total = total + factors[1].astype(wide) * addend.astype(wide)
            if problem.bias is not None:
                total = total + problem.bias.astype(wide)[:, None]
            if problem.epilogue & RELU:
                total = np.maximum(total, 0)
            out[...] = total.astype(out.dtype)

    def _matrix(self, layout, address, batch):
        """The column-major matrix in memory, as a writable view."""
        dtype = np.dtype(TYPES[layout["TYPE"]])
        address += batch * layout["STRIDED_BATCH_OFFSET"] * dtype.itemsize
        stored = _stored(address, dtype, layout["LD"] * layout["COLS"])
        return stored.reshape(layout["COLS"], layout["LD"])[:, : layout["ROWS"]].T

    def _problem(self, handle: int, desc: int, *layouts: int) -> SimpleNamespace:
        """Everything about a product, checked as the library checks it."""
        self._known("handle", handle)
        found = self._known("matmul_desc", desc)
        names, layout_names = self._real.MatmulDescAttribute, self._real.MatrixLayoutAttribute

        def value(name: str) -> int:
            return found.values.get(int(names[name]), 0)

        a, b, c, d = (
            {one.name: self._known("matrix_layout", number).values.get(int(one), 0)
             for one in layout_names}
            for number in layouts
        )  # fmt: skip
        transposed = (value("TRANSA"), value("TRANSB"))
        m, k = (a["COLS"], a["ROWS"]) if transposed[0] else (a["ROWS"], a["COLS"])
        k_too, n = (b["COLS"], b["ROWS"]) if transposed[1] else (b["ROWS"], b["COLS"])
        if k != k_too or (d["ROWS"], d["COLS"]) != (m, n) or (c["ROWS"], c["COLS"]) != (m, n):
            raise StandInError("INVALID_VALUE", "the sizes do not match")
        if len({one["BATCH_COUNT"] for one in (a, b, c, d)}) > 1:
            raise StandInError("INVALID_VALUE", "the batches do not match")
        is_fp8 = a["TYPE"] in FP8
        if is_fp8 and (transposed != (1, 0) or k % 16 or m % 16):
            raise unsupported("fp8 takes TN and multiples of 16")
        epilogue = value("EPILOGUE") or 1
        bias = None
        if epilogue & BIAS:
            if value("BIAS_DATA_TYPE") != d["TYPE"]:
                raise unsupported("the format of the bias")
            if not value("BIAS_POINTER"):
                raise StandInError("INVALID_VALUE", "an address is missing")
            bias = _stored(value("BIAS_POINTER"), TYPES[d["TYPE"]], m)
        scales = self._scales(value, m, n, k) if is_fp8 else None
        if not is_fp8 and (value("A_SCALE_POINTER") or value("A_SCALE_MODE")):
            raise unsupported("factors are for fp8")
        return SimpleNamespace(
            a=a, b=b, c=c, d=d, m=m, n=n, transposed=transposed, a_type=a["TYPE"],
            compute=found.formats[0], batch=d["BATCH_COUNT"], epilogue=epilogue, bias=bias,
            scales=scales,
        )  # fmt: skip

    def _scales(self, value: Any, m: int, n: int, k: int) -> Any:
        found = []
        for side, lines in (("A", m), ("B", n)):
            address, mode = value(f"{side}_SCALE_POINTER"), value(f"{side}_SCALE_MODE")
            if not address:
                if mode:
                    raise StandInError("INVALID_VALUE", f"{side} has no factors")
                return None
            found.append((address, mode, lines, k))
        return found

    def _candidates(self, a_type: int) -> list[dict[str, int]]:
        """What the heuristic proposes, the most promising first."""
        found = []
        for algorithm_id, kernel in self.kernels.items():
            if a_type not in kernel.types:
                continue
            for tile in kernel.tiles:
                base = _blank() | {
                    "ID": algorithm_id, "TILE_ID": tile, "STAGES_ID": kernel.stages[0],
                    "SPLITK_NUM": 1, "CLUSTER_SHAPE_ID": kernel.clusters[-1],
                    HIDDEN: kernel.hidden,
                }  # fmt: skip
                found.append(base)
                if kernel.splits:
                    found += [
                        base | {"SPLITK_NUM": 3, "REDUCTION_SCHEME": scheme} for scheme in (4, 2)
                    ]
        return found

    def _workspace(self, problem: SimpleNamespace, values: dict[str, int]) -> int:
        """What an algorithm needs.

        Raises:
            StandInError: it is not legal.
        """
        kernel = self.kernels.get(values["ID"])
        splits = values["SPLITK_NUM"] > 1
        is_legal = (
            kernel is not None
            and problem.a_type in kernel.types
            and values["TILE_ID"] in kernel.tiles
            and values["STAGES_ID"] in kernel.stages
            and values["CLUSTER_SHAPE_ID"] in kernel.clusters
            and values["CUSTOM_OPTION"] <= kernel.custom_max
            and values["CTA_SWIZZLING"] <= kernel.swizzles
            and (kernel.splits or not splits)
            and bool(values["REDUCTION_SCHEME"]) == splits
            and values[HIDDEN] == kernel.hidden
        )
        if not is_legal:
            raise StandInError("INVALID_VALUE", "an illegal algorithm")
        needs = splits and values["REDUCTION_SCHEME"] != 1
        elements = problem.m * problem.n * problem.batch
        return elements * values["SPLITK_NUM"] * WORKSPACE_PER_SPLIT if needs else 0

    # Memory

    def _new(self, kind: str, description: Description) -> int:
        number = next(self._numbers)
        self._kinds.setdefault(kind, {})[number] = description
        return number

    def _known(self, kind: str, number: int) -> Description:
        try:
            return self._kinds[kind][number]
        except KeyError:
            raise StandInError("INVALID_VALUE", f"no {kind} {number}") from None

    def _value(self, address, size, dtype):
        if size != np.dtype(dtype).itemsize:
            raise StandInError("INVALID_VALUE", f"an attribute of {size} bytes")
        return int(_stored(address, dtype)[0])

    def _give(self, address: int, size: int, written: int, dtype: Any, values: list[int]) -> None:
        cells = np.array(values, dtype)
        ctypes.c_size_t.from_address(written).value = cells.nbytes
        if size == 0:  # a question about the size
            return
        if size != cells.nbytes:
            raise StandInError("INVALID_VALUE", f"{size} bytes for {len(values)} values")
        ctypes.memmove(address, cells.ctypes.data, cells.nbytes)

    def _write(self, address: int, values: dict[str, int]) -> None:
        cells = [values[name] for name in (*FIELDS, HIDDEN)]
        packed = np.zeros(8, np.uint64)
        packed[0] = MAGIC
        packed.view(np.uint32)[2 : 2 + len(cells)] = cells
        ctypes.memmove(address, packed.ctypes.data, packed.nbytes)

    def _read(self, address):
        packed = _stored(address, np.uint64, 8)
        if packed[0] != MAGIC:
            raise StandInError("INVALID_VALUE", "this is no algorithm")
        cells = packed.view(np.uint32)[2 : 3 + len(FIELDS)]
        return dict(zip((*FIELDS, HIDDEN), map(int, cells), strict=True))

    def _write_result(self, address, values, workspace):
        self._write(address, values)
        ctypes.c_size_t.from_address(address + 64).value = workspace
        ctypes.c_int.from_address(address + 72).value = 0


def _blank() -> dict[str, int]:
    return dict.fromkeys((*FIELDS, HIDDEN), 0)


def _stored(address: int, dtype: Any, count: int = 1) -> Any:
    """Values in memory, as a view."""
    memory = (ctypes.c_uint8 * (count * np.dtype(dtype).itemsize)).from_address(address)
    return np.frombuffer(memory, np.uint8).view(dtype)


def _factors(address: int, mode: int, lines: int, k: int, shape: tuple[int, ...]) -> Any:
    """The factor of each element of a (lines, K) operand, read as its mode stores them."""
    assert shape == (lines, k)

    def stored(count: int) -> Any:
        return _stored(address, np.float32, count).astype(np.float64)

    depth, blocks = -(-k // 128), -(-lines // 128)
    if mode == 0:
        return np.full(shape, stored(1)[0])
    if mode == 3:
        return np.repeat(stored(lines)[:, None], k, axis=1)
    if mode == 4:  # contiguous along the lines
        found = stored(depth * lines).reshape(depth, lines).T
        return np.repeat(found, 128, axis=1)[:, :k]
    if mode == 5:  # contiguous along K
        found = stored(depth * blocks).reshape(blocks, depth)
        return np.repeat(np.repeat(found, 128, axis=0), 128, axis=1)[:lines, :k]
    raise unsupported(f"factors of mode {mode}")
