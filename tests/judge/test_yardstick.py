"""Results compared with references: right ones pass, wrong ones do not."""

from __future__ import annotations

import operator

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.errors import RequestError
from gemmetry.judge.yardstick import check_results


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def softmax(x: np.ndarray) -> np.ndarray:
    shifted = np.exp(x - x.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


NAMES = {np.float32: "f32", np.float16: "f16", ml_dtypes.bfloat16: "bf16"}
ONE_WRONG = {"right": "right", "wrong": "wrong"}


def _verdicts(reference, arguments, **results):
    return {one.name: one.verdict for one in check_results(reference, arguments, results)}


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 40), st.integers(1, 40), st.integers(1, 200), st.integers(0, 2**32 - 1),
    st.sampled_from(list(NAMES)),
)  # fmt: skip
def test_products_have_the_bounds_of_their_operation(m, n, k, seed, dtype) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in ((m, k), (k, n)))
    right = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32).astype(dtype)
    wrong = right.copy()
    place = rng.integers(m), rng.integers(n)
    wrong[place] = np.float64(right[place]) * 1.5 + np.abs(a.astype(float)).sum()
    found = check_results(operator.matmul, (a, b), {"right": right, "wrong": wrong})
    assert [one.verdict for one in found] == ["right", "wrong"]
    assert "bound" in found[0].basis and found[0].accuracy
    formats = "_".join([f"{NAMES[dtype]}t"] * 3)
    assert _verdicts(f"matmul_{m}x{n}x{k}_{formats}", (a, b), right=right, wrong=wrong) == ONE_WRONG


@pytest.mark.parametrize("function", [gelu, softmax, np.sin, lambda x: x.sum(-1)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_functions_have_the_reference_s_own_error_as_yardstick(function, dtype) -> None:
    x = np.random.default_rng(4).standard_normal((64, 256)).astype(dtype)
    right = function(x.astype(np.float64)).astype(dtype)
    coarse = function(x.astype(np.float64)).astype(ml_dtypes.float8_e5m2).astype(dtype)
    one_off = right.copy()
    one_off.flat[17] += dtype(0.25) * np.abs(right).max()
    lost = right.copy()
    lost.flat[-1] = np.nan
    results = {
        "own": function(x), "right": right, "coarse": coarse, "one_off": one_off, "lost": lost,
        "flat": right.ravel()[:-1], "none": None, "twice": (right, right),
    }  # fmt: skip
    found = check_results(function, (x,), results)
    assert {one.name for one in found if one.is_right} == {"own", "right"}
    assert all("empirical" in one.basis for one in found)
    assert all(one.detail for one in found if not one.is_right)


def test_infinities_belong_where_the_format_overflows() -> None:
    x = np.array([1.0, 300.0, -300.0, np.nan, np.inf], np.float16)
    square = lambda values: values * values * np.sign(values)  # noqa: E731
    with np.errstate(all="ignore"):
        right = square(x.astype(np.float64)).astype(np.float16)
    wrong = right.copy()
    wrong[1] = 65504
    zero = np.nan_to_num(right, nan=0)
    assert _verdicts(square, (x,), right=right, wrong=wrong, zero=zero) == {
        "right": "right", "wrong": "wrong", "zero": "wrong",
    }  # fmt: skip


def test_torch_tensors_are_compared_on_the_host() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(32, 32, dtype=torch.bfloat16, generator=torch.Generator().manual_seed(1))
    assert _verdicts(torch.relu, (x,), right=torch.relu(x), wrong=torch.relu(-x)) == ONE_WRONG
    found = check_results(torch.matmul, (x, x), {"right": x @ x, "wrong": x @ x.T})
    assert [one.verdict for one in found] == ["right", "wrong"]
    assert found[0].accuracy == "fp32-accumulated"


ONES = np.ones(3)


@pytest.mark.parametrize(
    ("reference", "arguments"),
    [
        (lambda x: x.astype(np.float32), (ONES,)), (lambda x: 1 / 0, (ONES,)),
        (lambda x: None, (ONES,)), ("gemm", ()),
        ("matmul_2x2x2_f32t_f32t_f32t", (np.ones((3, 3), np.float32),) * 2),
        ("matmul_2x2x2_f32t_f32t_f32t", (np.ones((2, 2)),) * 2),
    ],
)  # fmt: skip
def test_references_that_cannot_serve(reference, arguments) -> None:
    with pytest.raises(RequestError):
        check_results(reference, arguments, {"mine": ONES})
