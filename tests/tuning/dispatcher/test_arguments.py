"""Calls without a meaning are refused with what to do; kernels are for packed matrices only."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from gemmetry.domain.errors import RequestError  # noqa: E402
from gemmetry.domain.operation import Layout  # noqa: E402
from gemmetry.tuning.dispatcher import runtime  # noqa: E402
from gemmetry.tuning.dispatcher.runtime import (  # noqa: E402
    Arguments,
    check,
    layout_of,
    overlaps,
    problem_of_call,
)


def bf16(*shape):
    return torch.zeros(shape, dtype=torch.bfloat16)


A, B, WEIGHT = bf16(8, 16), bf16(16, 32), bf16(32, 16).mT
MEMORY, SQUARE = bf16(8, 48), bf16(16, 16)
OVERLAPS = "out overlaps"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (Arguments(A, bf16(32, 16)), "8x16 and b is 32x16"),
        (Arguments(bf16(16), B), "1 and 2 dimensions"),
        (Arguments(A, bf16(2, 16, 32)), "2 and 3 dimensions"),
        (Arguments(A, B.float()), "b is float32 and a is bfloat16"),
        (Arguments(A.to(torch.float8_e4m3fn), B), "not float8_e4m3fn"),
        (Arguments(A.int(), B.int()), "not int32"),
        (Arguments(A, B.to("meta")), "b is on meta and a is on cpu"),
        (Arguments(A, B, bias=bf16(8)), "bias is 8, not 32"),
        (Arguments(A, B, out=bf16(32, 8)), "out is 32x8, not 8x32"),
        (Arguments(A, B, out=bf16(8, 32).float()), "out is float32"),
        (Arguments(A, B, beta=1.0), "no addend"),
        (Arguments(A, B, addend=bf16(8, 32)), "beta is 0"),
        (Arguments(A, B, alpha=float("nan")), "finite"),
        (Arguments(A, B, activation="rule"), "unknown activation 'rule'"),
        (Arguments(A, B, out=bf16(1, 32).expand(8, 32)), "share one place"),
        (Arguments(MEMORY[:, :16], B, out=MEMORY[:, 15:47]), OVERLAPS),
        (Arguments(SQUARE, bf16(16, 16), out=SQUARE), OVERLAPS),
        (Arguments(bf16(16, 16), SQUARE, out=SQUARE.mT), OVERLAPS),
        (Arguments(A, bf16(16, 16), addend=bf16(8, 16), beta=1.0, out=A[:, :16]), OVERLAPS),
    ],
)
def test_calls_without_a_meaning(call, message):
    with pytest.raises(RequestError, match=message) as caught:
        check(call)
    assert caught.value.hint


def test_overlaps_agrees_with_the_places_of_all_elements():
    generator = random.Random(5)
    memory = torch.arange(400, dtype=torch.int16)

    def view():
        rows, columns = generator.randint(1, 6), generator.randint(1, 6)
        stride = (generator.randint(columns, 12), 1)
        found = memory.as_strided((rows, columns), stride, generator.randint(0, 320))
        return found.mT if generator.random() < 0.5 else found

    seen = set()
    for _ in range(500):
        left, right = view(), view()
        wanted = not set(left.flatten().tolist()).isdisjoint(right.flatten().tolist())
        assert overlaps(left, right) is overlaps(right, left) is wanted
        seen.add(wanted)
    assert seen == {True, False}


def test_layouts():
    assert layout_of(bf16(4, 8)) is Layout.ROW
    assert layout_of(bf16(8, 4).mT) is Layout.COLUMN
    assert layout_of(bf16(4, 9)[:, :8]) is layout_of(bf16(4, 8)[:, ::2]) is None
    for vector in (bf16(1, 8), bf16(8, 1), bf16(8, 9)[:1]):
        assert layout_of(vector) is Layout.ROW
        assert layout_of(vector, Layout.COLUMN) is Layout.COLUMN


@pytest.mark.parametrize(
    ("call", "signature"),
    [
        (Arguments(A, B), "bf16t_bf16t_bf16t"),
        (Arguments(A, WEIGHT), "bf16t_bf16n_bf16t"),
        (Arguments(A, B, out=bf16(32, 8).mT), "bf16t_bf16t_bf16n"),
        (Arguments(A, WEIGHT, alpha=2.0, beta=0.5, addend=bf16(8, 32), bias=bf16(32),
                   activation="gelu"), "bf16t_bf16n_bf16t_alpha2_beta0p5_bias_gelu"),
    ],
)  # fmt: skip
def test_signatures(call, signature):
    problem = problem_of_call(call)
    assert (problem.signature, problem.shape) == (signature, (8, 32, 16))


@pytest.mark.parametrize(
    "call",
    [
        Arguments(A.float(), B.float()), Arguments(bf16(0, 16), B),
        Arguments(bf16(8, 0), bf16(0, 32)), Arguments(bf16(8, 17)[:, :16], B),
        Arguments(MEMORY[:, :16], B, out=MEMORY[:, 16:]), Arguments(A, B, bias=bf16(64)[::2]),
        Arguments(A, B, beta=1.0, addend=bf16(32, 8).mT), Arguments(A.to("meta"), B.to("meta")),
        Arguments(A, bf16(16, 33)),  # b is too large
    ],
)  # fmt: skip
def test_calls_that_are_left_to_torch(call, monkeypatch):
    assert runtime.LARGEST_TENSOR == 2**31
    monkeypatch.setattr(runtime, "LARGEST_TENSOR", 16 * 32 + 1)
    check(call)
    assert problem_of_call(call) is None
    assert problem_of_call(Arguments(A, B)) is not None
