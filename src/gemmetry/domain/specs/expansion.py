"""Expands axes into operations, lazily: each signature is checked once, and then combined with
shapes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from gemmetry.domain.errors import EmptySelectionError, RequestError
from gemmetry.domain.operation import (
    DTYPES,
    Conv2dShape,
    DType,
    EpilogueStep,
    Layout,
    MatmulShape,
    Operation,
    OperationKind,
    Shape,
    Signature,
    default_result,
    parse_scaling,
)


@dataclass(frozen=True)
class SizeGrid:
    """The product of sizes of M, N, K and batch, in that nesting; re-iterable."""

    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    batch: tuple[int, ...] = (1,)

    def __iter__(self) -> Iterator[MatmulShape]:
        sizes = itertools.product(self.m, self.n, self.k, self.batch)
        return map(MatmulShape._make, sizes)

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
            operation for operation in dict.fromkeys(singles) if not self._in_blocks(operation)
        )

    def __iter__(self) -> Iterator[Operation]:
        for block in self.blocks:
            for signature in block.signatures:
                yield from map(Operation, itertools.repeat(signature), block.shapes)
        yield from self.singles

    def __len__(self) -> int:
        return sum(len(block) for block in self.blocks) + len(self.singles)

    def _in_blocks(self, operation: Operation) -> bool:
        return any(
            operation.shape in block.shapes and operation.signature in block.signatures
            for block in self.blocks
        )


@dataclass(frozen=True, kw_only=True)
class SignatureAxes:
    """Everything but kind and shape; empty axes take their default."""

    dtypes: tuple[str, ...]
    """``f32`` or ``lhs:rhs`` or ``lhs:rhs:result``."""
    results: tuple[str, ...] = ()
    accumulators: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    result_layout: str = "t"
    epilogues: tuple[str, ...] = ()
    alpha: float = 1.0
    beta: float = 0.0
    scaling: str = "none"


def make_signatures(
    kind: OperationKind, axes: SignatureAxes, slices: Sequence[int] = (1,)
) -> tuple[tuple[Signature, ...], tuple[str, ...]]:
    """The valid signatures of the axes' product, and one note for each kind of invalid one.

    Raises:
        RequestError: no combination is valid; the reason of the first is given.
    """
    is_conv = kind is OperationKind.CONV2D
    layouts = ("nhwc_hwcf",) if is_conv else axes.layouts or ("tt",)
    signatures: dict[Signature, None] = {}
    refused: dict[str, RequestError] = {}
    for dtypes, result, accumulator, layout, epilogue, count in itertools.product(
        axes.dtypes, axes.results or ("",), axes.accumulators or ("",), layouts,
        axes.epilogues or ("none",), slices,
    ):  # fmt: skip
        lhs, rhs, output = _operands(dtypes, result)
        left, right = layout.split("_") if is_conv else (layout[0], layout[1])
        try:
            signature = Signature(
                kind, lhs, rhs, output, Layout(left), Layout(right),
                Layout.NHWC if is_conv else Layout(axes.result_layout),
                accumulator=DTYPES.get(accumulator),  # type: ignore[arg-type]
                split_k_slices=count,
                scaling=parse_scaling(axes.scaling), alpha=axes.alpha, beta=axes.beta,
                epilogue=_steps(epilogue),
            )  # fmt: skip
        except RequestError as error:
            refused.setdefault(error.message, error)
        else:
            signatures[signature] = None
    if not signatures and refused:
        raise next(iter(refused.values()))
    return tuple(signatures), tuple(f"left out: {message}" for message in refused)


def _operands(dtypes: str, result: str) -> tuple[DType, DType, DType]:
    names = dtypes.split(":")
    lhs = DTYPES[names[0]]
    rhs = DTYPES[names[1]] if len(names) > 1 else lhs
    if len(names) > 2:
        return lhs, rhs, DTYPES[names[2]]
    return lhs, rhs, DTYPES[result] if result else default_result(lhs, rhs)


def _steps(epilogue: str) -> tuple[EpilogueStep, ...]:
    return () if epilogue == "none" else tuple(EpilogueStep(s) for s in epilogue.split("+"))


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
        left_out = len(shapes) - len(fitting)
        if left_out:
            notes.append(
                f"left out: {left_out} shape(s) whose K does not divide into {slices} slices"
            )
        blocks.append(OperationBlock((signature,), fitting))
    if not any(len(block) for block in blocks):
        raise EmptySelectionError(
            "no K divides into the requested slices", hint="Choose slices that divide K."
        )
    return blocks, tuple(dict.fromkeys(notes))


def without_batch(shapes: Iterable[Shape]) -> tuple[MatmulShape, ...]:
    """The plain matmul shapes among `shapes`."""
    return tuple(s for s in shapes if isinstance(s, MatmulShape) and s.batch == 1)


def with_batch(shapes: Iterable[Shape]) -> tuple[MatmulShape, ...]:
    """The batched shapes among `shapes`."""
    return tuple(s for s in shapes if isinstance(s, MatmulShape) and s.batch > 1)


def convolutions(shapes: Iterable[Shape]) -> tuple[Conv2dShape, ...]:
    """The conv2d shapes among `shapes`."""
    return tuple(s for s in shapes if isinstance(s, Conv2dShape))
