"""The GPU tables of docs/measured-tables.md from the CSV files that gpu_gemm.yaml's runs wrote.

``python benchmarks/gpu_table.py gpu_gemm.csv gpu_gemm_32.csv`` prints Markdown: for each shape and
format cuBLAS (the best configuration of torch), the best of cuBLASLt's proposals, and the best
configuration of our Triton kernel, which is compared with both.
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


HEADINGS = (
    "M×N×K", "A, B → C", "cuBLAS µs", "TFLOP/s", "roof", "best of cuBLASLt µs", "TFLOP/s", "roof",
    "× cuBLAS", "Triton µs", "TFLOP/s", "roof", "× cuBLAS", "× best", "Triton configuration",
)  # fmt: skip


def main(paths: list[str]) -> None:
    operations: dict[str, list[Row]] = defaultdict(list)
    for path in paths:
        with Path(path).open(newline="") as file:
            for row in csv.DictReader(file):
                operations[row["operation"]].append(row)
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}")
    gains: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for rows in operations.values():
        first = rows[0]
        cublas, proposed, triton = (best(rows, name) for name in ("torch", "cublaslt", "triton"))
        pairs = {
            "The best of cuBLASLt × cuBLAS": (proposed, cublas),
            "Triton × cuBLAS": (triton, cublas),
            "Triton × the best of cuBLASLt": (triton, proposed),
        }
        ratios = []
        for what, (one, other) in pairs.items():
            value = speedup(one, other)
            ratios.append("–" if value is None else f"{value:.2f}")
            if value is not None:
                gains[what][first["lhs_dtype"]].append(value)
        configuration = f"`{triton['configuration']}`" if triton else "–"
        print(
            f"| {first['m']}×{first['n']}×{first['k']} "
            f"| {first['lhs_dtype']} → {first['result_dtype']} "
            f"| {' | '.join(cells(cublas))} | {' | '.join(cells(proposed))} | {ratios[0]} "
            f"| {' | '.join(cells(triton))} | {ratios[1]} | {ratios[2]} | {configuration} |"
        )
    print("\nGeometric means:\n")
    for what, by_format in gains.items():
        means = (
            f"{name} {math.exp(sum(map(math.log, values)) / len(values)):.2f}"
            for name, values in by_format.items()
        )
        print(f"- {what}: {', '.join(means)}")


def speedup(row: Row | None, base: Row | None) -> float | None:
    """How many times as fast `row` is as `base`."""
    if row is None or base is None:
        return None
    return float(base["median_ns"]) / float(row["median_ns"])


if __name__ == "__main__":
    main(sys.argv[1:])
