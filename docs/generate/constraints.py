"""Prints ``constraints.txt``: the packages of the environment that runs it, which ``make demo`` and
``make test`` install by, for each Python of :data:`PYTHONS`.

``make constraints`` runs it in the environment of ``make test-newest`` after a green run. Which
packages the `test` extra needs is pip's own resolution, once for each Python, without installing.
The versions are the environment's, without local parts such as ``+cpu``. Left to the resolution are
what builds of torch for GPUs bring and pin (:data:`OF_TORCH`), so that one file serves those builds
and the ones for CPUs, and what does not support the first release of a Python.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12")
OF_TORCH = re.compile(r"triton|cuda-.*|nvidia-.*")

_HEAD = """\
# The packages that `make demo` and `make test` install. Written by `make constraints`, which takes
# them from the environment of a green `make test-newest` (docs/testing.md).
"""


def normalised(name: str) -> str:
    """The name of a package as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def public(version: str) -> str:
    """`version` without its local part: 2.13.0 for 2.13.0+cpu."""
    return version.partition("+")[0]


def installed_pins(python: str, installed: Iterable[Distribution]) -> dict[str, str]:
    """Public versions by name of what is `installed`, without what torch pins, and without what the
    first release of `python` cannot install."""
    pins = {}
    for one in installed:
        name, pythons = normalised(one.name), one.metadata.get("Requires-Python", "")
        is_free = name == "gemmetry" or OF_TORCH.fullmatch(name)
        if not is_free and f"{python}.0" in SpecifierSet(pythons):
            pins[name] = public(one.version)
    return pins


def resolved(python: str, pins: Mapping[str, str], arguments: Iterable[str]) -> dict[str, str]:
    """Versions by name that pip would install for the `test` extra in a new environment.

    Markers are those of the Python that runs this: what only `python` requires is not found.

    Raises:
        CalledProcessError: no set of versions with `pins` suits `python`; pip printed why.
    """
    with tempfile.TemporaryDirectory() as folder:
        limits, report = Path(folder) / "pins.txt", Path(folder) / "report.json"
        limits.write_text("".join(f"{name}=={pins[name]}\n" for name in pins))
        builders = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--isolated", "--quiet", "--dry-run",
             "--ignore-installed", "--disable-pip-version-check", "--report", str(report),
             "--target", str(Path(folder) / "unused"), "--python-version", python,
             "--only-binary=:all:", "-c", str(limits), *arguments, ".[test]", *builders],
            check=True, cwd=ROOT, stdout=sys.stderr,
        )  # fmt: skip
        packages = [one["metadata"] for one in json.loads(report.read_text())["install"]]
    found = {normalised(one["name"]): public(one["version"]) for one in packages}
    return {name: version for name, version in found.items() if name != "gemmetry"}


def constraints(by_python: Mapping[str, Mapping[str, str]]) -> str:
    """The file's text: a line without a marker where all Pythons of `by_python` agree."""
    lines = []
    for name in sorted(set().union(*by_python.values())):
        versions = [found[name] for found in by_python.values() if name in found]
        if len(set(versions)) == 1:
            lines.append(f"{name}=={versions[0]}")
        else:
            lines += [
                f'{name}=={found[name]}; python_version == "{python}"'
                for python, found in by_python.items()
                if name in found
            ]
    return _HEAD + "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    installed = list(distributions())
    found = {one: resolved(one, installed_pins(one, installed), sys.argv[1:]) for one in PYTHONS}
    sys.stdout.write(constraints(found))
