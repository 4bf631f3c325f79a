"""``gemmetry.matmul`` equals torch, whatever it is given and whatever computes it."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

import gemmetry  # noqa: E402
from gemmetry.domain.errors import RequestError  # noqa: E402
from gemmetry.tuning.dispatcher import call as calls  # noqa: E402

from .conftest import entry, table_of  # noqa: E402


def matrix(rows, columns, dtype, kind):
    """A matrix that is row-major, column-major, with padded rows, or with every second column."""
    if kind == "column":
        return torch.randn(columns, rows).to(dtype).mT
    if kind == "padded":
        return torch.randn(rows, columns + 3).to(dtype)[:, 1 : columns + 1]
    step = 2 if kind == "sparse" else 1
    return torch.randn(rows, step * columns).to(dtype)[:, ::step]


KINDS = ("row", "column", "padded", "sparse")


def expected(a, b, alpha=1.0, beta=0.0, addend=None, bias=None, activation=None):
    value = alpha * (a.double() @ b.double())
    value = value if addend is None else value + beta * addend.double()
    value = value if bias is None else value + bias.double()
    return getattr(torch.nn.functional, activation)(value) if activation else value


def random_call(generator):
    m, n, k = (generator.choice((0, 1, 2, 7, 16, 33, 64)) for _ in range(3))
    dtype = generator.choice((torch.bfloat16, torch.float16, torch.float32))
    a, b = (matrix(*size, dtype, generator.choice(KINDS)) for size in ((m, k), (k, n)))
    options = {}
    if generator.random() < 0.4:
        options["alpha"] = generator.choice((2.0, -0.5))
    if generator.random() < 0.3:
        options |= {"beta": 0.5, "addend": matrix(m, n, dtype, generator.choice(KINDS))}
    if generator.random() < 0.4:
        options["bias"] = torch.randn(n).to(dtype)
    if generator.random() < 0.4:
        options["activation"] = generator.choice(("relu", "gelu"))
    return a, b, options


@pytest.mark.parametrize("seed", range(48))
def test_every_kind_of_call_equals_torch(blocked, use, seed):
    generator = random.Random(seed)
    torch.manual_seed(seed)
    a, b, options = random_call(generator)
    problem = calls.runtime.problem_of_call(calls.Arguments(a, b, **options))
    if problem is not None:
        use(table_of(entry(*problem.shape, signature=problem.signature, cublas=10.0, a=5.0)))
    want = expected(a, b, **options)
    unit = torch.finfo(a.dtype).eps
    for out in (None, matrix(a.shape[0], b.shape[1], a.dtype, generator.choice(KINDS))):
        found = gemmetry.matmul(a, b, out=out, **options)
        assert out is None or found is out
        assert found.dtype == a.dtype
        # Each of at most four steps rounds to the format, values up to about 60.
        torch.testing.assert_close(found.double(), want, rtol=4 * unit, atol=60 * unit)
    assert problem is None or blocked.launches


def test_a_second_call_only_looks_up(blocked, use, monkeypatch):
    use(table_of(entry(16, 32, 64, cublas=10.0, a=5.0)))
    a, b = matrix(16, 64, torch.bfloat16, "row"), matrix(64, 32, torch.bfloat16, "column")
    gemmetry.matmul(a, b)
    monkeypatch.setattr(calls.runtime, "dispatcher_of", None)
    monkeypatch.setattr(calls, "check", None)
    gemmetry.matmul(a, b)
    assert blocked.launches == ["a"] * 3


def test_choices_are_forgotten_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(calls, "_KEPT", 4)
    for m in range(1, 12):
        gemmetry.matmul(torch.ones(m, 8), torch.ones(8, 8))
        assert len(calls._plain) <= 4


def test_leading_dimensions():
    a, b = torch.randn(2, 3, 4), torch.randn(4, 5)
    torch.testing.assert_close(gemmetry.matmul(a, b), a @ b)
    with pytest.raises(RequestError, match="3 dimensions"):
        gemmetry.matmul(a, b, out=torch.empty(6, 5))


def test_bad_calls_raise_and_change_nothing():
    a, b, out = torch.ones(4, 4), torch.ones(4, 4), torch.zeros(4, 4)
    gemmetry.matmul(a, b, out=torch.empty(4, 4))  # An output is checked in every call.
    for other, options in (
        (b, {"out": a}), (b, {"activation": "tanh"}), (b, {"beta": 1.0}),
        (torch.ones(5, 4), {"out": out}),
    ):  # fmt: skip
        with pytest.raises(RequestError):
            gemmetry.matmul(a, other, **options)
    assert not out.any() and (a == 1).all()


@pytest.mark.filterwarnings("ignore::UserWarning")  # vmap takes one matrix after the other
def test_subclasses_and_modes_go_through_torch():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mine(torch.Tensor):
        pass

    class Seen(TorchDispatchMode):
        names = ()

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.names += (str(function),)
            return function(*args, **(kwargs or {}))

    a = torch.ones(4, 4).as_subclass(Mine)
    assert torch.equal(gemmetry.matmul(a, torch.ones(4, 4)), torch.full((4, 4), 4.0))
    with Seen() as mode:
        assert gemmetry.matmul(torch.ones(4, 4), torch.ones(4, 4)).shape == (4, 4)
    assert "gemmetry.matmul.default" in mode.names
    batched = torch.func.vmap(lambda x: gemmetry.matmul(x, torch.ones(4, 4)))
    assert batched(torch.ones(2, 4, 4)).shape == (2, 4, 4)


@pytest.mark.parametrize("name", ["a", "b", "bias"])
def test_what_is_no_tensor_is_refused_by_its_name(name):
    given = {"a": torch.ones(2, 3), "b": torch.ones(3, 4), "bias": torch.ones(4)}
    with pytest.raises(RequestError, match=f" {name} "):
        gemmetry.matmul(**given | {name: given[name].numpy()})
