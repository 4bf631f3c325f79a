"""Our kernels next to the vendor's libraries, from experiments: for each product the fastest of our
configurations over the fastest of each library, and the geometric mean.

    python benchmarks/reach_table.py EXPERIMENT... [--rows 128-8192] [--squares | --no-squares]

Prints Markdown. Intervals are those of ``gemmetry compare``: from rounds that were taken in turns,
all ratios of the table judged together. A second ratio appears where the provider ``cublaslt`` was
measured as well: the fastest of cuBLASLt's own proposals.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from gemmetry.dispatches.analysis import (
    ComparisonEvidence,
    evidence_of,
    fastest_per_provider,
    geometric_mean,
    group_by_problem,
)
from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import Outcome
from gemmetry.domain.record import Record, ResultSet
from gemmetry.engine.experiment import Experiment
from gemmetry.statistics.comparison import compare as judge_pairs

LIBRARIES = ("torch", "cublaslt")


@dataclass(frozen=True)
class Product:
    """The fastest dispatches of one product."""

    ours: Record
    evidence: dict[str, ComparisonEvidence]
    """Library -> it as the base, and ours."""

    @property
    def shape(self) -> tuple[int, int, int]:
        m, n, k, _ = parse_operation(self.ours.operation).matmul_shape
        return m, n, k


def products(results: ResultSet, own: str) -> Iterator[Product]:
    """Those of which `own` and a library were measured."""
    measured = (one for one in results.records if one.outcome is Outcome.OK)
    for group in group_by_problem(measured).values():
        best = fastest_per_provider(group)
        if own in best:
            found = {
                library: evidence_of(results, best[library], results, best[own])
                for library in LIBRARIES
                if library in best
            }
            evidence = {name: one for name, one in found.items() if one is not None}
            if evidence:
                yield Product(best[own], evidence)


def table(found: list[Product]) -> str:
    """Markdown, with the geometric means below."""
    libraries = [one for one in LIBRARIES if any(one in product.evidence for product in found)]
    heads = "".join(f" {one} µs | × {one} |" for one in libraries)
    lines = [
        f"| M×N×K | ours µs |{heads} configuration |",
        "|---|---|" + "---|---|" * len(libraries) + "---|",
    ]
    pairs = [(product, name) for product in found for name in product.evidence]
    judged = judge_pairs([product.evidence[name] for product, name in pairs])
    ratios: dict[str, list[float]] = {name: [] for name in libraries}
    cells: dict[tuple[int, str], str] = {}
    for (product, name), one in zip(pairs, judged, strict=True):
        ratio = 1 / one.ratio
        ratios[name].append(ratio)
        interval = "n/a"
        if one.interval is not None:
            interval = f"{1 / one.interval[1]:.3f}–{1 / one.interval[0]:.3f}"
        library = product.evidence[name].before.measurement
        assert library is not None  # Without one there is no evidence.
        cells[id(product), name] = f" {library.median_ns / 1e3:.4g} | {ratio:.3f} ({interval}) |"
    for product in found:
        ours = product.ours
        assert ours.measurement is not None
        row = "".join(cells.get((id(product), name), " – | – |") for name in libraries)
        lines.append(
            f"| {'×'.join(map(str, product.shape))} | {ours.measurement.median_ns / 1e3:.4g} |"
            f"{row} `{ours.configuration}` |"
        )
    means = ", ".join(f"{geometric_mean(ratios[name]):.3f} × {name}" for name in libraries)
    return "\n".join([*lines, "", f"Geometric mean of {len(found)} products: {means}."])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiments", nargs="+", type=Path)
    parser.add_argument("--own", default="cuda", help="the provider of our kernels")
    parser.add_argument("--rows", default="1-1000000", help="which M, from-to")
    parser.add_argument("--squares", action=argparse.BooleanOptionalAction, help="only, or none")
    options = parser.parse_args()
    first, last = map(int, options.rows.split("-"))
    found: list[Product] = []
    for path in options.experiments:
        with closing(Experiment.open(path)) as opened:
            found += products(opened.result_set(), options.own)
    chosen = [
        product
        for product in found
        if first <= product.shape[0] <= last
        and options.squares in (None, len(set(product.shape)) == 1)
    ]
    if not chosen:
        parser.error("no product of this choice was measured with our kernels and a library")
    print(table(chosen))


if __name__ == "__main__":
    main()
