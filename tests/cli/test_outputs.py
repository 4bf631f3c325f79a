"""Texts, tables and errors of commands on the fixtures: golden outputs, one file a case of
``tests/outputs.txt``. ``GEMMETRY_GOLDEN=1 pytest tests/cli/test_outputs.py`` stores them anew."""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location("outputs", Path(__file__).parents[1] / "outputs.py")
outputs = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(outputs)

GOLDEN = outputs.FIXTURES / "outputs"
CASES = [
    "metrics", "diagnose_planted",
    "counters_compare", "trace_fsdp", "collectives", "workbooks", "cpu_grid", "straggler",
    "sweep_plan", "sweep_commands", "sweep_compare", "rocprof_input", "errors",
    "kernels",
]  # fmt: skip
FILES = {".md", ".csv", ".yaml", ".xml", ".conf"}
PAGES = {"trace_fsdp", "collectives", "cpu_grid", "straggler", "sweep_compare"}
MOST_LINES = {".html": 600, ".md": 200}
_TIMES = re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.+Z]+|\b\d+(\.\d+)? s\b|\b[0-9a-f]{8,64}\b")


def _shown(text: str, here: Path, most: int = 80) -> list[str]:
    """The first lines of a text; of a JSON document only its keys."""
    if text.lstrip().startswith("{"):
        keys = (line.split(" = ")[0] for line in outputs._text(text))
        return list(dict.fromkeys(re.sub(r"\[\d+\]", "[]", key) for key in keys))
    masks = {sys.executable: "{python}", str(here): "{here}", str(outputs.ROOT): "{root}",
             os.strerror(errno.ENOENT): "{no such file}"}  # fmt: skip
    for found, mask in masks.items():
        text = text.replace(found, mask)
    return [_TIMES.sub("*", line.rstrip())[:300] for line in text.splitlines()[:most]]


def _run(cli, case: str, here: Path) -> str:
    found = []
    for line in outputs._read_cases()[case].replace(str(outputs.ROOT), "root").splitlines():
        if line.startswith("!copy "):
            source, target = line.split()[1:]
            shutil.copytree(source, target)
            continue
        ended = cli(*outputs._arguments(line))
        found += [f"$ gemmetry {line}", f"= {ended.status}"]
        found += [*_shown(ended.stdout, here), "---", *_shown(ended.stderr, here)]
    for path in sorted(here.rglob("*")):
        is_page = path.suffix == ".html" and case in PAGES
        if path.is_file() and (path.suffix in FILES or is_page):
            lines = outputs._content(path) if is_page else [path.read_text("utf-8")]
            shown = _shown("\n".join(lines), here, MOST_LINES.get(path.suffix, 80))
            found += [f"# {path.relative_to(here)}", *shown]
    return "\n".join(found) + "\n"


@pytest.mark.parametrize("case", CASES)
def test_output(cli, case, tmp_path, monkeypatch):
    for name, value in {"COLUMNS": "100", "NO_COLOR": "1", "GEMMETRY_SEED": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    here = tmp_path / "run"
    here.mkdir()
    monkeypatch.chdir(here)
    Path("root").symlink_to(outputs.ROOT)  # Texts do not depend on the length of its path.
    found = _run(cli, case, here)
    target = GOLDEN / f"{case}.txt"
    if os.environ.get("GEMMETRY_GOLDEN"):
        target.parent.mkdir(exist_ok=True)
        target.write_text(found, "utf-8")
    assert found == target.read_text("utf-8")
