from __future__ import annotations

import pytest

from gemmetry.domain.errors import UnsupportedError
from gemmetry.numerics.references import apply_epilogue
from gemmetry.numerics.storage import to_float64
from gemmetry.verification.checks import CheckOutcome
from gemmetry.verification.checks import shapes as long_axes
from gemmetry.verification.companions import Companions
from gemmetry.verification.context import Context

NAME = "matmul_32x32x32_f32t_f32n_f32t"
TILE = (16, 16, 8)


@pytest.fixture(autouse=True)
def without_deadlines(monkeypatch):
    """However busy the machine is."""
    monkeypatch.setattr(long_axes, "LONG_AXES_S", {False: 600.0, True: 600.0})


@pytest.fixture
def check(context_of, executable_of):
    """check(name, kernel, ...) -> result; the operations built are in check.built."""

    def run(name=NAME, kernel=None, thorough=False, refuse=None):
        run.built = []

        def build(operation):
            if refuse is not None and refuse(*operation.matmul_shape[:3]):
                raise UnsupportedError("too long")
            run.built.append(operation.matmul_shape[:3])
            return executable_of(operation, **({} if kernel is None else {"kernel": kernel}))

        companions = Companions(build, TILE)
        context = context_of(name, companions=companions, thorough=thorough)
        return long_axes.check_long_axes(context)

    return run


def wrong_past(axis, limit):
    """Leaves out what lies past `limit` along an axis."""

    def kernel(operation, tensors):
        a, b = to_float64(tensors["lhs"]), to_float64(tensors["rhs"])
        product = a[:, :limit] @ b[:limit] if axis == "k" else a @ b
        if axis == "m":
            product[limit:] = 0
        elif axis == "n":
            product[:, limit:] = 0
        return apply_epilogue(operation, product, tensors)

    return kernel


@pytest.mark.parametrize(
    "name",
    [
        NAME,
        "batch_matmul_2x32x32x32_bf16n_bf16t_bf16n_bias_relu",
        "matmul_splitk_32x32x32_f16t_f16n_f16t_slices4",
        "matmul_32x32x32_s8t_s8n_s32t",
    ],
)
def test_right_kernels_pass_three_long_shapes(check, name):
    result = check(name)
    assert result.text == "passed"
    sizes = [max(shape) for shape in check.built]
    assert sizes[:2] == [1029, 1029]
    assert sizes[-1] > 2**16
    assert all(sorted(shape)[1] <= 8 for shape in check.built)


@pytest.mark.parametrize("axis", ["m", "n"])
def test_paranoid_tries_more_than_65536_lines(check, axis):
    kernel = wrong_past(axis, 65536)
    assert not check(kernel=kernel).is_failure
    assert check(kernel=kernel, thorough=True).is_failure


def test_what_would_take_long_is_left_out_and_reported(check, monkeypatch):
    monkeypatch.setattr(long_axes, "LONG_AXES_S", {False: 0.0, True: 0.0})
    result = check()
    assert result.outcome is CheckOutcome.INCOMPLETE
    assert "left out: 1029x3x5, which would take" in result.detail
    assert "; 3x8x65542, which would take" in result.detail
    assert not [shape for shape in check.built if max(shape) > 5000]


def test_what_only_seems_to_take_long_is_tried(check, monkeypatch):
    """The operation's own launches are slow, for example because they compile."""
    monkeypatch.setattr(long_axes, "LONG_AXES_S", {False: 1.0, True: 1.0})
    monkeypatch.setattr(Context, "fastest_s", 60.0)
    result = check()
    assert result.text == "passed"
    assert (3, 8, 65542) in [tuple(shape) for shape in check.built]


def test_refusals_are_reported_and_rounded_sizes_tried(check):
    result = check(refuse=lambda m, n, k: bool(m % 16))
    assert result.outcome is CheckOutcome.PASSED
    assert (16, 16, 65552) in [tuple(shape) for shape in check.built]
    result = check(refuse=lambda *sizes: True)
    assert result.outcome is CheckOutcome.NOT_APPLICABLE
    assert "too long" in result.detail


def test_results_are_those_of_a_configuration(context_of, executable_of):
    known = {}
    built = []

    def build(operation):
        built.append(operation)
        return executable_of(operation)

    for _ in range(2):
        companions = Companions(build, TILE, known=known)
        assert not long_axes.check_long_axes(context_of(NAME, companions=companions)).is_failure
    assert len(built) == len(set(built))
    assert len(known) == 1
