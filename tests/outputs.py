"""Cases of commands in ``outputs.txt``: what they need, their words, and their pages as text."""

from __future__ import annotations

import gzip
import html.parser
import itertools
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests import histories, sweeps

from gemmetry.history.folder import append

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "tests" / "data"
CASES = Path(__file__).with_suffix(".txt")


def golden_cases() -> dict[str, set[str]]:
    """Case that the suite runs -> what its heading says after the name."""
    heads = re.findall(r"^\[(\w+): (.*)\]$", CASES.read_text("utf-8"), re.M)
    return {name: set(words.split()) for name, words in heads}


def _read_cases() -> dict[str, str]:
    words = {"traces": FIXTURES / "traces", "counters": FIXTURES / "counters", "data": FIXTURES}
    found: dict[str, list[str]] = {}
    for line in CASES.read_text("utf-8").splitlines():
        line = re.sub(r"{(\w+)}", lambda match: str(words.get(match[1], match[0])), line)
        if line.startswith("["):
            name = line.strip("[]").partition(":")[0]
            found[name] = []
        elif found and line:
            found[name].append(line)
        elif " = " in line and not line.startswith("#"):
            key, _, text = line.partition(" = ")
            words[key] = text
    return {name: "\n".join(lines) for name, lines in found.items()}


def arguments(line: str) -> list[str]:
    """The words of a command line, patterns of paths expanded."""
    words = shlex.split(line)
    return [
        name
        for word in words
        for name in ("*" in word and "/" in word and sorted(map(str, _matching(word)))) or [word]
    ]


def _matching(pattern: str) -> Iterator[Path]:
    root = Path(pattern[0]) if pattern.startswith("/") else Path()
    return root.glob(pattern.lstrip("/"))


def prepare(line: str, place: Path) -> bool:
    """Make what a line requests that begins with ``!``, below `place`; whether it is one."""
    if not line.startswith("!"):
        return False
    action, target, given = (*line.split(" ", 2), "")[:3]
    path = place / target
    path.parent.mkdir(parents=True, exist_ok=True)
    match action:
        case "!write":
            path.write_bytes(given.encode("latin-1").decode("unicode_escape").encode("latin-1"))
        case "!copy" if Path(given).is_dir():
            shutil.copytree(given, path)
        case "!copy":
            shutil.copy(given, path)
        case "!unpack":
            source, _, count = given.partition(" ")
            path.write_bytes(gzip.decompress(Path(source).read_bytes())[: int(count or 1 << 40)])
        case "!folder":
            path.mkdir()
        case "!sweep":
            names, values = zip(*json.loads(given).items(), strict=True)
            sweeps.write_sweep(path, [
                sweeps.MadePoint(**_slowed(dict(zip(names, one, strict=True))))
                for one in itertools.product(*(v if isinstance(v, list) else [v] for v in values))
            ])  # fmt: skip
        case "!history":
            values = json.loads(given)
            slow, lost = values.pop("slow", ()), values.pop("lost", ())
            made = histories.SyntheticHistory(**values, lost={tuple(one) for one in lost})
            for factor, first, provider, shape in slow:
                made.slow(factor, first, provider=provider, shape=shape)
            append(path, made.entries())
        case _:
            raise ValueError(line)
    return True


def _slowed(values: dict[str, Any]) -> dict[str, Any]:
    factor = values.pop("slow", None)
    return values if factor is None else {**values, "slowdown": {sweeps.UP.kernel: factor}}


def _text(text: str) -> list[str]:
    stripped = text.strip()
    if stripped.startswith(("{", "[")):
        try:
            return list(_flat(json.loads(stripped)))
        except ValueError:
            pass
    return [line.rstrip() for line in text.splitlines()]


def _flat(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(item, f"{path}.{key}")
        if not value:
            yield f"{path} = {{}}"
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _flat(item, f"{path}[{number}]")
        if not value:
            yield f"{path} = []"
    else:
        yield f"{path} = {json.dumps(value, ensure_ascii=False)}"


class _PageText(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "style":
            return
        if self._inside == "script":
            for found in re.finditer(
                r"^\s*(?:const|var|let)?\s*\w*\s*=?\s*([\[{].*[\]}]);?\s*$", data, re.M
            ):
                try:
                    self.lines += _flat(json.loads(found[1]))
                except ValueError:
                    continue
            return
        self.lines += [line.strip() for line in data.splitlines() if line.strip()]


def content(page: Path) -> list[str]:
    """The texts and data of a page."""
    found = _PageText()
    found.feed(page.read_text("utf-8", "replace"))
    return found.lines
