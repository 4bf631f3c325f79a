from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import textwrap

import numpy as np
import pytest

import gemmetry
from gemmetry.domain.errors import Outcome, RequestError, UnknownNameError
from gemmetry.providers.torch_provider.provider import TorchProvider


@pytest.fixture
def module(tmp_path):
    """A function that creates a module from a text."""
    made = []

    def make(text, name="my_kernels"):
        path = tmp_path / f"{name}.py"
        path.write_text(textwrap.dedent(text))
        spec = importlib.util.spec_from_file_location(name, path)
        found = importlib.util.module_from_spec(spec)
        sys.modules[name] = found
        made.append(name)
        spec.loader.exec_module(found)
        return found

    yield make
    for name in made:
        sys.modules.pop(name, None)


@pytest.fixture
def requests(monkeypatch):
    """Records what ``profile`` is called with, instead of running it."""
    seen = []

    def remember(request, **how):
        seen.append((request, how))
        return "results"

    monkeypatch.setattr(importlib.import_module("gemmetry.dispatches.profile"), "profile", remember)
    return seen


KERNEL = """
    import gemmetry

    @gemmetry.bench(m=[64, 128], n=64, k=range(32, 65, 32), dtypes=["f32"], tile=[16, 32])
    def my_gemm(a, b, tile=16, fast=False):
        '''Doc.'''
        return (a @ b).astype(a.dtype)
"""


def test_the_function_is_unchanged(module):
    function = module(KERNEL).my_gemm
    assert np.array_equal(function(np.eye(2), np.ones((2, 2)), tile=8), np.ones((2, 2)))
    assert function.__doc__ == "Doc."
    assert list(inspect.signature(function).parameters) == ["a", "b", "tile", "fast"]


def test_keywords_become_sizes_configurations_and_keys_of_the_spec(module, requests, tmp_path):
    assert module(KERNEL).my_gemm.run(against=["numpy"], fast=[True, False]) == "results"
    request, how = requests[0]
    assert how == {}
    tiles = [{"tile": tile, "fast": fast} for tile in (16, 32) for fast in (True, False)]
    assert request == {
        "name": "my_gemm", "problem_m": [64, 128], "problem_n": 64, "problem_k": [32, 64],
        "dtypes": ["f32"], "kernel": [f"{tmp_path.resolve() / 'my_kernels.py'}:my_gemm"],
        "providers": [{"name": "user", "configurations": tiles}, {"name": "numpy"}],
    }  # fmt: skip


def test_overrides_replace_what_the_decorator_specified(module, requests):
    module(KERNEL).my_gemm.run(m=8, tile=4, dtypes="f64", experiment="x", fresh=True, against=[])
    request, how = requests[0]
    assert request["problem_m"] == 8
    assert request["dtypes"] == "f64"
    assert request["providers"] == [{"name": "user", "configurations": [{"tile": 4}]}]
    assert how == {"experiment": "x", "fresh": True}


def test_the_baseline_is_torch_where_it_is_installed(module, requests, monkeypatch):
    function = module(KERNEL).my_gemm
    for missing, expected in ((None, "torch"), ("torch is not installed", "numpy")):
        monkeypatch.setattr(TorchProvider, "available", lambda _self, why=missing: why)
        function.run()
        assert requests[-1][0]["providers"][1] == {"name": expected}


@pytest.mark.parametrize(
    ("old", "new", "error", "named"),
    [
        ("tile=[", "tiel=[", UnknownNameError, "tile"),
        ("tile=16, fast", "m=1, tile=16, fast", RequestError, "'m' is both a size"),
    ],
)
def test_keywords_that_are_neither_a_size_nor_a_parameter_are_refused(
    module, old, new, error, named
):
    with pytest.raises(error, match=named):
        module(KERNEL.replace(old, new))


def test_a_nested_function_is_refused_when_it_runs():
    @gemmetry.bench(m=8)
    def inner(a, b):
        return a @ b

    with pytest.raises(RequestError, match="top level"):
        inner.run()


def test_running_while_a_worker_imports_the_file_is_refused(module):
    found = module(KERNEL, name="gemmetry_user_kernel_0123")
    with pytest.raises(RequestError, match="__main__"):
        found.my_gemm.run()


def test_a_right_and_a_wrong_kernel_are_measured_and_caught(module, tmp_path):
    text = KERNEL.replace("(a @ b)", "(a @ b + (tile == 32))")
    results = module(text).my_gemm.run(
        m=[64], k=[32], against=["numpy"], time_budget=0.05, verification_level="quick",
        experiment=tmp_path / "run",
    )  # fmt: skip
    found = {(r.provider, r.configuration): (r.outcome, r.measurement is None) for r in results}
    assert found == {
        ("user", "tile16"): (Outcome.OK, False), ("user", "tile32"): (Outcome.WRONG, True),
        ("numpy", "default"): (Outcome.OK, False),
    }  # fmt: skip
    assert [r.key for r in gemmetry.load(tmp_path / "run")] == [r.key for r in results]


def test_the_decorator_works_without_parentheses(module, requests):
    found = module("""
        import gemmetry

        @gemmetry.bench
        def my_gemm(a, b):
            return a @ b
    """)
    assert found.my_gemm(2 * np.eye(2), np.eye(2)).tolist() == [[2, 0], [0, 2]]
    assert found.my_gemm.run(m=8, n=8, k=8) == "results"
    assert len(requests) == 1
