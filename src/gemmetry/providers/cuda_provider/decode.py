"""Products of at most 16 rows, as in the decoding of a language model: their time is that of
reading the weights once.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.operation import BF16, E4M3, F16, F32, DType, Layout, Operation, Scaling
from gemmetry.hardware.cuda_plans import (
    ADDRESS_ALIGNMENT,
    Argument,
    Boxes,
    Compilation,
    Grid,
    KernelLaunch,
    LaunchPlan,
    Macros,
    Pointer,
    Tiles,
    macros_of,
)
from gemmetry.providers.cuda_provider.kernel import (
    PROCESSORS,
    SHARED_BYTES,
    SWIZZLE_BYTES,
    CudaKernel,
    element_of,
    epilogue_macros,
    pointers,
    result_macros,
)

MOST_ROWS = 16
"""Rows of A up to which it is about decoding: two instructions wide."""

_FORMATS = {BF16: 0, F16: 1, E4M3: 2}
"""Format of an operand -> its number in decode.cu."""
_CHUNK_BYTES = SWIZZLE_BYTES
"""Bytes of a row of weights that a warp multiplies at a time: a row of a box."""
_BLOCK_DEPTH = 128
"""Elements along K of a block of factors: those of a chunk in e4m3."""
_TURNED_COLUMNS = 64
"""Columns of a box of weights that are contiguous along N."""
_ALIGNMENT = 1024
"""Of boxes in the 128-byte swizzle; the driver aligns shared memory to less."""
_BARRIER_BYTES = 8
_PROMOTION_BYTES = 256
"""What the L2 cache fetches at a time: neighbouring warps read neighbouring chunks."""

_NAME = re.compile(
    r"decode_(?P<way>ring|direct)_(?P<rows>\d{1,3})x(?P<warps>\d{1,2})x(?P<stages>\d{1,2})"
    r"(x(?P<depth>\d))?_c(?P<split>\d)(?P<ahead>_ahead)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeVariant:
    """How the weights are read and the work is divided."""

    direct: bool = False
    """Whether lanes load weights into registers; otherwise the copy engine fetches them into a ring
    of each warp."""
    rows: int
    """Columns of C, which are rows of weights, of one tile."""
    warps: int
    """Warps of a block, which share each tile's K."""
    stages: int
    """Runs of a warp that are on their way at a time."""
    depth: int = 1
    """Chunks of a run, which are neighbours along K."""
    split: int = 1
    """Blocks that share a tile, each with a part of K."""
    ahead: bool = False
    """Whether a launch starts early: a block fetches its first weights into the L2 cache while the
    kernel before it ends, where that one lets it."""

    def __str__(self) -> str:
        sizes = f"{self.rows}x{self.warps}x{self.stages}"
        way = f"direct_{sizes}" if self.direct else f"ring_{sizes}x{self.depth}"
        return f"decode_{way}_c{self.split}{'_ahead' * self.ahead}"

    @property
    def configuration(self) -> Configuration:
        tile = {"tile_m": 8, "tile_n": self.rows, "tile_k": self.warps * self.depth * 64}
        return Configuration(str(self), asdict(self) | tile)

    @property
    def problem(self) -> str:
        """Why there is no such variant; "" if there is."""
        if self.rows not in range(16, 257, 16):
            return "a tile has 16 to 256 rows of weights, a multiple of 16"
        if self.direct:
            is_possible = self.stages * self.rows in range(16, 65) and self.depth == 1
            is_possible = is_possible and not self.ahead
        else:
            is_possible = self.stages > 0 and self.depth in (1, 2)
        if not is_possible or self.warps not in range(1, 17) or self.split not in (1, 2, 4, 8):
            return "its warps, stages, depth or split are out of range"
        return ""

    def stage_bytes(self, parts: int, ratio: int) -> int:
        """Bytes of one run, where A has up to 8 · `parts` rows and `ratio` times the bytes of
        weights for each element."""
        return self.depth * (self.rows + ratio * 8 * parts) * _CHUNK_BYTES

    def shared_bytes(self, parts: int, ratio: int) -> int:
        """Dynamic shared memory of a block: the ring, its barriers, and the sums of all warps."""
        sums = self.warps * 8 * parts * (self.rows + 4) * 4
        if self.direct:
            return sums
        stages = self.warps * self.stages
        return _ALIGNMENT + stages * (self.stage_bytes(parts, ratio) + _BARRIER_BYTES) + sums


def parse_variant(name: str) -> DecodeVariant | None:
    """The inverse of ``str``; None for names of other forms, and for variants that cannot exist."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    rows, warps, stages, split = (int(match[one]) for one in ("rows", "warps", "stages", "split"))
    found = DecodeVariant(
        direct=match["way"] == "direct", rows=rows, warps=warps, stages=stages,
        depth=int(match["depth"] or 1), split=split, ahead=bool(match["ahead"]),
    )  # fmt: skip
    return found if str(found) == name and not found.problem else None


@dataclass(frozen=True, slots=True)
class Product:
    """What the kernel has to know of an operation."""

    operation: Operation

    @property
    def parts(self) -> int:
        """Instructions across the rows of A."""
        return -(-self.operation.matmul_shape.m // 8)

    @property
    def ratio(self) -> int:
        """Bytes of an element of A for each byte of one of B."""
        s = self.operation.signature
        return s.lhs.itemsize // s.rhs.itemsize

    @property
    def chunks(self) -> int:
        """Chunks along K."""
        return -(-self.row_bytes // _CHUNK_BYTES)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of weights along K."""
        return self.operation.matmul_shape.k * self.operation.signature.rhs.itemsize

    @property
    def weights_turned(self) -> bool:
        """Whether B is contiguous along N; a single column or row is contiguous along either."""
        _, n, k, _ = self.operation.matmul_shape
        return self.operation.signature.rhs_layout is Layout.ROW and n > 1 and k > 1

    @property
    def strides(self) -> tuple[int, int, int, int, int, int]:
        """Elements from one to the next: of A along M and K, of B along N and K, of C along M and
        N."""
        s, (m, n, k, _) = self.operation.signature, self.operation.matmul_shape
        a = (1, m) if s.lhs_layout is Layout.COLUMN and m > 1 else (k, 1)
        b = (1, n) if self.weights_turned else (k, 1)
        c = (1, m) if s.result_layout is Layout.COLUMN else (n, 1)
        return (*a, *b, *c)

    @property
    def can_be_copied(self) -> bool:
        """Whether A is contiguous along K, and rows of A and of B as it is stored are multiples of
        16 bytes."""
        _, n, k, _ = self.operation.matmul_shape
        s = self.operation.signature
        sizes = k * s.lhs.itemsize, (n if self.weights_turned else k) * s.rhs.itemsize
        return self.strides[1] == 1 and all(size % ADDRESS_ALIGNMENT == 0 for size in sizes)

    @property
    def is_aligned(self) -> bool:
        """Whether rows of A and B are contiguous along K and multiples of 16 bytes."""
        return self.can_be_copied and not self.weights_turned


def _why_not(operation: Operation, configuration: Configuration) -> str | None:
    variant = parse_variant(configuration.name)
    if variant is None:
        return f"there is no {configuration.name}"
    return why_not_decode(operation) or _why_not_variant(Product(operation), variant)


def why_not_decode(operation: Operation) -> str | None:
    """None if a variant of the kernel computes `operation`, else the reason."""
    s, m = operation.signature, operation.matmul_shape.m
    if s.lhs not in _FORMATS or s.rhs not in (s.lhs, E4M3):
        return f"decode multiplies bf16, f16 and e4m3 by the same or e4m3, not {s.lhs} by {s.rhs}"
    if s.result not in (BF16, F16, F32):
        return f"decode returns bf16, f16 or f32, not {s.result}"
    if s.accumulator is not F32:
        return f"decode accumulates in f32, not {s.accumulator}"
    blocks = s.blocks
    if blocks is not None:
        if blocks.dtype is not F32 or blocks.depth != _BLOCK_DEPTH or blocks.rows != 1:
            return f"decode takes f32 factors of 128 elements along K of a row of A, not {blocks}"
        if blocks.columns not in (1, 128):
            return f"decode takes factors of 1 or 128 columns of B, not {blocks.columns}"
    # Last, as other kernels have the same limits but this one.
    if m > MOST_ROWS:
        return f"decode is for A of at most {MOST_ROWS} rows, not {m}"
    return None


def _why_not_variant(product: Product, variant: DecodeVariant) -> str | None:
    if variant.shared_bytes(product.parts, product.ratio) > SHARED_BYTES:
        return f"{variant} needs more than {SHARED_BYTES} bytes of shared memory"
    if variant.direct:
        return None
    if product.weights_turned:
        if product.operation.signature.rhs is E4M3:
            return "the copy engine cannot turn elements of 8 bits: B must be contiguous along K"
        if variant.rows % _TURNED_COLUMNS:
            return f"weights that are contiguous along N come in boxes of {_TURNED_COLUMNS} columns"
    if variant.depth > 1 and (product.weights_turned or product.row_bytes % _CHUNK_BYTES):
        return f"runs of {variant.depth} chunks need rows of weights of whole chunks along K"
    if not product.can_be_copied:
        return "the copy engine needs A contiguous along K, and rows that are multiples of 16 bytes"
    return None


def _macros(product: Product, variant: DecodeVariant) -> Macros:
    s = product.operation.signature
    return macros_of(
        A_FORMAT=_FORMATS[s.lhs],
        B_FORMAT=_FORMATS[s.rhs],
        ROWS=variant.rows,
        WARPS=variant.warps,
        STAGES=variant.stages,
        DEPTH=variant.depth,
        AHEAD=int(variant.ahead),
        SPLIT=variant.split,
        PARTS=product.parts,
        DIRECT=int(variant.direct),
        NARROW=int(variant.direct and not product.is_aligned),
        TURNED=int(product.weights_turned and not variant.direct),
        SCALING=3 if s.blocks else (Scaling.NONE, Scaling.TENSOR, Scaling.ROW).index(s.scaling),
        SCALE_COLUMNS=s.blocks.columns if s.blocks else 1,
        **result_macros(product.operation),
        **epilogue_macros(product.operation),
    )


def _plan(operation: Operation, configuration: Configuration, processors: int) -> LaunchPlan:
    variant = parse_variant(configuration.name)
    assert variant is not None  # why_not comes first.
    product, s = Product(operation), operation.signature
    m, n, k, _ = operation.matmul_shape
    blocks = _clusters(n, variant, processors) * variant.split
    arguments: tuple[Argument, ...] = (
        *_operands(product, variant),
        Pointer("result"),
        *pointers(operation, "scale_a", "scale_b", "addend", "bias", "residual"),
        float(s.alpha),
        float(s.beta),
        (m, n, k, *product.strides),
    )
    grid = Grid(
        blocks=(blocks, 1, 1),
        threads=(32 * variant.warps, 1, 1),
        dynamic_bytes=variant.shared_bytes(product.parts, product.ratio),
        starts_early=variant.ahead,
    )
    compilation = Compilation(source="gemm/decode", macros=_macros(product, variant))
    launch = KernelLaunch(compilation=compilation, grid=grid, arguments=arguments)
    return LaunchPlan(launches=(launch,))


def _clusters(n: int, variant: DecodeVariant, processors: int) -> int:
    """Clusters of blocks, one block on each multiprocessor: no more than there are tiles."""
    return max(min(-(-n // variant.rows), processors // variant.split), 1)


def _operands(product: Product, variant: DecodeVariant) -> tuple[Pointer | Tiles, Pointer | Tiles]:
    """A and B as the kernel takes them."""
    s, (m, n, k, _) = product.operation.signature, product.operation.matmul_shape
    if variant.direct:
        alignment = ADDRESS_ALIGNMENT if product.is_aligned else 1
        return Pointer("lhs", alignment=alignment), Pointer("rhs", alignment=alignment)

    parts, depth = product.parts, variant.depth
    a = _tiles("lhs", s.lhs, m, k, 8 * parts, depth * product.ratio if depth > 1 else 1)
    if product.weights_turned:
        return a, _tiles("rhs", s.rhs, k, n, _CHUNK_BYTES // s.rhs.itemsize)
    return a, _tiles("rhs", s.rhs, n, k, variant.rows, depth)


def _tiles(role: str, dtype: DType, rows: int, columns: int, height: int, depth: int = 1) -> Tiles:
    """Boxes of `height` rows by 128 bytes of a matrix; of several times 128 bytes, as a tensor of
    three axes."""
    width = _CHUNK_BYTES // dtype.itemsize
    row_bytes = columns * dtype.itemsize
    boxes = Boxes(
        element=element_of(dtype),
        extents=(columns, rows) if depth == 1 else (width, columns // width, rows),
        box=(width, height) if depth == 1 else (width, depth, height),
        strides=(row_bytes,) if depth == 1 else (_CHUNK_BYTES, row_bytes),
        swizzle_bytes=SWIZZLE_BYTES,
        promotion_bytes=_PROMOTION_BYTES,
    )
    return Tiles(role, boxes)


# ---- Which variants are worth trying ----------------------------------------------------------

_RING_BYTES = 176 * 1024
"""About how much a ring holds at most: Little's law asks for 40 KiB on an H200 (4.8 TB/s for 1 µs
over 132 multiprocessors); the rest keeps the engine busy while sums are added."""
_MOST_CHUNKS = 4
"""Chunks of each warp that are on their way; more gained nothing on an H200
(benchmarks/decode/run.py --search)."""
_CLUSTER_BYTES = 60_000
"""What a multiprocessor's share of the bandwidth delivers while a cluster adds its sums."""
_SWAYED = 0.25
"""How far the busiest block decides, where it has more to do than the others: those leave it their
bandwidth. This and what follows are rough: they put variants into the order of their times on an
H200 (benchmarks/decode/run.py)."""
_LARGEST_SHARE = 2
"""Times its share of the bandwidth that one multiprocessor can take."""
_ACTIVATION_COST = 1 / 8
"""Of a byte of A, which comes from the L2 cache, in bytes of weights."""
_TRIED = 5
"""Variants of the copy engine that are tried for a shape, and of the other way where there are
none."""


def _variants(product: Product) -> Iterator[DecodeVariant]:
    """All that are worth trying on some shape."""
    for split, rows, depth in itertools.product((1, 2, 4, 8), (16, 32, 64, 112), (1, 2)):
        warps = 8 if rows <= 64 else 4
        one = DecodeVariant(rows=rows, warps=warps, stages=1, depth=depth, split=split)
        fitting = _RING_BYTES // (warps * one.stage_bytes(product.parts, product.ratio))
        stages = min(fitting, _MOST_CHUNKS // depth)
        if stages >= 2:
            yield replace(one, stages=stages)
    for split, (rows, warps, stages) in itertools.product((1, 2), ((16, 16, 2), (32, 8, 2))):
        yield DecodeVariant(direct=True, rows=rows, warps=warps, stages=stages, split=split)


def _cost(product: Product, variant: DecodeVariant) -> float:
    """Bytes that the busiest block waits for: a predictor of the order, not of times."""
    s, (m, n, _, _) = product.operation.signature, product.operation.matmul_shape
    tiles = -(-n // variant.rows)
    of_block = -(-tiles // _clusters(n, variant, PROCESSORS))
    depth = -(-product.chunks // variant.split) * (_CHUNK_BYTES // s.rhs.itemsize)
    most = of_block * variant.rows * depth * s.rhs.itemsize
    share = n * product.row_bytes / PROCESSORS
    weights = max((1 - _SWAYED) * share + _SWAYED * most, most / _LARGEST_SHARE)
    activations = of_block * m * depth * s.lhs.itemsize * _ACTIVATION_COST
    return weights + activations + (_CLUSTER_BYTES if variant.split > 1 else 0)


def _configurations(operation: Operation) -> Iterable[Configuration]:
    if why_not_decode(operation):
        return (DecodeVariant(rows=64, warps=4, stages=4).configuration,)
    product = Product(operation)
    legal = [one for one in _variants(product) if _why_not_variant(product, one) is None]
    legal.sort(key=lambda one: (one.direct, _cost(product, one)))
    # Loads without the copy engine were always slower; the best of them is tried for comparison.
    direct = [one for one in legal if one.direct]
    # Of each tile the best split.
    tiles: dict[tuple[int, int], DecodeVariant] = {}
    for one in legal:
        if not one.direct:
            tiles.setdefault((one.rows, one.depth), one)
    others = [*tiles.values()][:_TRIED]
    return [one.configuration for one in (*others, *direct[: 1 if others else _TRIED])]


def _everything(operation: Operation) -> list[Configuration]:
    """With what starts early, which only a request by name does."""
    listed = [*_configurations(operation)]
    early = (parse_variant(f"{one.name}_ahead") for one in listed)
    return [*listed, *(one.configuration for one in early if one is not None)]


KERNELS = (
    CudaKernel(
        name="decode",
        adds="few rows of A: the weights are read once, and K is shared by warps and blocks",
        instructions=("HMMA", "UTMALDG", "SYNCS"),
        exempt=lambda compilation: (
            ("UTMALDG", "SYNCS") if ("DIRECT", 1) in compilation.macros else ()
        ),
        checked=(
            "matmul_1x384x1024_bf16t_bf16n_bf16t",
            "matmul_16x1040x1032_f16t_f16n_f16t_alpha2_beta1_bias_gelu_residual",
            "matmul_7x384x1088_bf16t_bf16t_f32t",
            "matmul_5x200x333_bf16n_bf16n_bf16n_bias_relu",
            "matmul_8x256x1040_e4m3t_e4m3n_bf16t_scaletensor",
            "matmul_16x320x1152_e4m3t_e4m3n_bf16t_vs1x128_vs128x128",
            "matmul_3x136x1040_e4m3t_e4m3n_f32t_vs1x128",
            "matmul_4x256x1024_bf16t_e4m3n_bf16t_scalerow",
            "matmul_12x256x1024_f16t_e4m3n_f16t_scaletensor",
        ),
        why_not=_why_not,
        plan=_plan,
        configurations=_configurations,
        everything=_everything,
        parse=lambda name: one.configuration if (one := parse_variant(name)) else None,
    ),
)
