"""The GPU table of docs/benchmarks.md from the CSV files that gpu_gemm.yaml's runs wrote.

``python benchmarks/gpu_table.py gpu_gemm.csv gpu_gemm_32.csv`` prints Markdown: for each shape and
format cuBLAS (the best configuration of torch) and the best configuration of our Triton kernel.
"""

from __future__ import annotations

import csv
import math
import sys
from collections import defaultdict
from pathlib import Path

Row = dict[str, str]


def best(rows: list[Row], provider: str) -> Row | None:
    """The fastest measured row of `provider`."""
    measured = [row for row in rows if row["provider"] == provider and row["median_ns"]]
    return min(measured, key=lambda row: float(row["median_ns"]), default=None)


def cells(row: Row | None) -> list[str]:
    if row is None:
        return ["–", "–", "–"]
    half = "n/a"
    if row["ci_low_ns"]:
        width = float(row["ci_high_ns"]) - float(row["ci_low_ns"])
        half = f"{width / 2 / float(row['median_ns']):.1%}"
    return [
        f"{float(row['median_ns']) / 1e3:.4g} ± {half}",
        f"{float(row['gflops']) / 1e3:.4g}",
        f"{float(row['roofline_fraction']):.0%}",
    ]


def main(paths: list[str]) -> None:
    operations: dict[str, list[Row]] = defaultdict(list)
    for path in paths:
        with Path(path).open(newline="") as file:
            for row in csv.DictReader(file):
                operations[row["operation"]].append(row)
    print(
        "| M×N×K | A, B → C | cuBLAS µs | TFLOP/s | roof | Triton µs | TFLOP/s | roof "
        "| × cuBLAS | Triton configuration |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    ratios: dict[str, list[float]] = defaultdict(list)
    for rows in operations.values():
        first, cublas, triton = rows[0], best(rows, "torch"), best(rows, "triton")
        shape = f"{first['m']}×{first['n']}×{first['k']}"
        formats = f"{first['lhs_dtype']} → {first['result_dtype']}"
        ratio, configuration = "–", "–"
        if cublas and triton:
            value = float(cublas["median_ns"]) / float(triton["median_ns"])
            ratios[first["lhs_dtype"]].append(value)
            ratio, configuration = f"{value:.2f}", triton["configuration"]
        print(
            f"| {shape} | {formats} | {' | '.join(cells(cublas))} | {' | '.join(cells(triton))} "
            f"| {ratio} | `{configuration}` |"
        )
    means = (
        f"{name} {math.exp(sum(map(math.log, values)) / len(values)):.2f}"
        for name, values in ratios.items()
    )
    print(f"\nGeometric mean of × cuBLAS: {', '.join(means)}.")


if __name__ == "__main__":
    main(sys.argv[1:])
