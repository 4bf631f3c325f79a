from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import RequestError, UnknownNameError
from gemmetry.providers import registry

PLUGIN = Path(__file__).parents[2] / "examples" / "provider_plugin"
CPU = Target(TargetKind.CPU)


@pytest.fixture
def declare(monkeypatch):
    """Makes it look as if installed packages declared these entry points in the providers'
    group."""

    def fake(**values):
        points = [EntryPoint(name, value, "gemmetry.providers")
                  for name, value in values.items()]  # fmt: skip

        def entry_points(*, group):
            return [point for point in points if point.group == group]

        monkeypatch.setattr(registry, "entry_points", entry_points)

    return fake


def test_built_in_providers_are_found_by_their_file_names():
    assert {"null", "numpy", "user"} <= set(registry.provider_names())
    assert all("_" not in name for name in registry.provider_names())


def test_unlisted_providers_exist_for_those_who_name_them():
    names = registry.provider_names()
    assert "mutant" in names
    assert list(names) == sorted(set(names) - {"mutant"})
    assert len(names) == len(list(names))
    with pytest.raises(UnknownNameError) as refused:
        registry.load_provider("mutan")
    assert "mutant" not in refused.value.hint


@pytest.mark.parametrize("name", ["null", "numpy", "user"])
def test_each_knows_its_own_name_and_gets_its_options(name):
    provider = registry.load_provider(name, {"some": "option"})
    assert provider.name == name
    assert provider.options == {"some": "option"}  # type: ignore[attr-defined]


def test_an_unknown_provider_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean numpy"):
        registry.load_provider("numpi")


def test_the_example_plugin_is_found_and_computes(declare, monkeypatch, launch):
    point = _declared_by(PLUGIN / "pyproject.toml")
    monkeypatch.syspath_prepend(PLUGIN)
    declare(**point)
    assert "einsum" in registry.provider_names()
    provider = registry.load_provider("einsum")
    assert provider.name == "einsum"
    for name in ("matmul_17x13x11_f32n_f32t_f32n", "batch_matmul_3x17x13x11_f64t_f64n_f64t"):
        for configuration in ("loops", "blas"):
            launched = launch(provider, name, configuration, CPU)
            assert launched.executable.device.red_zones_intact(launched.output)
            assert launched.worst_error() < 1e-6


@pytest.mark.parametrize("value", ["no_such_package_at_all:Thing", "json:NoSuchProvider"])
def test_a_plugin_that_cannot_be_imported_is_named(declare, value):
    declare(broken=value)
    with pytest.raises(RequestError, match=f"the provider 'broken' of {value!r} cannot"):
        registry.load_provider("broken")


@pytest.mark.parametrize(
    "source",
    [
        "raise KeyError('surprise')",
        "class Own(Exception): ...\nraise Own('surprise')",
        "raise SystemExit('surprise')",
        "def Thing(options): raise ArithmeticError('surprise')",
        "Thing = 'surprise'",
    ],
)
def test_whatever_a_plugin_raises_it_is_named(declare, monkeypatch, tmp_path, source):
    (tmp_path / "broken_gemm_plugin.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_gemm_plugin", raising=False)
    declare(broken="broken_gemm_plugin:Thing")
    with pytest.raises(RequestError, match="'broken' of 'broken_gemm_plugin:Thing' cannot"):
        registry.load_provider("broken")


def test_a_plugin_may_refuse_its_options(declare, monkeypatch, tmp_path):
    (tmp_path / "strict_gemm_plugin.py").write_text(
        "from gemmetry.domain.errors import RequestError\n"
        "def Thing(options): raise RequestError('threads must be a number')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    declare(strict="strict_gemm_plugin:Thing")
    with pytest.raises(RequestError, match=r"^threads must be a number$"):
        registry.load_provider("strict")


def test_a_plugin_cannot_replace_a_built_in_provider(declare):
    declare(numpy="no_such_package_at_all:Thing")
    assert list(registry.provider_names()).count("numpy") == 1
    assert type(registry.load_provider("numpy")).__name__ == "NumpyProvider"


def _declared_by(pyproject):
    import tomllib

    return tomllib.loads(pyproject.read_text())["project"]["entry-points"][
        registry.ENTRY_POINT_GROUP
    ]
