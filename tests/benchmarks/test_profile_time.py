"""The benchmark times functions of the package by their names: it must find them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "profile_time.py"


def test_stages_of_a_run_and_its_workers_are_timed(tmp_path: Path) -> None:
    written = tmp_path / "stages.json"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--json", str(written), "--", "--providers", "null",
         "--device", "null", "--shapes", "64x64x64", "--verification-level", "quick",
         "--experiment", str(tmp_path / "run")],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    stages = json.loads(written.read_text())
    parent = stages["parent"]
    timed = {"whole run", "device open_all", "device sample_all", "compiled ahead: ready"}
    assert timed <= set(parent)
    assert parent["whole run"][1] == max(wall for _, wall, *_ in parent.values())
    assert all(begin <= end <= parent["whole run"][5] for *_, begin, end in parent.values())
    assert any(one["stages"] for one in stages["workers"])
