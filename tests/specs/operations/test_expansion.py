from __future__ import annotations

import time

import pytest

from gemmetry.domain.errors import EmptySelectionError, RequestError
from gemmetry.domain.names import parse_operation
from gemmetry.domain.operation import MatmulShape, Operation, OperationKind
from gemmetry.domain.specs.operations import (
    OperationBlock,
    Operations,
    SignatureAxes,
    SizeGrid,
    divide,
    make_signatures,
)


def test_a_grid_is_a_product_that_reads_twice():
    grid = SizeGrid((1, 2), (3,), (4, 5))
    expected = [MatmulShape(1, 3, 4), MatmulShape(1, 3, 5), MatmulShape(2, 3, 4),
                MatmulShape(2, 3, 5)]  # fmt: skip
    assert list(grid) == list(grid) == expected
    assert len(grid) == 4
    assert MatmulShape(2, 3, 5) in grid
    assert MatmulShape(2, 3, 6) not in grid
    assert MatmulShape(2, 3, 5, 2) not in grid


def test_operations_are_lazy_and_without_duplicates():
    (signature,), _ = make_signatures(OperationKind.MATMUL, SignatureAxes(dtypes=("f32",)))
    single = parse_operation("matmul_1x1x1_f16t_f16t_f16t")
    inside = Operation(signature, MatmulShape(1, 2, 3))
    operations = Operations(
        [OperationBlock((signature,), SizeGrid((1,), (2,), (3, 4)))], [single, inside, single]
    )
    assert [str(operation) for operation in operations] == [
        "matmul_1x2x3_f32t_f32t_f32t",
        "matmul_1x2x4_f32t_f32t_f32t",
        "matmul_1x1x1_f16t_f16t_f16t",
    ]
    assert len(operations) == len(list(operations)) == 3


def test_signatures_are_the_product_of_their_axes():
    signatures, notes = make_signatures(
        OperationKind.MATMUL,
        SignatureAxes(
            dtypes=("f16", "f16:f16:f32"), layouts=("tt", "tn"), epilogues=("none", "relu")
        ),
    )
    names = {str(Operation(signature, MatmulShape(1, 1, 1))) for signature in signatures}
    assert len(names) == 8
    assert "matmul_1x1x1_f16t_f16n_f32t_relu" in names
    assert notes == ()


def test_invalid_combinations_are_left_out_and_reported():
    signatures, notes = make_signatures(
        OperationKind.MATMUL, SignatureAxes(dtypes=("f32", "s8"), epilogues=("none", "gelu"))
    )
    assert len(signatures) == 3
    assert len(notes) == 1
    assert "gelu" in notes[0]


def test_no_valid_combination_is_an_error():
    with pytest.raises(RequestError, match="gelu"):
        make_signatures(OperationKind.MATMUL, SignatureAxes(dtypes=("s8",), epilogues=("gelu",)))


def test_slices_that_do_not_divide_are_left_out():
    signatures, _ = make_signatures(
        OperationKind.MATMUL_SPLITK, SignatureAxes(dtypes=("f32",)), (2, 3, 18)
    )
    blocks, notes = divide(signatures, SizeGrid((8,), (8,), (12, 36)))
    found = {block.signatures[0].split_k_slices: [s.k for s in block.shapes] for block in blocks}
    assert found == {2: [12, 36], 3: [12, 36], 18: [36]}
    assert len(notes) == 1
    assert "1 shape(s)" in notes[0]
    assert "18 slices" in notes[0]
    listed, _ = divide(signatures, (MatmulShape(8, 8, 36),))
    assert sum(len(block) for block in listed) == 3
    with pytest.raises(EmptySelectionError):
        divide(signatures[2:], (MatmulShape(8, 8, 8),))


def test_conv2d_ignores_the_layout_axis():
    (signature,), _ = make_signatures(
        OperationKind.CONV2D, SignatureAxes(dtypes=("f32",), layouts=("tt", "nn"))
    )
    assert signature.layout_pair == "nhwc_hwcf"


def test_a_million_operations_take_little_time():
    (signature,), _ = make_signatures(OperationKind.MATMUL, SignatureAxes(dtypes=("f32",)))
    sizes = tuple(range(1, 101))
    operations = Operations([OperationBlock((signature,), SizeGrid(sizes, sizes, sizes))])
    start = time.process_time()
    count = sum(1 for _ in operations)
    assert count == len(operations) == 1_000_000
    # 0.5 s on the development machine; the bound leaves room for slow ones.
    assert time.process_time() - start < 3
