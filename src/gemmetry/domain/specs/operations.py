"""Expands axes into operations, lazily: each signature is checked once, and then combined with
shapes.

Converts the grid tracing document's settings, and the options of CUTLASS' block-scaled example,
into shapes, formats, layouts and scaling.

A list is searched unless its switch is off, and then its first entry is the fixed value. A switch
that is on without a list searches the list below.

The defaults of a request: shapes and formats of each kind of operation.

Derives a spec's operations from its keys: kinds, shapes and signatures.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from gemmetry.domain.dispatch import TargetKind
from gemmetry.domain.errors import EmptySelectionError, RequestError
from gemmetry.domain.operation import (
    DTYPES,
    BlockScaling,
    Conv2dShape,
    EpilogueStep,
    Layout,
    MatmulShape,
    Operation,
    OperationKind,
    Shape,
    Signature,
    default_result,
    operation_name,
    parse_scaling,
)
from gemmetry.domain.specs.fields import LAYOUT_PAIRS
from gemmetry.domain.specs.model import ProfileSpec
from gemmetry.domain.specs.shapes import (
    LEGACY_BATCH_SHAPE,
    LEGACY_SPLIT_K_SHAPE,
    LEGACY_SPLIT_K_SLICES,
    PRESETS,
    parse_shape,
    parse_shapes,
    parse_sizes,
    print_shape,
)


@dataclass(frozen=True)
class SizeGrid:
    """The product of sizes of M, N, K and batch, in that nesting; re-iterable."""

    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    batch: tuple[int, ...] = (1,)

    def __iter__(self) -> Iterator[MatmulShape]:
        return map(MatmulShape._make, itertools.product(self.m, self.n, self.k, self.batch))

    def __len__(self) -> int:
        return len(self.m) * len(self.n) * len(self.k) * len(self.batch)

    @cached_property
    def _sets(self) -> tuple[frozenset[int], ...]:
        return tuple(frozenset(axis) for axis in (self.m, self.n, self.k, self.batch))

    def __contains__(self, shape: object) -> bool:
        return isinstance(shape, MatmulShape) and all(
            size in axis for size, axis in zip(shape, self._sets, strict=True)
        )


Shapes = SizeGrid | tuple[Shape, ...]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class OperationBlock:
    """Signatures that share shapes."""

    signatures: tuple[Signature, ...]
    shapes: Shapes

    def __len__(self) -> int:
        return len(self.signatures) * len(self.shapes)


class Operations:
    """The operations of blocks and single ones: lazy, re-iterable, without duplicates.

    Blocks must not overlap each other; a single operation that a block also contains is yielded
    once.
    """

    def __init__(self, blocks: Iterable[OperationBlock], singles: Iterable[Operation] = ()) -> None:
        self.blocks = tuple(block for block in blocks if len(block))
        self.singles = tuple(
            one for one in dict.fromkeys(singles)
            if not any(one.shape in block.shapes and one.signature in block.signatures
                       for block in self.blocks)
        )  # fmt: skip

    def __iter__(self) -> Iterator[Operation]:
        for block in self.blocks:
            for signature in block.signatures:
                yield from map(Operation, itertools.repeat(signature), block.shapes)
        yield from self.singles

    def __len__(self) -> int:
        return sum(len(block) for block in self.blocks) + len(self.singles)


def make_signatures(
    kind: OperationKind, axes: ProfileSpec, slices: Sequence[int] = (1,)
) -> tuple[tuple[Signature, ...], tuple[str, ...]]:
    """The valid signatures of the product of a spec's axes, and one note for each kind of invalid
    one. The axes are complete (:func:`signature_axes`), and formats are not empty; another empty
    axis takes its default.

    Raises:
        RequestError: no combination is valid; the reason of the first is given.
    """
    is_conv = kind is OperationKind.CONV2D
    layouts = ("nhwc_hwcf",) if is_conv else axes.layouts or ("tt",)
    signatures: dict[Signature, None] = {}
    refused: dict[str, RequestError] = {}
    for dtypes, result, accumulator, layout, epilogue, count in itertools.product(
        axes.dtypes, axes.result_dtype or ("",), axes.accumulator or ("",), layouts,
        axes.epilogues or ("none",), slices,
    ):  # fmt: skip
        formats = [DTYPES[name] for name in dtypes.split(":")]
        lhs, rhs = formats[0], formats[min(1, len(formats) - 1)]
        usual = DTYPES[result] if result else default_result(lhs, rhs)
        output = formats[2] if len(formats) > 2 else usual
        left, right = layout.split("_") if is_conv else list(layout)
        try:
            signature = Signature(
                kind, lhs, rhs, output, Layout(left), Layout(right),
                Layout.NHWC if is_conv else Layout(axes.result_layout),
                accumulator=DTYPES.get(accumulator),  # type: ignore[arg-type]
                split_k_slices=count,
                scaling=parse_scaling(axes.scaling), alpha=axes.alpha, beta=axes.beta,
                epilogue=tuple(EpilogueStep(s) for s in epilogue.split("+") if s != "none"),
            )  # fmt: skip
        except RequestError as error:
            refused.setdefault(error.message, error)
        else:
            signatures[signature] = None
    if not signatures and refused:
        raise next(iter(refused.values()))
    return tuple(signatures), tuple(f"left out: {message}" for message in refused)


def divide(
    signatures: Iterable[Signature], shapes: Shapes
) -> tuple[list[OperationBlock], tuple[str, ...]]:
    """Blocks of split-k signatures over the shapes whose K divides into the slices; the others
    are left out, as the dispatch profiler did, with a note.

    Raises:
        EmptySelectionError: nothing divides.
    """
    blocks, notes = [], []
    for signature in signatures:
        slices = signature.split_k_slices
        fitting: Shapes
        if isinstance(shapes, SizeGrid):
            ks = tuple(k for k in shapes.k if k % slices == 0)
            fitting = SizeGrid(shapes.m, shapes.n, ks, shapes.batch)
        else:
            fitting = tuple(s for s in shapes if isinstance(s, MatmulShape) and s.k % slices == 0)
        if left_out := len(shapes) - len(fitting):
            notes.append(f"left out: {left_out} shape(s) whose K does not divide into {slices} "
                         "slices")  # fmt: skip
        blocks.append(OperationBlock((signature,), fitting))
    if not any(len(block) for block in blocks):
        raise EmptySelectionError(
            "no K divides into the requested slices", hint="Choose slices that divide K."
        )
    return blocks, tuple(dict.fromkeys(notes))


DEFAULT_SQUARES = ("512x512x512", "1024x1024x1024", "2048x2048x2048")
CPU_SQUARES = ("64x64x64", "128x128x128", "256x256x256")
"""Sizes used instead for a recording on a CPU, where 16 products of 2048³ take seconds in f32 and
minutes in f16, so that the default grid takes minutes there too."""
DEFAULT_RECTANGLES = ("1024x4096x1024", "4096x1024x1024", "1024x1024x4096")
DEFAULT_PRECISIONS = ("f32", "f16", "bf16", "s8")
"""fp32, fp16, bf16 and int8, which the document lists."""
DEFAULT_BATCHES = (1, 4, 16)


def grid_shapes(spec: ProfileSpec) -> tuple[Shape, ...]:
    """The shapes that the grid settings of `spec` describe; empty where it has none.

    Raises:
        RequestError: a size cannot be read, or enable_rectangular is off and no size is square.
    """
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
    batches = _searched(batches, spec.enable_batch_search, DEFAULT_BATCHES)
    if not batches:
        return tuple(shapes)
    return tuple(shape._replace(batch=batch) for batch in batches for shape in shapes)


def _searched(given: tuple[_T, ...], switch: bool | None, usual: tuple[_T, ...]) -> tuple[_T, ...]:
    """The values of an axis: the `given` ones, `usual` ones where the `switch` of the search is on,
    and the first alone where it is off."""
    found = given or (usual if switch else ())
    return found[:1] if switch is False else found


def signature_axes(spec: ProfileSpec) -> ProfileSpec:
    """`spec` with formats, layouts and scaling also where the settings of a grid or the options of
    block-scaled products give them."""
    precisions = _searched(spec.precisions, spec.enable_precision_search, DEFAULT_PRECISIONS)
    scaling, layouts = spec.scaling, spec.layouts
    if spec.sf_dtype or spec.sf_vec_size:
        scaling = str(parse_scaling(f"vs{spec.sf_vec_size or 16}_{spec.sf_dtype or 'e8m0'}"))
    if not layouts and spec.enable_layout_search:
        layouts = LAYOUT_PAIRS
    elif not layouts and not (spec.transpose_a is None and spec.transpose_b is None):
        # A transposed operand of a row-major product is a column-major one in memory.
        layouts = (f"{'n' if spec.transpose_a else 't'}{'n' if spec.transpose_b else 't'}",)
    elif not layouts and isinstance(parse_scaling(scaling), BlockScaling):
        layouts = ("tn",)  # Blocks are contiguous along K.
    dtypes = tuple(dict.fromkeys((*spec.dtypes, *precisions)))
    return spec.model_copy(update={"dtypes": dtypes, "layouts": layouts, "scaling": scaling})


DEFAULT_BATCH = 16
"""The batch of a batch_matmul whose request names none: the dispatch profiler's."""

_MATMUL, _SPLIT_K = OperationKind.MATMUL, OperationKind.MATMUL_SPLITK
_BATCH, _CONV = OperationKind.BATCH_MATMUL, OperationKind.CONV2D


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """One set of defaults."""

    kinds: tuple[OperationKind, ...]
    """Kinds when neither kinds nor shapes are given."""
    shapes: Mapping[OperationKind, tuple[str, ...]]
    dtypes: Mapping[OperationKind, tuple[str, ...]]
    slices: tuple[int, ...] = (2, 4)
    provider: str | None = None
    """The only provider when none is given; None: every available one."""
    device: str | None = None
    """The device when none is given; None: the best one here."""
    dispatches: tuple[str, ...] = ()
    """Patterns when neither shapes nor patterns are given. They name configurations on CUDA; on
    other devices all configurations are used."""


def first_run(kind: TargetKind) -> Defaults:
    """Defaults for measuring on a device of `kind`."""
    is_gpu = kind in (TargetKind.CUDA, TargetKind.HIP)
    preset, dtype = ("first_gpu", "bf16") if is_gpu else ("first", "f32")
    return Defaults(
        kinds=(_MATMUL,),
        shapes={
            _MATMUL: PRESETS[preset],
            _BATCH: ("4x256x256x256",),
            _SPLIT_K: ("128x128x4096",),
            _CONV: PRESETS["conv"],
        },
        dtypes=dict.fromkeys(OperationKind, (dtype,)),
    )


def legacy(provider: str) -> Defaults:
    """The dispatch profiler's own set: 109 dispatches for CUDA, used when `generate` or `compile`
    gets no options. Given shapes replace it, with every configuration of `provider`; ``--shapes
    legacy,768x512x1024`` measures both shapes."""
    return Defaults(
        kinds=(_MATMUL, _SPLIT_K, _BATCH),
        shapes={
            _MATMUL: PRESETS["legacy"],
            _SPLIT_K: (LEGACY_SPLIT_K_SHAPE,),
            _BATCH: (LEGACY_BATCH_SHAPE,),
            _CONV: PRESETS["conv"],
        },
        dtypes={
            _MATMUL: ("f16", "f32", "f16:f16:f32"),
            _SPLIT_K: ("f16", "f32"),
            _BATCH: ("f16", "f32"),
            _CONV: ("f32",),
        },
        slices=LEGACY_SPLIT_K_SLICES,
        provider=provider,
        device="cuda-sm_80",
        dispatches=("configuration=tile_config_*_tensorcore_mmasync",),
    )


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
    given, axes = _given_shapes(spec, grid_shapes(spec), base), signature_axes(spec)
    slices = parse_sizes(spec.split_k_slices) if spec.split_k_slices else ()
    kinds = _kinds(spec, given, slices, defaults) if given.any or use_default_shapes else ()
    blocks: list[OperationBlock] = []
    notes: list[str] = []
    for kind in kinds:
        own = axes.model_copy(update={"dtypes": axes.dtypes or defaults.dtypes[kind]})
        is_split = kind is _SPLIT_K
        signatures, refused = make_signatures(
            kind, own, (slices or defaults.slices) if is_split else (1,)
        )
        notes += refused
        for shapes in _shapes_of(kind, given, defaults):
            found, undivided = (divide(signatures, shapes) if is_split
                                else ([OperationBlock(signatures, shapes)], ()))  # fmt: skip
            blocks += found
            notes += undivided
    return Expansion(Operations(blocks, singles), _document(blocks, singles), given.any, notes)


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
    listed = dict.fromkeys([*parse_shapes(spec.shapes, base=base), *convolved, *matrix_shapes])
    products = [shape for shape in listed if isinstance(shape, MatmulShape)]
    given = _GivenShapes(
        plain=tuple(shape for shape in products if shape.batch == 1),
        batched=tuple(shape for shape in products if shape.batch > 1),
        convolved=tuple(shape for shape in listed if isinstance(shape, Conv2dShape)),
        batches=parse_sizes(spec.problem_b) if spec.problem_b else (),
    )
    axes = {"m": spec.problem_m, "n": spec.problem_n, "k": spec.problem_k}
    if not any(axes.values()) and (given.plain or not given.batches):
        return given
    # Of a product with a missing size, any value would be a guess.
    if missing := [axis for axis, sizes in axes.items() if not sizes]:
        names = [f"problem_{axis}" for axis, sizes in axes.items() if sizes] or ["problem_b"]
        raise RequestError(
            f"{' and '.join(names)} without {' and '.join(f'problem_{one}' for one in missing)}: "
            "a product has M, N and K",
            hint=f"Add {' and '.join(f'--problem-{one}' for one in missing)}, or write whole "
            "shapes: --shapes 768x512x1024.",
        )
    given.sizes = SizeGrid(*map(parse_sizes, axes.values()))
    return given


def _kinds(
    spec: ProfileSpec, given: _GivenShapes, slices: Sequence[int], defaults: Defaults
) -> tuple[OperationKind, ...]:
    kinds_given = spec.operation_kind
    if "all" in kinds_given:
        return tuple(OperationKind)
    if kinds_given:
        kinds = tuple(OperationKind(kind) for kind in kinds_given)
        _refuse_unused(kinds, given)
        return kinds
    if not given.any:
        return (OperationKind.MATMUL_SPLITK,) if slices else defaults.kinds
    wanted = {
        _SPLIT_K if slices else _MATMUL: given.plain or (given.sizes and not given.batches),
        _BATCH: given.batched or given.batches,
        _CONV: given.convolved,
    }
    return tuple(kind for kind in OperationKind if wanted.get(kind))


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
    sizes, listed = given.sizes, given.plain
    if kind is OperationKind.BATCH_MATMUL:
        batches = given.batches or (DEFAULT_BATCH,)
        sizes = None if sizes is None else replace(sizes, batch=batches)
        products = tuple(s._replace(batch=b) for s in given.plain for b in batches)
        listed = given.batched or products
    found: list[Shapes] = [given.convolved]
    if kind is not OperationKind.CONV2D:
        rest = tuple(shape for shape in listed if sizes is None or shape not in sizes)
        found = [rest] if sizes is None else [sizes, rest]
    found = [shapes for shapes in found if len(shapes)]
    return found or [tuple(parse_shape(text) for text in defaults.shapes[kind])]


_AXES = ("m", "n", "k", "batch")


def _document(blocks: Sequence[OperationBlock], singles: Sequence[Operation]) -> dict[str, object]:
    """The axes in canonical form: signatures by name, sizes as they were written."""
    groups = []
    for block in blocks:
        shapes: object = (
            {axis: _compact(sizes) for axis, sizes in vars(block.shapes).items() if axis in _AXES}
            if isinstance(block.shapes, SizeGrid) else list(map(print_shape, block.shapes))
        )  # fmt: skip
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
