"""The conformance suite of providers: built-in providers and the example pass it, and it finds
violations."""

from __future__ import annotations

import importlib
import sys
import unittest
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from gemmetry.domain.dispatch import Configuration, Target, TargetKind
from gemmetry.domain.errors import LaunchError
from gemmetry.providers.iree_provider.provider import PROVIDER as IREE
from gemmetry.providers.null_provider.provider import PROVIDER as NULL
from gemmetry.providers.numpy_provider.provider import NumpyProvider
from gemmetry.testing import EVERY_KIND, ProviderConformance

EXAMPLE = Path(__file__).parents[1] / "examples" / "provider_plugin"


class TestNumpy(ProviderConformance):
    provider_class = NumpyProvider
    refused = ("matmul_37x29x41_tf32t_tf32t_f32t", "matmul_37x29x41_f16t_f16n_f16t_accf16")
    operations = tuple(name for name in EVERY_KIND if "_tf32" not in name and "_accf16" not in name)


class TestNull(ProviderConformance):
    provider_class = NULL
    target = Target(TargetKind.NULL)
    operations = ("matmul_16x16x16_f32t_f32t_f32t",)


class _FirstOfIree(IREE):
    """IREE without its other configurations, each of which takes seconds to compile."""

    def configurations(self, operation, target):
        return [*super().configurations(operation, target)][:1]


class TestIree(ProviderConformance):
    provider_class = _FirstOfIree
    operations = ("matmul_37x29x41_f32t_f32n_f32t",)
    refused = ("matmul_37x29x41_e4m3t_e5m2n_bf16t_scalerow",)
    level = "quick"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield importlib.import_module("test_gemmetry_einsum").TestEinsum
    for name in ("test_gemmetry_einsum", "gemmetry_einsum"):
        sys.modules.pop(name, None)


def _tests(suite):
    return [name for name in dir(suite) if name.startswith("test_")]


def test_the_example_of_a_package_conforms(example):
    assert len(_tests(example)) >= 8
    for name in _tests(example):
        getattr(example(), name)()


def _numpy(**spoiled):
    """numpy's provider with some methods or attributes replaced."""
    return type("Spoiled", (NumpyProvider,), spoiled)


def _built(change):
    """A provider whose executables are changed after they were built."""

    def build(self, dispatch, workspace):
        executable = NumpyProvider.build(self, dispatch, workspace)
        change(executable)
        return executable

    return _numpy(build=build)


def _of_result(change):
    """A provider whose launches return something else than their result."""

    def spoil(executable):
        run = executable.run
        executable.run = lambda inputs, output: change(run(inputs, output))

    return _built(spoil)


def _off_by_one(result):
    result[0, 0] += 1
    return result


def _silent(self, operation, target):
    return "" if NumpyProvider.supports(self, operation, target) else None


def _raises(self, operation, target):
    if target.kind is TargetKind.HIP:
        raise KeyError(target.kind)
    return NumpyProvider.supports(self, operation, target)


def _fails(self, dispatch, workspace):
    raise LaunchError("no")


def _listing(list_names):
    """A provider with configurations of these names."""
    return _numpy(configurations=lambda *_: [Configuration(name) for name in list_names()])


LISTED = count()


RIGHT = "test_every_configuration_is_right"


SUPPORT = "test_support_is_claimed_or_refused_with_a_reason"


ALIKE = "test_configurations_are_listed_alike_each_time"


@pytest.mark.parametrize(("provider", "test", "words"), [
    (_of_result(_off_by_one), RIGHT, "values"),
    (_of_result(np.copy), RIGHT, "writes_output is True"),
    (_built(lambda executable: setattr(executable, "facts", None)), RIGHT,
     "facts are not BuildFacts"),
    (_numpy(supports=_silent), SUPPORT, "without a reason"),
    (_numpy(supports=_raises), SUPPORT, "hip"),
    (_listing(lambda: ["default", "default"]), ALIKE, "a name twice"),
    (_listing(lambda: [f"c{next(LISTED)}"]), ALIKE, "other configurations"),
    (_listing(lambda: ["bias"]), "test_names_parse_back", "is parsed as another"),
    (_numpy(parse_configuration=lambda self, name, *_: Configuration(name)),
     "test_a_name_of_nobodys_grammar_is_none", "parses to"),
    (_numpy(build=_fails), "test_what_is_refused_is_not_built_and_costs_no_other", "no"),
    (_numpy(seconds_per_launch=lambda *_: float("nan")), "test_predictions_are_times", "nan"),
    (_numpy(name="Mine!"), "test_it_introduces_itself", "not a valid name of a provider"),
    (_numpy(targets=lambda self: ()), "test_it_introduces_itself", "lists no cpu"),
])  # fmt: skip
def test_what_breaks_the_contract_is_found(provider, test, words):
    class Suite(ProviderConformance):
        provider_class = provider
        operations = ("matmul_5x6x7_f32t_f32t_f32t",)
        refused = ("matmul_8x8x8_tf32t_tf32t_f32t",)

    with pytest.raises((AssertionError, KeyError, LaunchError), match=words):
        getattr(Suite(), test)()


def test_where_it_is_not_available_the_suite_is_skipped():
    class Suite(ProviderConformance):
        provider_class = _numpy(available=lambda self: "its library is not installed")
        operations = ("matmul_5x6x7_f32t_f32t_f32t",)

    with pytest.raises(unittest.SkipTest, match="not installed"):
        Suite().test_names_parse_back()
