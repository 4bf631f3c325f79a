"""The scripts of ``benchmarks/`` import each other by their plain names, as they do when one is
run."""

from __future__ import annotations

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), *(str(BENCHMARKS / one) for one in ("audit", "bottlenecks"))]
