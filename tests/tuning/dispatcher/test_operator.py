"""The operator differentiates, and is traced by torch.compile."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import gemmetry  # noqa: E402
from gemmetry.domain.errors import RequestError  # noqa: E402
from gemmetry.tuning.dispatcher.call import OPERATOR  # noqa: E402


def operands(dtype=torch.float64):
    torch.manual_seed(2)
    shapes = ((5, 7), (7, 3), (5, 3), (3,))
    return [torch.randn(*shape, dtype=dtype, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_gradients_are_those_of_finite_differences(activation):
    a, b, addend, bias = operands()

    def product(a, b, addend, bias):
        return gemmetry.matmul(
            a, b, alpha=0.5, beta=2.0, addend=addend, bias=bias, activation=activation
        )

    assert torch.autograd.gradcheck(product, (a, b, addend, bias))
    if activation != "gelu":
        assert torch.autograd.gradgradcheck(product, (a, b, addend, bias))


def test_only_wanted_gradients_are_computed_and_out_does_not_differentiate():
    a, b, _, _ = operands()
    gemmetry.matmul(a, b.detach()).sum().backward()
    assert b.grad is None
    torch.testing.assert_close(a.grad, torch.ones(5, 3, dtype=torch.float64) @ b.detach().mT)
    out = torch.empty(5, 3, dtype=torch.float64)
    with pytest.raises(RequestError, match="gradients"):
        gemmetry.matmul(a, b, out=out)
    with torch.no_grad():
        gemmetry.matmul(a, b, out=out)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_without_a_break_it_gives_the_same(backend):
    a, b, _, bias = operands(torch.float32)

    def layer(a, b, bias):
        return gemmetry.matmul(a, b, bias=bias, activation="relu") * 2

    def computed(function):
        result = function(a, b, bias)
        return result, *torch.autograd.grad(result.sum(), (a, b, bias))

    compiled = torch.compile(layer, backend=backend, fullgraph=True)
    plain = computed(lambda a, b, bias: (a @ b + bias).relu() * 2)
    torch.testing.assert_close(computed(compiled), plain)


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's own test reads gradients of copies
def test_torch_finds_nothing_wrong_with_the_operator():
    a, b, addend, bias = operands()
    for arguments in ((a, b), (a, b, addend, bias, 2.0, 0.5, "relu")):
        assert set(torch.library.opcheck(OPERATOR, arguments).values()) == {"SUCCESS"}
    a, b = torch.empty(4, 5, device="meta"), torch.empty(5, 6, device="meta")
    assert OPERATOR(a, b).shape == (4, 6)
    with pytest.raises(RequestError, match="columns of a"):
        OPERATOR(a, a)
