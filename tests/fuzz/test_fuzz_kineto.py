"""A short run of the fuzzing target, where atheris is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
def test_a_short_run_finds_nothing(tmp_path):
    command = [
        sys.executable, str(Path(__file__).with_name("fuzz_kineto.py")), "-runs=2000",
        "-max_len=30000", "-seed=1", f"-artifact_prefix={tmp_path}/", str(tmp_path / "corpus"),
    ]  # fmt: skip
    found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stderr[-3000:]
