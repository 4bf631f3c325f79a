"""Calls without a meaning are refused with what to do; kernels are for packed matrices only."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from gemmetry.domain.errors import RequestError  # noqa: E402
from gemmetry.domain.operation import Layout  # noqa: E402
from gemmetry.tuning.dispatcher.runtime import (  # noqa: E402
    Arguments,
    check,
    layout_of,
    overlaps,
    problem_of_call,
)


def bf16(*shape):
    return torch.zeros(shape, dtype=torch.bfloat16)


A, B = bf16(8, 16), bf16(16, 32)


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (Arguments(A, bf16(32, 16)), "8x16 and b is 32x16", "b.mT"),
        (Arguments(bf16(16), B), "1 and 2 dimensions", "matrix"),
        (Arguments(A, bf16(2, 16, 32)), "2 and 3 dimensions", "torch.bmm"),
        (Arguments(A, B.float()), "b is float32 and a is bfloat16", "b.to"),
        (Arguments(A.to(torch.float8_e4m3fn), B), "not float8_e4m3fn", "_scaled_mm"),
        (Arguments(A.int(), B.int()), "not int32", "_int_mm"),
        (Arguments(A, B.to("meta")), "b is on meta and a is on cpu", "b.to"),
        (Arguments(A, B, bias=bf16(8)), "bias is 8, not 32", "width"),
        (Arguments(A, B, out=bf16(32, 8)), "out is 32x8, not 8x32", "high as a"),
        (Arguments(A, B, out=bf16(8, 32).float()), "out is float32", "out.to"),
        (Arguments(A, B, beta=1.0), "no addend", "both"),
        (Arguments(A, B, addend=bf16(8, 32)), "beta is 0", "both"),
        (Arguments(A, B, alpha=float("nan")), "finite", "factors"),
        (Arguments(A, B, activation="rule"), "unknown activation 'rule'", "relu"),
        (Arguments(A, B, out=bf16(1, 32).expand(8, 32)), "share one place", "expand"),
    ],
)
def test_calls_without_a_meaning(call, message, hint):
    with pytest.raises(RequestError) as caught:
        check(call)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_an_output_that_overlaps_an_input():
    memory = bf16(8, 48)
    square = bf16(16, 16)
    check(Arguments(memory[:, :16], B, out=memory[:, 16:]))
    for call in (
        Arguments(memory[:, :16], B, out=memory[:, 15:47]),
        Arguments(square, bf16(16, 16), out=square),
        Arguments(bf16(16, 16), square, out=square.mT),
        Arguments(A, bf16(16, 16), addend=bf16(8, 16), beta=1.0, out=A[:, :16]),
    ):
        with pytest.raises(RequestError, match="out overlaps"):
            check(call)


def test_overlaps_agrees_with_the_addresses_of_all_elements():
    generator = random.Random(5)
    memory = torch.zeros(400, dtype=torch.int16)

    def view():
        rows, columns = generator.randint(1, 6), generator.randint(1, 6)
        stride = generator.randint(columns, 12)
        offset = generator.randint(0, 320)
        found = memory.as_strided((rows, columns), (stride, 1), offset)
        return found.mT if generator.random() < 0.5 else found

    def addresses(tensor):
        step = tensor.element_size()
        return {
            tensor.data_ptr() + step * (i * tensor.stride(0) + j * tensor.stride(1))
            for i in range(tensor.shape[0])
            for j in range(tensor.shape[1])
        }

    seen = set()
    for _ in range(500):
        left, right = view(), view()
        wanted = bool(addresses(left) & addresses(right))
        assert overlaps(left, right) is wanted
        assert overlaps(right, left) is wanted
        seen.add(wanted)
    assert seen == {True, False}


def test_layouts():
    assert layout_of(bf16(4, 8)) is Layout.ROW
    assert layout_of(bf16(8, 4).mT) is Layout.COLUMN
    assert layout_of(bf16(4, 9)[:, :8]) is None
    assert layout_of(bf16(4, 8)[:, ::2]) is None
    for vector in (bf16(1, 8), bf16(8, 1), bf16(8, 9)[:1]):
        assert layout_of(vector) is Layout.ROW
        assert layout_of(vector, Layout.COLUMN) is Layout.COLUMN


def signature(*arguments, **options):
    found = problem_of_call(Arguments(*arguments, **options))
    return None if found is None else found.signature


def test_signatures():
    weight = bf16(32, 16)
    assert signature(A, B) == "bf16t_bf16t_bf16t"
    assert signature(A, weight.mT) == "bf16t_bf16n_bf16t"
    assert signature(A, B, out=bf16(32, 8).mT) == "bf16t_bf16t_bf16n"
    full = signature(
        A, weight.mT, alpha=2.0, beta=0.5, addend=bf16(8, 32), bias=bf16(32), activation="gelu"
    )
    assert full == "bf16t_bf16n_bf16t_alpha2_beta0p5_bias_gelu"
    assert problem_of_call(Arguments(A, B)).shape == (8, 32, 16)


@pytest.mark.parametrize(
    "call",
    [
        Arguments(A.float(), B.float()),
        Arguments(bf16(0, 16), B),
        Arguments(bf16(8, 0), bf16(0, 32)),
        Arguments(bf16(8, 17)[:, :16], B),
        Arguments(A, B, bias=bf16(64)[::2]),
        Arguments(A, B, beta=1.0, addend=bf16(32, 8).mT),
        Arguments(A.to("meta"), B.to("meta")),
    ],
)
def test_calls_that_are_left_to_torch(call):
    check(call)
    assert problem_of_call(call) is None


def test_huge_matrices_are_left_to_torch(monkeypatch):
    from gemmetry.tuning.dispatcher import runtime as arguments

    assert arguments.LARGEST_TENSOR == 2**31
    monkeypatch.setattr(arguments, "LARGEST_TENSOR", 8 * 32)
    assert problem_of_call(Arguments(A, bf16(16, 31))) is None, "b has 16 x 31 elements"
    monkeypatch.setattr(arguments, "LARGEST_TENSOR", 16 * 32 + 1)
    assert problem_of_call(Arguments(A, B)) is not None


def test_plain_products():
    assert Arguments(A, B).is_plain
    for other in ({"out": bf16(8, 32)}, {"alpha": 2.0}, {"bias": bf16(32)}, {"activation": "relu"}):
        assert not Arguments(A, B, **other).is_plain
