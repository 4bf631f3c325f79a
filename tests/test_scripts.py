"""Scripts that seldom run can be imported: a name that they import and that is gone is an error.

A missing attribute is found by mypy, which checks them too.
"""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ALL = [path for folder in ("benchmarks", "docs/generate") for path in (ROOT / folder).rglob("*.py")]
SCRIPTS = sorted(path for path in ALL if path.name != "sitecustomize.py")
NAMES = {path.stem for path in SCRIPTS}


@pytest.mark.parametrize("script", sorted({*ALL} - {*SCRIPTS}), ids=lambda path: path.parent.name)
def test_what_changes_torch_does_so_in_its_own_process(script: Path) -> None:
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_script_can_be_imported(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(script.parent), *sys.path])
    # Scripts import each other by plain names, of which some are in two folders.
    kept = {name: sys.modules.pop(name) for name in NAMES & set(sys.modules)}
    try:
        assert "__file__" in runpy.run_path(str(script), run_name="imported")
    except ModuleNotFoundError as error:
        root = re.split(r"\W", error.name or "")[0]
        if root in ("gemmetry", *NAMES):
            raise
        pytest.skip(f"{root} is not installed")
    finally:
        for name in NAMES & set(sys.modules):
            del sys.modules[name]
        sys.modules.update(kept)
