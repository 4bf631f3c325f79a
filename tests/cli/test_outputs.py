"""Texts, tables, documents and errors of commands: golden outputs, one file a case of
``tests/outputs.txt``. ``GEMMETRY_GOLDEN=1 pytest tests/cli/test_outputs.py`` stores them anew."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import outputs

from gemmetry.hardware import detect

GOLDEN = outputs.FIXTURES / "outputs"
ERRORS = (errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)
CASES = outputs.golden_cases()
SHOWN = {".md", ".csv", ".yaml", ".xml", ".conf", ".json"}
_TIMES = re.compile(
    r"--seed \d{5,}|\d{4}-\d\d-\d\d[T ][\d:.+Z]+|\b\d+(\.\d+)? s\b|\b(?=\d*[a-f])[0-9a-f]{8,64}\b"
)

_LONG = re.compile(r"(?<![\w.-])-?\d[\d.]{9,}(e[+-]?\d+)?(?![\w.])")
"""Numbers whose last digits depend on how a version of Python, or a processor, adds."""

_PACKAGE = re.compile(r"\bpackages\..*")
"""Which ones are stored depends on the build of torch: one for GPUs brings NVIDIA's."""


def _values(value: Any, path: str = "") -> Iterator[str]:
    """Each value with its path; of a list its length, and its first and last item."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _values(item, f"{path}.{key}")
    elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
        yield f"{path} has {len(value)}"
        for number in sorted({0, len(value) - 1}):
            yield from _values(value[number], f"{path}[{number}]")
    else:
        yield f"{path} = {value:.6g}" if isinstance(value, float) else f"{path} = {value!r}"


def _shown(text: str, here: Path, words: set[str], most: int = 80) -> list[str]:
    """The first lines of a text; of a JSON document its keys, or its values on request."""
    masks = {sys.executable: "{python}", str(here): "{here}", str(outputs.ROOT): "{root}",
             **{os.strerror(one): f"{{{errno.errorcode[one]}}}" for one in ERRORS}}  # fmt: skip
    for found, mask in masks.items():
        text = text.replace(found, mask)
    lines = text.splitlines()[:most]
    if text.startswith("{") and "values" in words:
        lines = list(_values(outputs.json.loads(text)))[:150]
    elif text.startswith("{"):
        keys = (line.split(" = ")[0] for line in outputs._text(text))
        keys = (_PACKAGE.sub("packages", re.sub(r"\[\d+\]", "[]", key)) for key in keys)
        return list(dict.fromkeys(_TIMES.sub("*", key) for key in keys))
    return [_LONG.sub(_rounded, _TIMES.sub("*", line.rstrip()))[:300] for line in lines]


def _rounded(number: re.Match[str]) -> str:
    """Nine digits of a number; other texts with several points as they are."""
    text = number.group()
    return text if text.count(".") > 1 else f"{float(text):.9g}"


def _run(cli_as_typed, case: str, here: Path) -> str:
    found, given = [], set()
    for line in outputs._read_cases()[case].replace(str(outputs.ROOT), "root").splitlines():
        if outputs.prepare(line, here):
            given = set(here.rglob("*"))
            continue
        ended = cli_as_typed(*outputs.arguments(line))
        found += [f"$ gemmetry {line}", f"= {ended.status}"]
        if ended.status in (2, 3):
            assert re.match("(?s)(.*\n)?error: .*\nhint: ", ended.stderr), line
        if "80" in CASES[case] and not ended.stdout.startswith("{"):
            assert [
                one for one in ended.stdout.splitlines() if len(one) > 80 < one.rfind(" ")
            ] == []
        found += [*_shown(ended.stdout, here, CASES[case]), "---"]
        found += _shown(ended.stderr, here, CASES[case])
    for path in sorted(set(here.rglob("*")) - given):
        is_stored = any((folder / "journal.sqlite").exists() for folder in path.parents)
        if path.is_file() and not is_stored:
            found.append(f"# {path.relative_to(here)}")
            if path.suffix in SHOWN:
                found += _shown(path.read_text("utf-8"), here, CASES[case])
            elif path.suffix == ".html" and "pages" in CASES[case]:
                found += _shown("\n".join(outputs.content(path)), here, CASES[case], 600)
    return "\n".join(found) + "\n"


@pytest.mark.parametrize("case", CASES)
def test_output(cli_as_typed, case, tmp_path, monkeypatch):
    for name in filter(detect._VARIABLES.fullmatch, list(os.environ)):  # They are stored.
        monkeypatch.delenv(name)
    width = next(filter(str.isdigit, CASES[case]), "100")
    for name, value in {"COLUMNS": width, "NO_COLOR": "1", "GEMMETRY_SEED": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    monkeypatch.setenv("PATH", programs)
    here = tmp_path / "run"
    here.mkdir()
    monkeypatch.chdir(here)
    Path("root").symlink_to(outputs.ROOT)  # Texts do not depend on the length of its path.
    found = _run(cli_as_typed, case, here)
    target = GOLDEN / f"{case}.txt"
    if os.environ.get("GEMMETRY_GOLDEN"):
        target.parent.mkdir(exist_ok=True)
        target.write_text(found, "utf-8")
    assert found == target.read_text("utf-8")
