"""Cases of a test, which are in a text file of the same name, see ``tests/cases.py``."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SPEC = importlib.util.spec_from_file_location("cases", Path(__file__).parents[2] / "cases.py")
cases = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(cases)


@dataclass(frozen=True)
class Case:
    """A case of ``NAME.txt`` for a test in ``test_NAME.py``."""

    path: Path
    title: str

    def calls(self) -> list[tuple[str, list[Any], dict[str, Any]]]:
        """Each line of input: what it is, and its arguments without and with names."""
        return [cases.arguments(line) for line in cases.read(self.path)[self.title][0]]

    def check(
        self, found: Iterable[str | tuple[object, dict[str, Any]]], here: Path = Path("/nowhere")
    ) -> None:
        """Compare lines, or labels with values, with those of the case; paths are below `here`."""
        lines = (one if isinstance(one, str) else cases.shown(*one) for one in found)
        cases.check(self.path, self.title, [line.replace(f"{here}/", "") for line in lines])


def pytest_generate_tests(metafunc):
    """Run what takes a `case` once for each case of its module."""
    if "case" in metafunc.fixturenames:
        module = metafunc.definition.path
        path = module.with_name(f"{module.stem.removeprefix('test_')}.txt")
        metafunc.parametrize("case", [Case(path, title) for title in cases.read(path)],
                             ids=cases.read(path))  # fmt: skip
