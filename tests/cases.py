"""Cases that are lines of text, with what is found in them after "= ".

A file has cases ``[title]``, each with lines of input, ``#`` comments and the lines found.
``NAME = TEXT`` at its top stands for {NAME}. ``GEMMETRY_GOLDEN=1`` stores what is found anew.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple


def shown(label: object, values: dict[str, Any]) -> str:
    """``label name=value``, without values that are 0 or empty."""

    def text(value: Any) -> str:
        return f"{value:.6g}" if isinstance(value, float) else re.sub(r"\s", "_", str(value))

    return " ".join([str(label), *(f"{k}={text(v)}" for k, v in values.items() if v)])


def arguments(line: str) -> tuple[str, list[Any], dict[str, Any]]:
    """``what one "2 3" key=4`` -> its call; JSON where it is some, otherwise text."""

    def value(text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError:
            return text

    what, *parts = re.findall(r'(?:"(?:[^"\\]|\\.)*"|[^\s"])+', line)
    pairs = [re.fullmatch(r'("[^"]*"|[A-Za-z_]+)=(.*)', part) for part in parts]
    given = {str(value(pair[1])): value(pair[2]) for pair in pairs if pair}
    return what, [value(part) for part, pair in zip(parts, pairs, strict=True) if not pair], given


@cache
def read(path: Path) -> dict[str, tuple[list[str], list[str]]]:
    """Title -> lines of input, lines that have to be found."""
    found = {}
    head, *blocks = re.split(r"^\[", path.read_text("utf-8"), flags=re.M)
    for block in blocks:
        title, _, text = block.partition("]\n")
        for name, stands_for in re.findall(r"^(\w+) = (.*)", head, flags=re.M):
            text = text.replace(f"{{{name}}}", stands_for)
        lines = [line for line in text.splitlines() if line and line[0] != "#"]
        given = [line for line in lines if line[:2] != "= "]
        found[title] = given, [line[2:] for line in lines if line[:2] == "= "]
    return found


def check(path: Path, title: str, found: list[str]) -> None:
    """Compare what is found in a case with its lines."""
    expected = read(path)[title][1]
    found = [line for text in found or ["nothing"] for line in text.splitlines()]
    if os.environ.get("GEMMETRY_GOLDEN"):
        before, head, rest = path.read_text("utf-8").partition(f"[{title}]\n")
        block, mark, after = rest.partition("\n[")
        kept = [line for line in block.splitlines() if line and line[:2] != "= "]
        text = "\n".join([*kept, *(f"= {line}" for line in found)]) + "\n"
        path.write_text(f"{before}{head}{text}{mark}{after}", "utf-8")
    assert found == expected


class Case(NamedTuple):
    """A case of a file of them."""

    path: Path
    title: str

    @property
    def topic(self) -> str:
        """The title up to a colon."""
        return self.title.partition(":")[0]

    @property
    def lines(self) -> list[str]:
        """Lines of input."""
        return read(self.path)[self.title][0]

    def calls(self) -> list[tuple[str, list[Any], dict[str, Any]]]:
        """Each line of input: what it is, and its arguments without and with names."""
        return [arguments(line) for line in self.lines]

    def check(
        self, found: Iterable[str | tuple[object, dict[str, Any]]], here: Path = Path("/nowhere")
    ) -> None:
        """Compare lines, or labels with values, with the case; paths are below `here`."""
        lines = (one if isinstance(one, str) else shown(*one) for one in found)
        check(self.path, self.title, [line.replace(f"{here}/", "") for line in lines])


def pytest_generate_tests(metafunc):
    """Run what takes a `case` once for each case of its module, if it has a file of them: NAME.txt
    for test_NAME.py. What takes a `jobs_case` runs for the cases of jobs.txt."""
    module = metafunc.definition.path
    for argument in metafunc.fixturenames:
        name = argument.removesuffix("case").rstrip("_") or module.stem.removeprefix("test_")
        path = module.with_name(f"{name}.txt")
        if argument.endswith("case") and path.exists():
            found = read(path)
            metafunc.parametrize(argument, [Case(path, title) for title in found], ids=found)
