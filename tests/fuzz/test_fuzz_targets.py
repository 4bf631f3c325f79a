"""A short run of each fuzzing target, where atheris is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
@pytest.mark.parametrize(("target", "runs"), [("fuzz_kineto", 2000), ("fuzz_tables", 100)])
def test_a_short_run_finds_nothing(tmp_path, target, runs):
    command = [
        sys.executable, str(Path(__file__).with_name(f"{target}.py")), f"-runs={runs}",
        "-max_len=30000", "-seed=1", f"-artifact_prefix={tmp_path}/", str(tmp_path / "corpus"),
    ]  # fmt: skip
    (tmp_path / "corpus").mkdir()
    found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stderr[-3000:]
