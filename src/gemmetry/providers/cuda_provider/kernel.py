"""The row of a kernel: everything that the provider, the ladder and the checks know of it.

Operands as Hopper's kernels fetch them: which way their rows run, and a packed copy of those
whose rows are not multiples of 16 bytes.

Tiles of Hopper's kernels: their names, what they need, and which suit a shape.

The sources of a plan as files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources import files

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.errors import alternatives
from gemmetry.domain.operation import (
    BF16,
    F16,
    F32,
    DType,
    EpilogueStep,
    Layout,
    Operation,
    Signature,
)
from gemmetry.hardware.cuda_plans import (
    ADDRESS_ALIGNMENT,
    Boxes,
    Compilation,
    Grid,
    KernelLaunch,
    LaunchPlan,
    Pointer,
    Tiles,
    macros_of,
)
from gemmetry.providers.base import SHARED_BYTES as _SHARED_BYTES

ARCHITECTURE = "sm_90a"
"""What every kernel is compiled for: Hopper with its matrix instructions and copy engine (PTX ISA,
targets with the suffix ``a``)."""
TARGET_ARCHITECTURE = "sm_90"
"""The architecture of targets that run it."""
SHARED_BYTES = _SHARED_BYTES[TARGET_ARCHITECTURE]
"""Most shared memory of a block."""

PROCESSORS = 132
"""Multiprocessors that plans are made for where no device is attached: an H100 SXM or H200 (NVIDIA
H100 white paper). They decide the grid, not the machine code."""

_TOP_RUNG = 11
"""Rungs below are steps that readers learn from; they are slower, and run only where a request
names them."""


Plan = Callable[[Operation, Configuration, int], LaunchPlan]
"""Launches for an operation, a configuration and so many multiprocessors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaKernel:
    """One kernel of the provider."""

    name: str
    """As its source is called, without ``.cu``: ``r07_warp_specialised``."""
    rung: int | None = None
    """Its place on the ladder; None: it is not on it."""
    adds: str
    """What it does that the rung before does not, in one line."""
    instructions: tuple[str, ...] = ()
    """Beginnings of SASS instructions that the machine code of its entry ``gemm`` must have:
    ``HGMMA``, ``UTMALDG``, and ``SYNCS`` for mbarriers."""
    exempt: Callable[[Compilation], tuple[str, ...]] = lambda compilation: ()
    """Those of `instructions` that a compilation does without."""
    checked: tuple[str, ...]
    """Names of operations that together need all of its compilations."""
    why_not: Callable[[Operation, Configuration], str | None]
    """None if a configuration computes an operation, else the reason."""
    plan: Plan
    configurations: Callable[[Operation], Iterable[Configuration]]
    """Those worth trying for an operation, the best first; names begin with :attr:`key`."""
    everything: Callable[[Operation], Iterable[Configuration]] | None = None
    """All that are worth trying for some shape, for kernels whose list depends on the shape; None:
    :attr:`configurations` has all."""
    parse: Callable[[str], Configuration | None] | None = None
    """The configuration of a name that need not be listed; None: only listed ones exist."""
    seconds_per_launch: Callable[[Operation], float] | None = None
    """A prediction for kernels that can take long, so that a run tries one launch first."""

    @property
    def key(self) -> str:
        """What the names of its configurations begin with, before the first ``_``: ``r07``."""
        return self.name.partition("_")[0]

    @property
    def is_listed(self) -> bool:
        """Whether sweeps try it where a request names no configuration."""
        return self.rung is None or self.rung >= _TOP_RUNG

    def configuration(self, name: str, operation: Operation) -> Configuration | None:
        """The configuration called `name`; None if it is none of this kernel's."""
        if name.partition("_")[0] != self.key:
            return None
        if self.parse is not None:
            return self.parse(name)
        return next((one for one in self.configurations(operation) if one.name == name), None)

    def legal(self, operation: Operation) -> list[Configuration]:
        """The configurations worth trying that compute `operation`."""
        return [
            one for one in self.configurations(operation) if self.why_not(operation, one) is None
        ]

    def refusal(self, operation: Operation) -> str | None:
        """None if a configuration worth trying computes `operation`, else the first one's
        reason."""
        first = ""
        for one in self.configurations(operation):
            found = self.why_not(operation, one)
            if found is None:
                return None
            first = first or found
        return first or f"{self.name} has no configuration for it"


SWIZZLE_BYTES = 128
"""One row of a box: the widest swizzle, in which the matrix instructions read without conflicts."""
_PROMOTION_BYTES = 128
"""What the L2 cache fetches at a time, as rows of boxes are that long."""
_PACK_THREADS = 256
_PACK_BLOCKS = (4, 2048, 1)
"""Blocks along a row, and the rows that they copy at a time."""

_DIGITS = {
    EpilogueStep.BIAS: "1", EpilogueStep.RELU: "2", EpilogueStep.GELU: "3",
    EpilogueStep.RESIDUAL: "4",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A matrix of `lines` (rows of A, columns of B) by K, as it is stored."""

    role: str
    """``lhs`` or ``rhs``."""
    dtype: DType
    lines: int
    depth: int
    """K."""
    along_lines: bool
    """Whether neighbours in memory differ in their line, not along K."""

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.storage_bits // 8

    @property
    def rows(self) -> int:
        """Rows of the stored matrix."""
        return self.depth if self.along_lines else self.lines

    @property
    def columns(self) -> int:
        """Elements of a stored row, which are contiguous."""
        return self.lines if self.along_lines else self.depth

    @property
    def needs_packing(self) -> bool:
        """Whether the copy engine cannot fetch it as it is stored."""
        return self.columns * self.itemsize % ADDRESS_ALIGNMENT != 0

    @property
    def padded_columns(self) -> int:
        """Elements from one row to the next where the copy engine fetches it."""
        step = ADDRESS_ALIGNMENT // self.itemsize
        return -(-self.columns // step) * step

    @property
    def row_bytes(self) -> int:
        """Bytes from one row to the next there."""
        return self.padded_columns * self.itemsize

    @property
    def buffer(self) -> str:
        """Where the copy engine fetches it."""
        return f"packed_{self.role}" if self.needs_packing else self.role

    def tiles(self, box_lines: int, box_depth: int) -> Tiles:
        """Boxes of `box_lines` by `box_depth`, a row of which is at most 128 bytes."""
        box = (box_lines, box_depth) if self.along_lines else (box_depth, box_lines)
        boxes = Boxes(
            element=element_of(self.dtype),
            extents=(self.columns, self.rows),
            box=box,
            strides=(self.row_bytes,),
            swizzle_bytes=SWIZZLE_BYTES,
            promotion_bytes=_PROMOTION_BYTES,
        )
        return Tiles(self.buffer, boxes)

    def packing(self) -> KernelLaunch:
        """The launch that makes the packed copy."""
        macros = macros_of(ELEMENT_BYTES=self.itemsize)
        x, y, z = _PACK_BLOCKS
        blocks = (min(x, -(-self.columns // _PACK_THREADS)), min(y, self.rows), z)
        return KernelLaunch(
            compilation=Compilation(source="gemm/pack", entry="pack", macros=macros),
            grid=Grid(blocks=blocks, threads=(_PACK_THREADS, 1, 1)),
            arguments=(
                Pointer(self.role), Pointer(self.buffer), self.rows, self.columns,
                self.padded_columns,
            ),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredProduct:
    """A product as a kernel computes it: A @ B or its transpose Bᵀ @ Aᵀ, of which the operands are
    called a and b."""

    a: Operand
    b: Operand
    result: DType
    is_transposed: bool
    """Whether `a` is the operation's B."""
    is_swapped: bool = False
    """Whether the result of the kernel is stored column by column."""

    @property
    def m(self) -> int:
        return self.a.lines

    @property
    def n(self) -> int:
        return self.b.lines

    @property
    def k(self) -> int:
        return self.a.depth

    @property
    def sizes(self) -> tuple[int, ...]:
        """M, N and K."""
        return self.m, self.n, self.k

    @property
    def is_stored_directly(self) -> bool:
        """Whether results go to memory from registers: in f32, or if the copy engine cannot store
        rows of this length."""
        return self.result not in (BF16, F16) or self._stored_shape[1] * 2 % ADDRESS_ALIGNMENT != 0

    @property
    def swapped(self) -> StoredProduct:
        """The other one of A @ B and Bᵀ @ Aᵀ, with the same result in memory."""
        return StoredProduct(
            self.b, self.a, self.result, not self.is_transposed, not self.is_swapped
        )

    @property
    def _stored_shape(self) -> tuple[int, int]:
        """Rows and columns of the result in memory."""
        return (self.n, self.m) if self.is_swapped else (self.m, self.n)

    @property
    def packed(self) -> list[Operand]:
        """The operands of which a packed copy is made."""
        return [one for one in (self.a, self.b) if one.needs_packing]

    def result_tiles(self, box_rows: int, box_columns: int) -> Tiles:
        """Boxes of C as it is stored, in the swizzle of a row of the box."""
        rows, columns = self._stored_shape
        boxes = Boxes(
            element=element_of(self.result),
            extents=(columns, rows),
            box=(box_columns, box_rows),
            swizzle_bytes=box_columns * 2,
        )
        return Tiles("result", boxes)


def problem_of(operation: Operation) -> StoredProduct:
    """The product whose result is stored row by row: of a column-major C, its transpose."""
    s = operation.signature
    m, n, k, _ = operation.matmul_shape
    turned = s.lhs_layout is Layout.COLUMN, s.rhs_layout is Layout.ROW
    a = Operand(role="lhs", dtype=s.lhs, lines=m, depth=k, along_lines=turned[0])
    b = Operand(role="rhs", dtype=s.rhs, lines=n, depth=k, along_lines=turned[1])
    is_transposed = s.result_layout is Layout.COLUMN
    return StoredProduct(*((b, a) if is_transposed else (a, b)), s.result, is_transposed)


def wrong_formats(
    who: str, s: Signature, operands: Sequence[DType], results: Sequence[DType], layouts: str = ""
) -> str | None:
    """None if a kernel that is called `who` in messages takes these formats, accumulates in f32,
    and takes the layouts of A, B and C (``tnt``; "": any), else the reason why not."""
    if s.lhs is not s.rhs or s.lhs not in operands:
        return f"{who} multiplies {' and '.join(map(str, operands))}, not {s.lhs} with {s.rhs}"
    if s.result not in results:
        return f"{who} returns {alternatives([*map(str, results)])}, not {s.result}"
    if s.accumulator is not F32:
        return f"{who} accumulates in f32, not {s.accumulator}"
    if layouts and layouts != f"{s.lhs_layout}{s.rhs_layout}{s.result_layout}":
        return (
            f"{who} reads along K: A and C row-major, B column-major (layouts {', '.join(layouts)})"
        )
    return None


def element_of(dtype: DType) -> str:
    """What the copy engine calls a format."""
    return "u8" if dtype.storage_bits == 8 else str(dtype)


def result_macros(operation: Operation) -> dict[str, int]:
    """What sources are given of the format of C."""
    result = operation.signature.result
    return {"OUT_F16": int(result is F16), "OUT_F32": int(result is F32)}


def format_macros(operation: Operation) -> dict[str, int]:
    """What the sources of 16-bit operands are given of all formats."""
    return {"IN_F16": int(operation.signature.lhs is F16), **result_macros(operation)}


def formats_of(sizes: str) -> tuple[str, ...]:
    """Operations of one size in every format of the kernels for 16-bit operands."""
    pairs = [("bf16", "bf16"), ("bf16", "f32"), ("f16", "f16"), ("f16", "f32")]
    return tuple(f"matmul_{sizes}_{lhs}t_{lhs}n_{result}t" for lhs, result in pairs)


def only(*configurations: Configuration) -> Callable[[Operation], tuple[Configuration, ...]]:
    """The configurations of a kernel that has the same for all operations."""
    return lambda operation: configurations


def epilogue_macros(operation: Operation) -> dict[str, int]:
    """What epilogue.cuh is given: the steps as digits, and whether there are factors."""
    s = operation.signature
    digits = int("0" + "".join(_DIGITS[step] for step in s.epilogue))
    return {"ALPHA": int(s.alpha != 1), "ADDEND": int(s.beta != 0), "EPILOGUE": digits}


def pointers(operation: Operation, *roles: str) -> Iterator[Pointer | None]:
    """Arguments for tensors that not every operation has: null for those."""
    present = {spec.role for spec in operation.inputs}
    return (Pointer(role) if role in present else None for role in roles)


_RESERVED_BYTES = 1024 + 512
"""What aligning the stages to 1,024 bytes, the barriers and static variables take."""
_MOST_STAGES = 12
STEP_BYTES = 128
"""One step of the ring along K: a row of the swizzle."""
_TEXT = re.compile(
    r"(?P<m>\d+)x(?P<n>\d+)_c(?P<cm>\d)x(?P<cn>\d)_b(?P<band>\d+)(?:_k(?P<splits>\d+))?"
    r"(?P<swap>_swap)?(?P<early>_early)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a product is divided among blocks."""

    tile_m: int
    tile_n: int
    cluster_m: int = 1
    """Blocks below each other that share tiles of B."""
    cluster_n: int = 1
    """Blocks next to each other that share tiles of A."""
    band: int = 8
    """Rows of tiles (of clusters) that are walked together, column by column."""
    splits: int = 1
    """Slices of K, each summed by a block of its own."""
    is_swapped: bool = False
    """Whether the kernel computes the transpose Bᵀ @ Aᵀ: the side of a tile of which the matrix
    instructions need a multiple of 64 then lies along N, and the one of multiples of 16 along M."""
    starts_early: bool = False
    """Whether blocks prepare themselves while the kernel before ends. It pays where that is a
    launch of the same kernel, which lets its successor start; other kernels do not."""

    def __str__(self) -> str:
        """``128x256_c2x1_b8``, with ``_k4`` for four slices, ``_swap`` if swapped, and
        ``_early``."""
        text = f"{self.tile_m}x{self.tile_n}_c{self.cluster_m}x{self.cluster_n}_b{self.band}"
        splits = f"_k{self.splits}" if self.splits > 1 else ""
        return text + splits + "_swap" * self.is_swapped + "_early" * self.starts_early

    def configuration(self, key: str, depth: int) -> Configuration:
        """Of the kernel called `key`, whose ring has steps of `depth` along K."""
        return Configuration(f"{key}_{self}", {**asdict(self), "tile_k": depth})

    @property
    def in_kernel(self) -> Tiling:
        """The tiling of the product that the kernel computes."""
        if not self.is_swapped:
            return self
        tile, cluster = (self.tile_n, self.tile_m), (self.cluster_n, self.cluster_m)
        return replace(
            Tiling(*tile, *cluster, self.band, self.splits), starts_early=self.starts_early
        )

    @property
    def consumers(self) -> int:
        """Warpgroups that multiply, each 64 rows or, of 256, 128."""
        return {64: 1, 128: 2, 192: 3, 256: 2}[self.in_kernel.tile_m]

    @property
    def threads(self) -> int:
        """Of a block: the consumers, and one warpgroup that fetches."""
        return 128 * (self.consumers + 1)

    @property
    def cluster(self) -> int:
        """Blocks of a cluster."""
        return self.cluster_m * self.cluster_n

    def clusters(self, m: int, n: int) -> int:
        """Tiles of clusters in an (m, n) result."""
        rows = -(-m // (self.tile_m * self.cluster_m))
        return rows * -(-n // (self.tile_n * self.cluster_n))


def parse_tiling(text: str) -> Tiling | None:
    """The inverse of ``str``; None for other texts."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    names = ("m", "n", "cm", "cn", "band", "splits")
    m, n, cm, cn, band, splits = (int(match[name] or 1) for name in names)
    flags = match["swap"] is not None, match["early"] is not None
    tiling = Tiling(m, n, cm, cn, band, splits, *flags)
    return tiling if str(tiling) == text else None


def tiling_of(configuration: str) -> Tiling | None:
    """The tiling in a configuration's name, after the kernel's key; None if there is none."""
    return parse_tiling(configuration.partition("_")[2])


def parser(key: str, depth: int) -> Callable[[str], Configuration | None]:
    """Of the configurations of the kernel called `key`, whose ring has steps of `depth`."""

    def parse(name: str) -> Configuration | None:
        tiling = tiling_of(name)
        return None if tiling is None else tiling.configuration(key, depth)

    return parse


def staged_columns(tile_n: int) -> int:
    """Columns of the result that leave together: 64 fill the widest swizzle."""
    return next(columns for columns in (64, 32, 16) if tile_n % columns == 0)


def staging_bytes(tiling: Tiling) -> int:
    """Shared memory through which results leave: two buffers of 16 rows for every warp."""
    return tiling.consumers * 4 * 2 * 16 * staged_columns(tiling.tile_n) * 2


def stages_that_fit(stage_bytes: int, other_bytes: int) -> int:
    """How many stages of the ring fit next to so many other bytes."""
    return min((SHARED_BYTES - _RESERVED_BYTES - other_bytes) // stage_bytes, _MOST_STAGES)


def ring_bytes(stages: int, stage_bytes: int, other_bytes: int) -> int:
    """Dynamic shared memory of a kernel: the ring, other bytes, two barriers for each stage, and
    what aligning to 1,024 bytes takes."""
    return 1024 + stages * stage_bytes + other_bytes + 2 * 8 * stages


_RATES = {
    (64, 64): 0.43, (64, 96): 0.58, (64, 128): 0.64, (64, 160): 0.67, (64, 176): 0.69,
    (128, 32): 0.35, (128, 64): 0.55, (128, 96): 0.75, (128, 128): 0.80, (128, 160): 0.81,
    (128, 192): 0.82, (128, 208): 0.84, (128, 256): 0.88, (192, 128): 0.85, (192, 160): 0.87,
    (192, 176): 0.89, (192, 192): 0.74, (256, 128): 0.86, (256, 160): 0.74,
}  # fmt: skip
"""Tile -> part of the peak that its loop reaches next to the constants below, fitted to 262 times
of 18 shapes on an H200; the fit is within 11 % of a time, and its first choice 1 % slower on
average than the best. They rank tilings; nothing else rests on them."""
_USUAL_RATE = 0.6
_UNSHARED = 0.85
"""What is left of the rate of a 64-row tile that fetches all of B by itself."""
_MADS_PER_CYCLE = 2048
"""Multiply-adds of 16-bit numbers of a multiprocessor per cycle (H100 white paper: 989.4 TFLOP/s
with 132 of them at 1,830 MHz)."""
_SUSTAINED_RATE = 0.72
"""What the power limit leaves of the peak in long products, on an H200 with normal data: the order
in which tilings are listed decides among those that reach it."""
_UNIT_CYCLES = 2200
"""Filling the ring and storing the results of one tile."""
_SPLIT_CYCLES = 11700
"""Leaving and adding up the slices of a tile."""


def predicted_cycles(tiling: Tiling, m: int, n: int, k: int, processors: int) -> float:
    """A rough prediction, in cycles, that ranks tilings before they are measured: waves of units,
    each with its loop and a constant, and no faster than the power limit allows."""
    units = tiling.clusters(m, n) * tiling.splits
    waves = -(-units // max(processors // tiling.cluster, 1))
    oriented = tiling.in_kernel
    rate = _RATES.get((oriented.tile_m, oriented.tile_n), _USUAL_RATE)
    if oriented.tile_m == 64 and oriented.cluster_m == 1:
        rate *= _UNSHARED
    loop = tiling.tile_m * tiling.tile_n * -(-k // tiling.splits) / (_MADS_PER_CYCLE * rate)
    total = waves * (loop + _UNIT_CYCLES) + _SPLIT_CYCLES * (tiling.splits > 1)
    return max(total, m * n * k / (processors * _MADS_PER_CYCLE * _SUSTAINED_RATE))


def ranked(
    tilings: Sequence[Tiling], m: int, n: int, k: int, processors: int = PROCESSORS
) -> list[Tiling]:
    """`tilings` by their predicted time."""
    return sorted(tilings, key=lambda one: predicted_cycles(one, m, n, k, processors))


def sources_of(plan: LaunchPlan) -> dict[str, bytes]:
    """File name -> content: the sources of all launches, and the headers of their folders."""
    found: dict[str, bytes] = {}
    for source in dict.fromkeys(launch.compilation.source for launch in plan.launches):
        *folders, name = source.split("/")
        for entry in files("gemmetry.providers.kernels").joinpath(*folders).iterdir():
            if entry.name == f"{name}.cu" or entry.name.endswith(".cuh"):
                found[entry.name] = entry.read_bytes()
    return found
