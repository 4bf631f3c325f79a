"""The commands of ``benchmarks/tuner``, as far as they go without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_spaces_of_the_campaign():
    """At least ten shapes, and few enough configurations for the minutes of a GPU."""
    pytest.importorskip("triton")
    done = subprocess.run(
        ["sh", "benchmarks/tuner/campaign.sh", "results"], cwd=ROOT, text=True, check=True,
        env={**os.environ, "DRY_RUN": "1", "DEVICE": "cuda-sm_90", "PYTHON": sys.executable},
        capture_output=True,
    )  # fmt: skip
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert len(rows) >= 10
    assert 2000 < sum(int(row[1]) for row in rows) < 3500
    assert all(row[1] == row[2] for row in rows)
    assert not (ROOT / "results").exists()
