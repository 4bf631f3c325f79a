from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.operation import check_shape, operation_name
from gemmetry.verification.companions import (
    Companions,
    Sizes,
    covering_operations,
    covering_sizes,
    prime_from,
    tail_operations,
)

NAMES = [
    "matmul_4096x4096x4096_bf16t_bf16n_bf16t",
    "matmul_splitk_4096x4096x4096_f16t_f16n_f16t_slices4",
    "batch_matmul_8x512x512x64_f16n_f16t_f16n_bias",
    "conv2d_8x56x56x64_3x3x128_stride2x2_pad1x1_f16nhwc_f16hwcf_f16nhwc",
    "conv2d_1x16x16x3_7x7x8_stride1x1_pad0x0_f32nhwc_f32hwcf_f32nhwc",
]


def tails(name, tile, *, thorough=False, stages=None):
    operation = parse_operation(name)
    companions = Companions(lambda other: None, tile, stages)
    return list(tail_operations(operation, companions, thorough=thorough))


def test_what_is_built_is_closed_also_after_an_error():
    closed, operation = [], parse_operation(NAMES[0])
    executable = SimpleNamespace(close=lambda: closed.append(operation))
    with Companions(lambda _other: executable).built(operation) as built:
        assert (built, closed) == (executable, [])
    with pytest.raises(KeyError), Companions(lambda _other: executable).built(operation):
        assert len(closed) == 1
        raise KeyError
    assert len(closed) == 2
    with Companions(lambda _other: None).built(operation) as built:
        assert built is None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("thorough", [False, True])
@pytest.mark.parametrize("tile", [(128, 256, 64), (1, 8, 1), None])
def test_tails_are_operations_of_the_signature(name, thorough, tile):
    signature = parse_operation(name).signature
    found = tails(name, tile, thorough=thorough)
    for operation in itertools.chain.from_iterable(found):
        assert operation.signature == signature
        check_shape(signature, operation.shape)
        assert parse_operation(operation_name(operation)) == operation
    assert len({options[0] for options in found}) == len(found) >= (20 if thorough else 6)


def test_a_handful_covers_each_kind_of_edge():
    bm, bn, bk, stages = 128, 64, 32, 3
    shapes = [options[0].matmul_shape for options in tails(NAMES[0], (bm, bn, bk), stages=stages)]
    assert len(shapes) <= 12
    ms, ns, ks, _ = (set(sizes) for sizes in zip(*shapes, strict=True))
    rests = [{size % tile for size in of} for of, tile in ((ms, bm), (ns, bn), (ks, bk))]
    assert rests[0] >= {0, 1, bm - 1} and rests[1] >= {0, bn - 1} and rests[2] >= {0, 1, bk - 1}
    assert {4, 8} <= {k % 8 or k % 16 for k in ks}
    assert ks >= {1, (stages + 1) * bk} and max(ks) > 1024 and min(ks - {1}) < bk
    assert ns >= {1, 8} and max(ns) > 512 and any(n > 192 and n % 16 for n in ns)
    assert 1 in ms
    tiles = [(shape.m // bm) * (shape.n // bn) for shape in shapes if not shape.m % bm]
    assert {count % 2 for count in tiles} == {0, 1}
    assert sum(2 * shape.m * shape.n * shape.k for shape in shapes) < 1e9


@pytest.mark.parametrize(("processors", "size", "more"), [
    (132, 512, True), (132, 4096, False), (None, 512, False),
])  # fmt: skip
def test_more_tiles_than_multiprocessors_are_tried_where_the_operation_has_fewer(
    processors, size, more
):
    operation = parse_operation(f"matmul_{size}x{size}x512_f32t_f32t_f32t")
    companions = Companions(lambda other: None, (128, 64, 32), processors=processors)
    covering = covering_operations(operation, companions, 42)
    shapes = [options[0].matmul_shape for options in covering]
    largest = max(-(-shape.m // 128) * -(-shape.n // 64) for shape in shapes)
    assert (largest > 132) is more


def test_refused_sizes_are_rounded_up_to_multiples_of_16_k_first():
    for options in tails(NAMES[0], (100, 52, 24)):
        exact, *others = (operation.matmul_shape for operation in options)
        assert len(others) <= 2
        assert all(shape.k % 16 == 0 for shape in others)
        if len(others) == 2:
            assert others[0][:2] == exact[:2] and others[0].k > exact.k - 16
        assert not any(size % 16 for size in options[-1].matmul_shape[:3])


def test_k_divides_into_the_slices_and_batches_and_tiles_have_many_members():
    for options in tails(NAMES[1], (128, 128, 64)):
        assert all(operation.matmul_shape.k % 4 == 0 for operation in options)
    assert any(options[0].matmul_shape.k % (4 * 64) for options in tails(NAMES[1], None))
    assert {options[0].matmul_shape.batch for options in tails(NAMES[2], None)} == {1, 2, 3, 4, 5}
    shapes = [options[0].matmul_shape for options in tails(NAMES[0], (64, 64, 32), thorough=True)]
    tiles = {(shape.m // 64) * (shape.n // 64) for shape in shapes}
    assert {132, 133} <= tiles, "a full wave of a large GPU and one more"


@given(st.integers(-5, 20000))
@settings(max_examples=50)
def test_prime_from_is_the_least_prime(size):
    def is_prime(number):
        return all(number % divisor for divisor in range(2, math.isqrt(number) + 1))

    found = prime_from(size)
    assert found >= max(size, 2) and is_prime(found)
    assert not any(map(is_prime, range(max(size, 2), found)))


@given(st.integers(0, 2**40))
@settings(max_examples=20)
def test_a_covering_set_has_every_remainder_and_every_pair(seed):
    sizes = list(covering_sizes(Sizes(64, 32, 16), np.random.default_rng(seed)))
    for axis in range(3):
        assert {one[axis] % 32 for one in sizes} == set(range(32))
        assert {one[axis] for one in sizes} >= set(range(1, 9))
    for left, right in ((0, 1), (0, 2), (1, 2)):
        assert len({(one[left] % 8, one[right] % 8) for one in sizes}) == 64
        assert any(one[left] == one[right] for one in sizes)
    assert len({tuple(size % 4 for size in one) for one in sizes}) == 64
    assert any(m == n == k for m, n, k in sizes)
    assert max(m * n for m, n, _ in sizes) > 500_000
    assert {one.k % 512 for one in sizes if one.k >= 256} >= {0, 256}
    assert len(sizes) > len(set(sizes))


def test_convolutions_have_other_filters_strides_and_paddings():
    like = parse_operation("conv2d_2x12x12x8_3x3x32_stride1x1_pad1x1_f32nhwc_f32hwcf_f32nhwc")
    shapes = [one[0].shape for one in covering_operations(like, Companions(lambda _: None), 42)]
    assert any(shape.r == shape.s == 1 for shape in shapes)
    assert any(shape.r % 2 == 0 and shape.s % 2 for shape in shapes)
    assert any(shape.stride_h != shape.stride_w and shape.pad_h != shape.pad_w for shape in shapes)
