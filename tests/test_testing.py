"""The conformance suite of providers: built-in providers and the example pass it, and it finds
violations."""

from __future__ import annotations

import importlib
import sys
import unittest
from pathlib import Path

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


class TestIree(ProviderConformance):
    provider_class = IREE
    operations = ("matmul_37x29x41_f32t_f32n_f32t",)
    refused = ("matmul_37x29x41_tf32t_tf32t_f32t", "matmul_37x29x41_e4m3t_e5m2n_bf16t_scalerow")
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


class _Numpy(NumpyProvider):
    """A right provider, for the subclasses to spoil."""


class _Wrong(_Numpy):
    def build(self, dispatch, workspace):
        executable = super().build(dispatch, workspace)
        run = executable.run

        def spoiled(inputs, output):
            result = run(inputs, output)
            result[0, 0] += 1
            return result

        executable.run = spoiled
        return executable


class _Elsewhere(_Numpy):
    def build(self, dispatch, workspace):
        executable = super().build(dispatch, workspace)
        run = executable.run
        executable.run = lambda inputs, output: run(inputs, output).copy()
        return executable


class _NoFacts(_Numpy):
    def build(self, dispatch, workspace):
        executable = super().build(dispatch, workspace)
        executable.facts = None
        return executable


class _Silent(_Numpy):
    def supports(self, operation, target):
        return "" if super().supports(operation, target) else None


class _Raises(_Numpy):
    def supports(self, operation, target):
        if target.kind is TargetKind.HIP:
            raise KeyError(target.kind)
        return super().supports(operation, target)


class _Twice(_Numpy):
    def configurations(self, operation, target):
        return [*super().configurations(operation, target)] * 2


class _Moody(_Numpy):
    count = 0

    def configurations(self, operation, target):
        type(self).count += 1
        return [Configuration(f"c{self.count}")]


class _Nameless(_Numpy):
    def configurations(self, operation, target):
        return [Configuration("bias")]


class _TakesAll(_Numpy):
    def parse_configuration(self, name, operation, target):
        return Configuration(name)


class _Fails(_Numpy):
    def build(self, dispatch, workspace):
        raise LaunchError("no")


class _Oracle(_Numpy):
    def seconds_per_launch(self, dispatch):
        return float("nan")


class _Unknown(_Numpy):
    name = "Mine!"


class _Homeless(_Numpy):
    def targets(self):
        return ()


@pytest.mark.parametrize(
    ("provider", "test", "words"),
    [
        (_Wrong, "test_every_configuration_is_right", "values"),
        (_Elsewhere, "test_every_configuration_is_right", "writes_output is True"),
        (_NoFacts, "test_every_configuration_is_right", "facts are not BuildFacts"),
        (_Silent, "test_support_is_claimed_or_refused_with_a_reason", "without a reason"),
        (_Raises, "test_support_is_claimed_or_refused_with_a_reason", "hip"),
        (_Twice, "test_configurations_are_listed_alike_each_time", "a name twice"),
        (_Moody, "test_configurations_are_listed_alike_each_time", "other configurations"),
        (_Nameless, "test_names_parse_back", "is parsed as another"),
        (_TakesAll, "test_a_name_of_nobodys_grammar_is_none", "parses to"),
        (_Fails, "test_what_is_refused_is_not_built_and_costs_no_other", "no"),
        (_Oracle, "test_predictions_are_times", "nan"),
        (_Unknown, "test_it_introduces_itself", "not a valid name of a provider"),
        (_Homeless, "test_it_introduces_itself", "lists no cpu"),
    ],
)
def test_what_breaks_the_contract_is_found(provider, test, words):
    class Suite(ProviderConformance):
        provider_class = provider
        operations = ("matmul_5x6x7_f32t_f32t_f32t",)
        refused = ("matmul_8x8x8_tf32t_tf32t_f32t",)

    with pytest.raises((AssertionError, KeyError, LaunchError), match=words):
        getattr(Suite(), test)()


def test_where_it_is_not_available_the_suite_is_skipped():
    class Suite(ProviderConformance):
        class provider_class(_Numpy):  # noqa: N801
            def available(self):
                return "its library is not installed"

        operations = ("matmul_5x6x7_f32t_f32t_f32t",)

    with pytest.raises(unittest.SkipTest, match="not installed"):
        Suite().test_names_parse_back()
