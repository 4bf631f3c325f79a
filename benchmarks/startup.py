"""CPU time of starting: ``gemmetry --help``, ``import gemmetry`` and a bare interpreter; and what
``do_bench`` and ``compare`` add to the import of torch.

``python benchmarks/startup.py`` prints medians of ten runs each, in turns.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

RUNS = 10
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import gemmetry": [sys.executable, "-c", "import gemmetry"],
    "gemmetry --help": [sys.executable, "-m", "gemmetry", "--help"],
    "import torch": [sys.executable, "-c", "import torch"],
    "import torch, do_bench and compare": [
        sys.executable, "-c",
        "import torch; from gemmetry.testing import do_bench; from gemmetry import compare",
    ],
}  # fmt: skip
ADDED = "do_bench and compare on top of torch"
LIMIT_MS = {"gemmetry --help": 150, ADDED: 150}


def cpu_ms(command: list[str]) -> float:
    """User and system time of one run of `command`, in ms."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def main() -> None:
    samples: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for command in COMMANDS.values():  # fills the file cache, not counted
        cpu_ms(command)
    for _ in range(RUNS):
        for name, command in COMMANDS.items():
            samples[name].append(cpu_ms(command))
    with_torch, more = (samples[name] for name in list(COMMANDS)[-2:])
    samples[ADDED] = [statistics.median(more) - statistics.median(with_torch)]
    print(f"{'CPU time, median of ' + str(RUNS):<44} {'measured':>12} {'limit':>10}")
    for name, values in samples.items():
        limit = f"{LIMIT_MS[name]} ms" if name in LIMIT_MS else ""
        print(f"{name:<44} {statistics.median(values):>9.0f} ms {limit:>10}")


if __name__ == "__main__":
    main()
