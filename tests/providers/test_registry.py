from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from gemmetry.cli.options import LEGACY_DEFAULTS
from gemmetry.cli.trace import DEFAULTS
from gemmetry.domain.contracts import ProviderTraits
from gemmetry.domain.dispatch import Target, TargetKind, parse_operation, parse_target
from gemmetry.domain.errors import RequestError, UnknownNameError
from gemmetry.domain.specs.operations import legacy
from gemmetry.providers import registry
from gemmetry.providers.base import (
    baseline_names,
    builtin_names,
    kernel_provider,
    legacy_provider,
    recording_provider,
    support_places,
    traits_of,
)
from gemmetry.providers.registry import IsolatedPlugin

PLUGIN = Path(__file__).parents[2] / "examples" / "provider_plugin"
CPU = Target(TargetKind.CPU)


@pytest.fixture
def declare(monkeypatch):
    """Makes it look as if installed packages declared these entry points in the providers'
    group."""

    def fake(**values):
        points = [EntryPoint(*value, "gemmetry.providers") for value in values.items()]
        monkeypatch.setattr(
            registry, "entry_points", lambda group: [one for one in points if one.group == group]
        )

    return fake


def test_built_in_providers_are_found_by_their_file_names():
    names = registry.provider_names()
    assert {"null", "numpy", "user"} <= set(names) and "mutant" in names
    assert all("_" not in name for name in names)
    assert list(names) == sorted(set(names) - {"mutant"}), "it exists for those who name it"
    with pytest.raises(UnknownNameError) as refused:
        registry.load_provider("mutan")
    assert "mutant" not in refused.value.hint
    with pytest.raises(UnknownNameError, match="Did you mean numpy"):
        registry.load_provider("numpi")


def test_the_example_plugin_is_found_and_computes(declare, monkeypatch, launch):
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    monkeypatch.syspath_prepend(PLUGIN)
    declare(**project["entry-points"][registry.ENTRY_POINT_GROUP])
    assert "einsum" in registry.provider_names()
    provider = registry.load_provider("einsum")
    assert provider.name == "einsum"
    for name in ("matmul_17x13x11_f32n_f32t_f32n", "batch_matmul_3x17x13x11_f64t_f64n_f64t"):
        for configuration in ("loops", "blas"):
            launched = launch(provider, name, configuration, CPU)
            assert launched.executable.device.red_zones_intact(launched.output)
            assert launched.worst_error() < 1e-6


REFUSING = """
from gemmetry.domain.errors import RequestError
def Thing(options): raise RequestError('threads must be a number')
"""


@pytest.mark.parametrize(
    ("value", "source", "message"),
    [
        ("no_such_package_at_all:Thing", "", None),
        ("json:NoSuchProvider", "", None),
        ("broken_plugin:Thing", "raise KeyError('surprise')", None),
        ("broken_plugin:Thing", "class Own(Exception): ...\nraise Own('surprise')", None),
        ("broken_plugin:Thing", "raise SystemExit('surprise')", None),
        ("broken_plugin:Thing", "def Thing(options): raise ArithmeticError('surprise')", None),
        ("broken_plugin:Thing", "Thing = 'surprise'", None),
        ("broken_plugin:Thing", REFUSING, "^threads must be a number$"),
    ],
)
def test_whatever_a_plugin_raises_it_is_named(
    declare, monkeypatch, tmp_path, value, source, message
):
    (tmp_path / "broken_plugin.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_plugin", raising=False)
    declare(broken=value)
    with pytest.raises(RequestError, match=message or f"'broken' of {value!r} cannot"):
        registry.load_provider("broken")


def test_a_plugin_cannot_replace_a_built_in_provider(declare):
    declare(numpy="no_such_package_at_all:Thing")
    assert list(registry.provider_names()).count("numpy") == 1
    assert type(registry.load_provider("numpy")).__name__ == "NumpyProvider"


OPERATION = parse_operation("matmul_8x8x8_f32t_f32t_f32t")


def plugin(**errors):
    """Works, unless a method is configured to raise."""
    answers = {"available": None, "targets": (CPU,), "supports": None, "build": "executable",
               "versions": {"plugin": "1"}, "doctor_notes": ("a note",)}  # fmt: skip
    methods = {
        name: Mock(return_value=answer, side_effect=errors.get(name))
        for name, answer in answers.items()
    }
    return SimpleNamespace(description="a plug-in", **methods)


def test_a_plugin_that_works_answers_itself():
    working = plugin()
    isolated = IsolatedPlugin("mine", working)
    assert (isolated.name, isolated.description) == ("mine", "a plug-in")
    assert isolated.available() is isolated.supports(OPERATION, CPU) is None
    assert isolated.targets() == (CPU,)
    assert isolated.versions() == {"plugin": "1"}
    assert isolated.doctor_notes() == ("a note",)
    assert isolated.build(None, None) == "executable"
    assert working.targets.call_count == 1
    with pytest.raises(AttributeError):
        _ = isolated.no_such_thing


@pytest.mark.parametrize("error", [KeyError("surprise"), SystemExit("surprise")])
@pytest.mark.parametrize("method", ["available", "targets"])
def test_what_it_raises_makes_it_unavailable(method, error):
    isolated = IsolatedPlugin("mine", plugin(**{method: error}))
    reason = isolated.available()
    assert reason is not None
    assert reason.startswith(f"its {method}() raised {type(error).__name__}: ")
    assert "surprise" in reason
    assert isolated.targets() == (() if method == "targets" else (CPU,))


def test_what_it_raises_elsewhere_is_a_reason_too():
    errors = {name: ValueError("no") for name in ("supports", "versions", "doctor_notes")}
    isolated = IsolatedPlugin("mine", plugin(**errors))
    assert isolated.available() is None
    assert isolated.supports(OPERATION, CPU) == "its supports() raised ValueError: no"
    assert isolated.versions() == {}
    assert isolated.doctor_notes() == ("its doctor_notes() raised ValueError: no",)


def test_its_own_objection_and_what_is_for_workers_or_an_interrupt_are_not_held_back():
    failing = plugin(available=RequestError("give it a device"), build=ZeroDivisionError())
    isolated = IsolatedPlugin("mine", failing)
    assert isolated.available() == "give it a device"
    with pytest.raises(ZeroDivisionError):
        isolated.build(None, None)
    with pytest.raises(KeyboardInterrupt):
        IsolatedPlugin("mine", plugin(available=KeyboardInterrupt())).available()


def test_what_others_know_of_a_provider_it_declares_itself() -> None:
    assert baseline_names(["iree", "numpy", "theirs", "torch"]) == ["torch", "numpy"]
    assert kernel_provider() == "user"
    assert recording_provider() == "torch"
    assert legacy_provider() == "iree"
    assert traits_of("theirs") == ProviderTraits()
    assert [name for name in builtin_names() if not traits_of(name).is_default] == [
        "mutant", "null", "user",
    ]  # fmt: skip
    colours = [traits_of(name).colour for name in builtin_names()]
    assert None not in colours
    assert len(set(colours)) == len(colours)


def test_help_names_the_providers_that_the_traits_name() -> None:
    assert LEGACY_DEFAULTS["providers"] == legacy_provider()
    assert LEGACY_DEFAULTS["device"] == legacy(legacy_provider()).device
    assert DEFAULTS["providers"] == recording_provider()


def test_the_support_matrix_shows_the_places_that_providers_declare() -> None:
    places = support_places()
    assert places[:2] == [("torch", "cpu"), ("numpy", "cpu")]
    assert ("triton", "cuda-sm_90") in places
    kinds = [parse_target(target).kind for _, target in places]
    assert kinds == sorted(kinds, key=list(TargetKind).index)
    assert {name for name, _ in places} == {
        n for n in builtin_names() if traits_of(n).support_targets
    }


def test_traits_are_known_before_a_provider_is_loaded() -> None:
    program = (
        "import sys; from gemmetry.providers.base import builtin_names, traits_of\n"
        "for name in builtin_names(): traits_of(name)\n"
        "sys.exit(any(name.endswith('.provider') or name == 'numpy' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=300).returncode == 0
