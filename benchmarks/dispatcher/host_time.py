"""Host time of ``gemmetry.matmul`` when warm: choosing alone, and on a GPU the whole call, next to
``torch.mm`` and ``torch.matmul``.

    python benchmarks/dispatcher/host_time.py [--json FILE]

Calls are timed in alternation; of each, the fastest of several batches is printed, as other
programs only make batches longer. On a GPU a batch is short enough for the queue of launches, so
that no call waits for the device.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch

import gemmetry
from gemmetry.tuning.dispatcher import call as calls

BATCH = 200
BATCHES = 50


def fastest_ns(functions: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Name -> time of one call in ns, the fastest of the batches."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(BATCHES):
        for name, function in functions.items():
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            began = time.perf_counter_ns()
            for _ in range(BATCH):
                function()
            best[name] = min(best[name], (time.perf_counter_ns() - began) / BATCH)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the times here, too")
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a = torch.randn(16, 4096 if device == "cuda" else 64, device=device, dtype=torch.bfloat16)
    b = torch.randn(4096 if device == "cuda" else 32, a.shape[1], device=device).to(a.dtype).mT
    gemmetry.matmul(a, b)
    whole = fastest_ns(
        {
            "gemmetry.matmul": lambda: gemmetry.matmul(a, b),
            "torch.mm": lambda: torch.mm(a, b),
            "torch.matmul": lambda: torch.matmul(a, b),
        }
    )
    # Whatever was chosen is replaced by nothing, so that only choosing is left.
    for key in calls._plain:
        calls._plain[key] = lambda _call: a
    empty = fastest_ns({"choosing": lambda: gemmetry.matmul(a, b), "an empty call": lambda: None})
    found = {**whole, "choosing": empty["choosing"] - empty["an empty call"]}
    for name, ns in found.items():
        print(f"{name:<16} {ns / 1000:7.2f} µs")
    print(f"choosing / torch.mm {found['choosing'] / found['torch.mm']:.3f} on {device}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"device": device, "ns": found}))


if __name__ == "__main__":
    main()
