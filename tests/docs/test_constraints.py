"""``constraints.txt`` holds every package that the tests need, and is what its script writes."""

from __future__ import annotations

import re
import runpy
import tomllib
from importlib.metadata import requires as requires_of
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "docs/generate/constraints.py"))
LINES = [
    Requirement(line)
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if not line.startswith("#")
]


def _needed(name, extras=(), seen=None):
    """Names of all that an installed package and `extras` of it need here, without what is not
    installed."""
    seen = {} if seen is None else seen
    for text in requires_of(name) or ():
        one = Requirement(text)
        if any(not one.marker or one.marker.evaluate({"extra": e}) for e in ("", *extras)):
            key = SCRIPT["normalised"](one.name)
            if not one.extras <= seen.get(key, {""}) or key not in seen:
                seen[key] = seen.get(key, {""}) | one.extras
                _needed(one.name, one.extras, seen)
    return seen


@pytest.mark.parametrize("python", SCRIPT["PYTHONS"])
def test_every_package_of_the_test_extra_has_one_public_version(python):
    pins = {}
    for one in LINES:
        if one.marker is None or one.marker.evaluate({"python_version": python}):
            assert re.fullmatch(r"==[^+*]+", str(one.specifier)), one
            assert pins.setdefault(one.name, one) is one
    needed = set(_needed("gemmetry", ("test",))) - {"gemmetry"}
    assert "torch" in needed and "pytest" in needed
    assert needed - set(pins) == set()


def test_lines_have_markers_only_where_versions_differ():
    text = SCRIPT["constraints"]({
        "3.11": {"torch": "2.13.0", "numpy": "1.0", "old": "1"},
        "3.12": {"torch": "2.13.0", "numpy": "2.0"},
    })  # fmt: skip
    assert text.splitlines()[-4:] == [
        'numpy==1.0; python_version == "3.11"', 'numpy==2.0; python_version == "3.12"',
        "old==1", "torch==2.13.0",
    ]  # fmt: skip


def _installed(name, version, pythons=""):
    """A package of an environment."""
    about = {"requires_python": pythons} if pythons else {}
    return SimpleNamespace(name=name, version=version, metadata=SimpleNamespace(json=about))


def test_versions_of_an_environment_serve_every_build_and_release():
    installed = [
        _installed("gemmetry", "0.1"), _installed("torch", "2.13.0+cpu"),
        _installed("triton", "3.9.0"), _installed("nvidia-ml-py", "13.1"),
        _installed("Typing_Extensions", "4.16.0", ">=3.9"),
        _installed("soupsieve", "4.1.3", ">=3.11.5"),
    ]  # fmt: skip
    pins = {"torch": "2.13.0", "typing-extensions": "4.16.0"}
    assert SCRIPT["installed_pins"]("3.11", installed) == pins
    assert "soupsieve" in SCRIPT["installed_pins"]("3.12", installed)


def test_extras_replace_no_torch_triton_or_iree_and_upper_bounds_have_reasons():
    text = (ROOT / "pyproject.toml").read_text()
    extras = tomllib.loads(text)["project"]["optional-dependencies"].values()
    own = [Requirement(one) for extra in extras for one in extra]
    kept = [one for one in own if re.match("torch|triton|iree", one.name)]
    assert {one.name for one in kept} >= {"torch", "triton", "iree-base-compiler"}
    assert not any(one.specifier for one in kept)
    lines = text.splitlines()
    bounded = [i for i, line in enumerate(lines) if re.search(r'"[\w.\[\]-]+[^"]*<[\d.]+', line)]
    assert all(lines[i - 1].lstrip().startswith("#") for i in bounded)
