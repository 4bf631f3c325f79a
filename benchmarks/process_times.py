"""Does a product's time depend on its buffers, or on the process that launches it?

    python benchmarks/process_times.py [MxNxK ...]

Several processes time torch's bf16 product on the same number of buffer sets, each launch between
two events, in a new random order of the sets each round. A line gives a process's mean over its
sets, the standard deviation of the sets' medians, and that of what two halves of a set's own
rounds differ by: noise alone would make both alike. The last line of a product gives the standard
deviation between processes.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys

PRODUCTS = ("1x4096x4096", "16x28672x4096", "1024x1024x1024")
PROCESSES, ROUNDS = 4, 40
SETS = 16
SLEEP_CYCLES = 3_000_000
"""Of the device before each round, so that launches are queued before the first begins."""


def measure(m: int, n: int, k: int) -> list[list[float]]:
    """µs of every round, by set, in this process."""
    import torch

    def tensor(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

    sets = [(tensor(m, k), tensor(n, k).t(), tensor(m, n)) for _ in range(SETS)]
    for a, b, c in sets:
        torch.mm(a, b, out=c)
    torch.cuda.synchronize()
    times: list[list[float]] = [[] for _ in sets]
    for _ in range(ROUNDS):
        order = random.sample(range(SETS), SETS)
        events = {
            i: (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            for i in order
        }
        torch.cuda._sleep(SLEEP_CYCLES)
        for i in order:
            a, b, c = sets[i]
            events[i][0].record()
            torch.mm(a, b, out=c)
            events[i][1].record()
        torch.cuda.synchronize()
        for i, (start, end) in events.items():
            times[i].append(start.elapsed_time(end) * 1e3)
    return times


def main() -> None:
    """Print the table; with ``--child M N K`` the times of this process as JSON."""
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(measure(*map(int, sys.argv[2:5]))))
        return
    print("| product | process | mean µs | between sets | between halves of the rounds |")
    print("|---|---|---|---|---|")
    for product in sys.argv[1:] or PRODUCTS:
        means = []
        for process in range(PROCESSES):
            command = [sys.executable, __file__, "--child", *product.split("x")]
            times = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            medians = [statistics.median(one) for one in times]
            halves = [statistics.median(t[::2]) - statistics.median(t[1::2]) for t in times]
            mean = statistics.mean(medians)
            means.append(mean)
            apart = statistics.stdev(medians) / mean
            noise = statistics.stdev(halves) / mean
            print(f"| {product} | {process + 1} | {mean:.2f} | {apart:.2%} | {noise:.2%} |")
        between = statistics.stdev(means) / statistics.mean(means)
        print(f"| {product} | between processes | | {between:.2%} | |")


if __name__ == "__main__":
    main()
