"""Derives a spec's operations from its keys: kinds, shapes and signatures."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gemmetry.domain.errors import RequestError
from gemmetry.domain.names import operation_name
from gemmetry.domain.operation import MatmulShape, Operation, OperationKind, Shape
from gemmetry.specs.model import ProfileSpec
from gemmetry.specs.operations.defaults import DEFAULT_BATCH, Defaults
from gemmetry.specs.operations.expansion import (
    OperationBlock,
    Operations,
    Shapes,
    SignatureAxes,
    SizeGrid,
    convolutions,
    divide,
    make_signatures,
    with_batch,
    without_batch,
)
from gemmetry.specs.operations.grid import grid_axes
from gemmetry.specs.operations.ranges import parse_sizes
from gemmetry.specs.operations.shapes import parse_shape, parse_shapes, print_shape

_KINDS = tuple(OperationKind)


@dataclass
class _GivenShapes:
    """Shapes of a request, by the kind of operation to which they apply."""

    plain: tuple[MatmulShape, ...] = ()
    batched: tuple[MatmulShape, ...] = ()
    convolved: tuple[Shape, ...] = ()
    sizes: SizeGrid | None = None
    """The product of problem_m, -n and -k."""
    batches: tuple[int, ...] = ()

    @property
    def any(self) -> bool:
        return bool(self.plain or self.batched or self.convolved or self.sizes)


@dataclass
class Expansion:
    """A spec's operations, its axes in canonical form, and notes on what was left out."""

    operations: Operations
    document: dict[str, object]
    has_shapes: bool
    """True if the spec gave shapes, so that the default shapes were not used."""
    notes: list[str] = field(default_factory=list)


def expand(
    spec: ProfileSpec,
    defaults: Defaults,
    *,
    base: Path | None = None,
    singles: Sequence[Operation] = (),
    use_default_shapes: bool = True,
) -> Expansion:
    """The operations that `spec` requests, with `singles` added.

    Files of shapes are relative to the folder `base`. Without `use_default_shapes`, a spec that
    gives no shape requests only `singles`.

    Raises:
        RequestError: a shape cannot be read or fits no requested kind, or no combination
            of the axes is valid.
    """
    grid = grid_axes(spec)
    given = _given_shapes(spec, grid.shapes, base)
    dtypes = (*spec.dtypes, *(d for d in grid.precisions if d not in spec.dtypes))
    axes = SignatureAxes(
        dtypes=dtypes,
        results=spec.result_dtype,
        accumulators=spec.accumulator,
        layouts=spec.layouts or grid.layouts,
        result_layout=spec.result_layout,
        epilogues=spec.epilogues,
        alpha=spec.alpha,
        beta=spec.beta,
        scaling=grid.scaling,
    )
    slices = parse_sizes(spec.split_k_slices) if spec.split_k_slices else ()
    kinds = _kinds(spec, given, slices, defaults) if given.any or use_default_shapes else ()
    blocks: list[OperationBlock] = []
    notes: list[str] = []
    for kind in kinds:
        kind_axes = axes if dtypes else replace(axes, dtypes=defaults.dtypes[kind])
        if kind is OperationKind.MATMUL_SPLITK:
            signatures, refused = make_signatures(kind, kind_axes, slices or defaults.slices)
        else:
            signatures, refused = make_signatures(kind, kind_axes)
        for shapes in _shapes_of(kind, given, defaults):
            if kind is OperationKind.MATMUL_SPLITK:
                fitting, undivided = divide(signatures, shapes)
                blocks.extend(fitting)
                refused = (*refused, *undivided)
            else:
                blocks.append(OperationBlock(signatures, shapes))
        notes.extend(refused)
    document = _document(blocks, singles)
    return Expansion(Operations(blocks, singles), document, given.any, notes)


def _given_shapes(
    spec: ProfileSpec, matrix_shapes: Sequence[Shape], base: Path | None
) -> _GivenShapes:
    convolved = parse_shapes(spec.conv_shapes, base=base)
    for shape in convolved:
        if isinstance(shape, MatmulShape):
            raise RequestError(
                f"conv_shapes contains {print_shape(shape)}, which is not the shape of a "
                "convolution",
                hint="Write --conv-shapes NxHxWxC_RxSxF, as in 1x56x56x64_3x3x64_pad1x1.",
            )
    listed = [*parse_shapes(spec.shapes, base=base), *convolved]
    listed = list(dict.fromkeys([*listed, *matrix_shapes]))
    given = _GivenShapes(
        without_batch(listed), with_batch(listed), convolutions(listed),
        batches=parse_sizes(spec.problem_b) if spec.problem_b else (),
    )  # fmt: skip
    axes = {"m": spec.problem_m, "n": spec.problem_n, "k": spec.problem_k}
    if any(axes.values()) or (given.batches and not given.plain):
        _refuse_missing(axes)
        given.sizes = SizeGrid(*map(parse_sizes, axes.values()))
    return given


def _refuse_missing(axes: Mapping[str, Sequence[int | str]]) -> None:
    """Refuse a product with a missing size, for which any value would be a guess."""
    missing = [axis for axis, sizes in axes.items() if not sizes]
    if missing:
        given = [f"problem_{axis}" for axis, sizes in axes.items() if sizes] or ["problem_b"]
        lacking = [f"problem_{axis}" for axis in missing]
        flags = " and ".join(f"--problem-{axis}" for axis in missing)
        raise RequestError(
            f"{' and '.join(given)} without {' and '.join(lacking)}: a product has M, N and K",
            hint=f"Add {flags}, or write whole shapes: --shapes 768x512x1024.",
        )


def _kinds(
    spec: ProfileSpec, given: _GivenShapes, slices: Sequence[int], defaults: Defaults
) -> tuple[OperationKind, ...]:
    kinds_given = spec.operation_kind
    if "all" in kinds_given:
        return _KINDS
    if kinds_given:
        kinds = tuple(OperationKind(kind) for kind in kinds_given)
        _refuse_unused(kinds, given)
        return kinds
    if not given.any:
        return (OperationKind.MATMUL_SPLITK,) if slices else defaults.kinds
    found = []
    if given.batched or given.batches:
        found.append(OperationKind.BATCH_MATMUL)
    if given.plain or (given.sizes and not given.batches):
        found.append(OperationKind.MATMUL_SPLITK if slices else OperationKind.MATMUL)
    if given.convolved:
        found.append(OperationKind.CONV2D)
    return tuple(sorted(found, key=_KINDS.index))


def _refuse_unused(kinds: tuple[OperationKind, ...], given: _GivenShapes) -> None:
    if given.batched and OperationKind.BATCH_MATMUL not in kinds:
        raise RequestError(
            f"shapes with a batch are given, but the kinds are {', '.join(kinds)}",
            hint="Add batch_matmul to --operation-kind, or write MxNxK without the batch.",
        )
    if given.convolved and OperationKind.CONV2D not in kinds:
        raise RequestError(
            f"shapes of a convolution are given, but the kinds are {', '.join(kinds)}",
            hint="Add conv2d to --operation-kind.",
        )
    if (given.plain or given.sizes) and set(kinds) == {OperationKind.CONV2D}:
        raise RequestError(
            "M, N and K are given, but the only kind is conv2d",
            hint="Give --conv-shapes NxHxWxC_RxSxF, or add matmul to --operation-kind.",
        )


def _shapes_of(kind: OperationKind, given: _GivenShapes, defaults: Defaults) -> list[Shapes]:
    """The shapes of one kind, as blocks that do not overlap."""
    found: list[Shapes] = []
    sizes = given.sizes
    if kind is OperationKind.CONV2D:
        found = [given.convolved]
    elif kind is OperationKind.BATCH_MATMUL:
        batches = given.batches or (DEFAULT_BATCH,)
        if sizes is not None:
            sizes = SizeGrid(sizes.m, sizes.n, sizes.k, batches)
            found.append(sizes)
        listed = given.batched
        if not listed and given.plain:
            listed = tuple(s._replace(batch=b) for s in given.plain for b in batches)
        found.append(tuple(s for s in listed if sizes is None or s not in sizes))
    else:
        if sizes is not None:
            found.append(sizes)
        found.append(tuple(s for s in given.plain if sizes is None or s not in sizes))
    found = [shapes for shapes in found if len(shapes)]
    return found or [tuple(parse_shape(text) for text in defaults.shapes[kind])]


def _document(blocks: Sequence[OperationBlock], singles: Sequence[Operation]) -> dict[str, object]:
    """The axes in canonical form: signatures by name, sizes as they were written."""
    groups = []
    for block in blocks:
        shapes: object
        if isinstance(block.shapes, SizeGrid):
            grid = block.shapes
            shapes = {"m": _compact(grid.m), "n": _compact(grid.n), "k": _compact(grid.k),
                      "batch": _compact(grid.batch)}  # fmt: skip
        else:
            shapes = [print_shape(shape) for shape in block.shapes]
        first = next(iter(block.shapes), None)
        if first is not None:
            names = [operation_name(Operation(s, first)) for s in block.signatures]
            groups.append({"signatures_at_first_shape": names, "shapes": shapes})
    return {"blocks": groups, "singles": [operation_name(operation) for operation in singles]}


def _compact(sizes: tuple[int, ...]) -> str:
    """Sizes as text, arithmetic runs as first:last:step, so that long ranges stay short."""
    if len(sizes) > 2:
        step = sizes[1] - sizes[0]
        if step > 0 and all(b - a == step for a, b in itertools.pairwise(sizes)):
            return f"{sizes[0]}:{sizes[-1] + 1}:{step}"
    return ",".join(str(size) for size in sizes)
