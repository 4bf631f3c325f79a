"""Converts the grid tracing document's settings, and the options of CUTLASS' block-scaled example,
into shapes, formats, layouts and scaling.

A list is searched unless its switch is off, and then its first entry is the fixed value. A switch
that is on without a list searches the list below.
"""

from __future__ import annotations

from dataclasses import dataclass

from gemmetry.domain.block_scaling import BlockScaling
from gemmetry.domain.errors import EmptySelectionError
from gemmetry.domain.operation import MatmulShape, Shape, parse_scaling
from gemmetry.specs.fields import LAYOUT_PAIRS
from gemmetry.specs.model import ProfileSpec
from gemmetry.specs.operations.ranges import parse_sizes
from gemmetry.specs.operations.shapes import parse_shapes

DEFAULT_SQUARES = ("512x512x512", "1024x1024x1024", "2048x2048x2048")
CPU_SQUARES = ("64x64x64", "128x128x128", "256x256x256")
"""Sizes used instead for a recording on a CPU, where 16 products of 2048³ take seconds in f32 and
minutes in f16, so that the default grid takes minutes there too."""
DEFAULT_RECTANGLES = ("1024x4096x1024", "4096x1024x1024", "1024x1024x4096")
DEFAULT_PRECISIONS = ("f32", "f16", "bf16", "s8")
"""fp32, fp16, bf16 and int8, which the document lists."""
DEFAULT_BATCHES = (1, 4, 16)


@dataclass(frozen=True, slots=True)
class GridAxes:
    """Empty where the spec has no grid setting for the axis."""

    shapes: tuple[Shape, ...]
    precisions: tuple[str, ...]
    layouts: tuple[str, ...]
    scaling: str


def grid_axes(spec: ProfileSpec) -> GridAxes:
    """The axes that the grid settings of `spec` describe.

    Raises:
        RequestError: a size cannot be read, or enable_rectangular is off and no size is square.
    """
    scaling = spec.scaling
    if spec.sf_dtype or spec.sf_vec_size:
        scaling = str(parse_scaling(f"vs{spec.sf_vec_size or 16}_{spec.sf_dtype or 'e8m0'}"))
    layouts = _layouts(spec)
    if not layouts and isinstance(parse_scaling(scaling), BlockScaling):
        layouts = ("tn",)  # Blocks are contiguous along K.
    return GridAxes(_shapes(spec), _precisions(spec), layouts, scaling)


def _shapes(spec: ProfileSpec) -> tuple[Shape, ...]:
    sizes = spec.matrix_sizes
    if not sizes and (
        spec.batch_sizes or spec.enable_size_search or spec.enable_rectangular
        or spec.enable_batch_search
    ):  # fmt: skip
        sizes = DEFAULT_SQUARES + (DEFAULT_RECTANGLES if spec.enable_rectangular else ())
    shapes = [shape for shape in parse_shapes(sizes) if isinstance(shape, MatmulShape)]
    if spec.mnkl:
        shapes.append(MatmulShape(*spec.mnkl))
    if spec.enable_rectangular is False:
        squares = [shape for shape in shapes if shape.m == shape.n == shape.k]
        if shapes and not squares:
            raise EmptySelectionError(
                "enable_rectangular is off, and none of the matrix_sizes is square",
                hint="Turn enable_rectangular on, or give a square size.",
            )
        shapes = squares
    if spec.enable_size_search is False:
        shapes = shapes[:1]
    batches = parse_sizes(spec.batch_sizes) if spec.batch_sizes else ()
    if not batches and spec.enable_batch_search:
        batches = DEFAULT_BATCHES
    if spec.enable_batch_search is False:
        batches = batches[:1]
    if not batches:
        return tuple(shapes)
    return tuple(shape._replace(batch=batch) for batch in batches for shape in shapes)


def _precisions(spec: ProfileSpec) -> tuple[str, ...]:
    precisions = spec.precisions
    if not precisions and spec.enable_precision_search:
        precisions = DEFAULT_PRECISIONS
    return precisions[:1] if spec.enable_precision_search is False else precisions


def _layouts(spec: ProfileSpec) -> tuple[str, ...]:
    if spec.enable_layout_search:
        return LAYOUT_PAIRS
    if spec.transpose_a is None and spec.transpose_b is None:
        return ()
    # A transposed operand of a row-major product is a column-major one in memory.
    return (f"{'n' if spec.transpose_a else 't'}{'n' if spec.transpose_b else 't'}",)
