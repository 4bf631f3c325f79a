"""Products of at most 16 rows, as in the decoding of a language model: their time is that of
reading the weights once."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from gemmetry.devices.cuda_plans import (
    ADDRESS_ALIGNMENT,
    Argument,
    Compilation,
    Grid,
    KernelLaunch,
    LaunchPlan,
    Macros,
    Pointer,
    Tiles,
    macros_of,
    matrix_boxes,
)
from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.dtypes import BF16, E4M3, F16, F32, DType
from gemmetry.domain.operation import Layout, Operation, Scaling
from gemmetry.providers.cuda_provider.launching.kernel import CudaKernel
from gemmetry.providers.cuda_provider.launching.operands import (
    SWIZZLE_BYTES,
    element_of,
    epilogue_digits,
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
_SHARED_BYTES = 227 * 1024
"""Shared memory of a block on Hopper (CUDA C++ Programming Guide, compute capability 9.0)."""
_ALIGNMENT = 1024
"""Of boxes in the 128-byte swizzle; the driver aligns shared memory to less."""
_PROMOTION_BYTES = 256
"""What the L2 cache fetches at a time: neighbouring warps read neighbouring chunks."""

_NAME = re.compile(
    r"decode_(?P<way>ring|direct)_(?P<rows>\d{1,3})x(?P<warps>\d{1,2})x(?P<stages>\d{1,2})"
    r"_c(?P<split>\d{1,2})(?P<early>_early)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class DecodeVariant:
    """How the weights are read and the work is divided."""

    direct: bool
    """Whether lanes load weights into registers; otherwise the copy engine fetches them into a ring
    of each warp."""
    rows: int
    """Columns of C, which are rows of weights, of one tile."""
    warps: int
    """Warps of a block, which share each tile's K."""
    stages: int
    """Chunks of a warp that are on their way at a time."""
    split: int
    """Blocks that share a tile, each with a part of K."""
    early: bool
    """Whether a launch may begin before the kernel before it has ended, in order to fetch the first
    weights into the L2 cache."""

    def __str__(self) -> str:
        way, early = "direct" if self.direct else "ring", "_early" if self.early else ""
        return f"decode_{way}_{self.rows}x{self.warps}x{self.stages}_c{self.split}{early}"

    @property
    def configuration(self) -> Configuration:
        parameters = asdict(self) | {"tile_m": 8, "tile_n": self.rows, "tile_k": self.warps * 64}
        return Configuration(str(self), parameters)

    def ring_bytes(self, parts: int, ratio: int) -> int:
        """Bytes on their way to one block, where A has up to 8 · `parts` rows and `ratio` times the
        bytes of weights for each element."""
        stage = (self.rows + ratio * 8 * parts) * _CHUNK_BYTES
        return 0 if self.direct else self.warps * self.stages * stage

    def shared_bytes(self, parts: int, ratio: int) -> int:
        """Dynamic shared memory of a block: the ring, its barriers, and the sums of all warps."""
        sums = self.warps * 8 * parts * (self.rows + 4) * 4
        if self.direct:
            return sums
        return _ALIGNMENT + self.ring_bytes(parts, ratio) + self.warps * self.stages * 8 + sums


def parse_variant(name: str) -> DecodeVariant | None:
    """The inverse of ``str``; None for names of other forms, and for variants that cannot exist."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    rows, warps, stages, split = (int(match[one]) for one in ("rows", "warps", "stages", "split"))
    found = DecodeVariant(
        match["way"] == "direct", rows, warps, stages, split, bool(match["early"])
    )
    is_possible = (
        str(found) == name
        and found.rows in _ROWS
        and 1 <= found.warps <= (16 if found.direct else 12)
        and 1 <= found.stages <= (4 if found.direct else 32)
        and found.rows * found.stages <= (64 if found.direct else math.inf)
        and found.split in (1, 2, 4, 8)
    )
    return found if is_possible else None


_ROWS = (16, 32, 48, 64, 96, 128)


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
        return -(-self.operation.matmul_shape.k * self.operation.signature.rhs.itemsize // 128)

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
    def is_aligned(self) -> bool:
        """Whether rows of A and B are contiguous along K and multiples of 16 bytes."""
        _, a_k, _, b_k, _, _ = self.strides
        s, k = self.operation.signature, self.operation.matmul_shape.k
        sizes = (k * one.itemsize for one in (s.lhs, s.rhs))
        return a_k == b_k == 1 and all(size % ADDRESS_ALIGNMENT == 0 for size in sizes)

    @property
    def is_aligned_turned(self) -> bool:
        """The same where B is contiguous along N."""
        _, n, k, _ = self.operation.matmul_shape
        s = self.operation.signature
        sizes = (k * s.lhs.itemsize, n * s.rhs.itemsize)
        is_along_k = self.strides[1] == 1
        return is_along_k and all(size % ADDRESS_ALIGNMENT == 0 for size in sizes)


def _why_not(operation: Operation, configuration: Configuration) -> str | None:
    variant = parse_variant(configuration.name)
    if variant is None:
        return f"there is no {configuration.name}"
    return why_not_decode(operation) or _why_not_variant(Product(operation), variant)


def why_not_decode(operation: Operation) -> str | None:
    """None if a variant of the kernel computes `operation`, else the reason."""
    s, m = operation.signature, operation.matmul_shape.m
    if m > MOST_ROWS:
        return f"decode is for A of at most {MOST_ROWS} rows, not {m}"
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
    return None


def _why_not_variant(product: Product, variant: DecodeVariant) -> str | None:
    if variant.shared_bytes(product.parts, product.ratio) > _SHARED_BYTES:
        return f"{variant} needs more than {_SHARED_BYTES} bytes of shared memory"
    if variant.direct:
        return None
    if product.weights_turned:
        if product.operation.signature.rhs is E4M3:
            return "the copy engine cannot turn elements of 8 bits: B must be contiguous along K"
        if variant.rows % _TURNED_COLUMNS:
            return f"weights that are contiguous along N come in boxes of {_TURNED_COLUMNS} columns"
        aligned = product.is_aligned_turned
    else:
        aligned = product.is_aligned
    if not aligned:
        return "the copy engine needs A contiguous along K, and rows that are multiples of 16 bytes"
    return None


def _macros(product: Product, variant: DecodeVariant) -> Macros:
    s = product.operation.signature
    scaling = 3 if s.blocks else (Scaling.NONE, Scaling.TENSOR, Scaling.ROW).index(s.scaling)
    return macros_of(
        A_FORMAT=_FORMATS[s.lhs],
        B_FORMAT=_FORMATS[s.rhs],
        OUT_F16=int(s.result is F16),
        OUT_F32=int(s.result is F32),
        ROWS=variant.rows,
        WARPS=variant.warps,
        STAGES=variant.stages,
        SPLIT=variant.split,
        PARTS=product.parts,
        DIRECT=int(variant.direct),
        NARROW=int(variant.direct and not product.is_aligned),
        TURNED=int(product.weights_turned and not variant.direct),
        SCALING=scaling,
        SCALE_COLUMNS=s.blocks.columns if s.blocks else 1,
        ALPHA=int(s.alpha != 1),
        ADDEND=int(s.beta != 0),
        EPILOGUE=epilogue_digits(product.operation),
        EARLY=int(variant.early),
    )


def _plan(operation: Operation, configuration: Configuration, processors: int) -> LaunchPlan:
    variant = parse_variant(configuration.name)
    assert variant is not None  # why_not comes first.
    product, s = Product(operation), operation.signature
    m, n, k, _ = operation.matmul_shape
    roles = {spec.role for spec in operation.inputs}

    def optional(role: str) -> Pointer | None:
        return Pointer(role) if role in roles else None

    blocks = _clusters(n, variant, processors) * variant.split
    arguments: tuple[Argument, ...] = (
        *_operands(product, variant),
        Pointer("result"),
        *(optional(role) for role in ("scale_a", "scale_b", "addend", "bias", "residual")),
        float(s.alpha),
        float(s.beta),
        (m, n, k, *product.strides),
    )
    launch = KernelLaunch(
        compilation=Compilation(source="gemm/decode", macros=_macros(product, variant)),
        grid=Grid(
            blocks=(blocks, 1, 1),
            threads=(32 * variant.warps, 1, 1),
            dynamic_bytes=variant.shared_bytes(product.parts, product.ratio),
            starts_early=variant.early,
        ),
        arguments=arguments,
    )
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

    def tiles(role: str, dtype: DType, rows: int, columns: int, box_rows: int) -> Tiles:
        boxes = matrix_boxes(
            element_of(dtype),
            rows=rows,
            columns=columns,
            box_rows=box_rows,
            box_columns=_CHUNK_BYTES // dtype.itemsize,
            swizzle_bytes=_CHUNK_BYTES,
            promotion_bytes=_PROMOTION_BYTES,
        )
        return Tiles(role, boxes)

    a = tiles("lhs", s.lhs, m, k, 8 * product.parts)
    if product.weights_turned:
        return a, tiles("rhs", s.rhs, k, n, _CHUNK_BYTES // s.rhs.itemsize)
    return a, tiles("rhs", s.rhs, n, k, variant.rows)


# ---- Which variants are worth trying ----------------------------------------------------------

_PROCESSORS = 132
"""Multiprocessors that the order is made for: an H100 SXM or H200 (NVIDIA H100 white paper)."""
_RING_BYTES = 176 * 1024
"""About how much a ring holds: Little's law asks for 40 KiB on an H200 (4.8 TB/s for 1 µs over 132
multiprocessors); the rest keeps the engine busy while sums are added."""
_CLUSTER_BYTES = 25_000
"""What a multiprocessor reads in the time of adding the sums of a cluster, about 0.7 µs."""
_TRIED = 6
"""Variants of each way that are tried for a shape."""


def _variants(product: Product) -> Iterator[DecodeVariant]:
    """All that are worth trying on some shape."""
    for split in (1, 2, 4, 8):
        for rows in (32, 64, 128):
            for warps in (4, 8):
                one = DecodeVariant(False, rows, warps, 1, split, False)
                stages = min(_RING_BYTES // one.ring_bytes(product.parts, product.ratio), 12)
                if stages >= 2:
                    yield DecodeVariant(False, rows, warps, stages, split, False)
        for rows, warps, stages in ((16, 16, 2), (32, 16, 1), (32, 8, 2), (64, 8, 1)):
            yield DecodeVariant(True, rows, warps, stages, split, False)


def _cost(product: Product, variant: DecodeVariant) -> float:
    """Bytes that the busiest block waits for: a predictor of the order, not of times."""
    s, (m, n, _, _) = product.operation.signature, product.operation.matmul_shape
    tiles = -(-n // variant.rows)
    of_block = -(-tiles // _clusters(n, variant, _PROCESSORS))
    depth = -(-product.chunks // variant.split) * (_CHUNK_BYTES // s.rhs.itemsize)
    weights = of_block * variant.rows * depth * s.rhs.itemsize
    # The L2 cache gives A about twice as fast as memory gives weights.
    activations = of_block * min(m, MOST_ROWS) * depth * s.lhs.itemsize / 2
    return weights + activations + (_CLUSTER_BYTES if variant.split > 1 else 0)


def _configurations(operation: Operation) -> Iterable[Configuration]:
    if why_not_decode(operation):
        return (DecodeVariant(False, 64, 4, 4, 1, False).configuration,)
    product = Product(operation)
    found = []
    for direct in (False, True):
        legal = [
            one
            for one in _variants(product)
            if one.direct is direct and _why_not_variant(product, one) is None
        ]
        found += sorted(legal, key=lambda one: _cost(product, one))[:_TRIED]
    return [one.configuration for one in found]


def _parse(name: str) -> Configuration | None:
    variant = parse_variant(name)
    return variant.configuration if variant else None


KERNELS = (
    CudaKernel(
        name="decode",
        adds="few rows of A: the weights are read once, and K is shared by warps and blocks",
        instructions=("HMMA",),
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
        parse=_parse,
    ),
)
