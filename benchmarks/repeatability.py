"""Do times repeat? Two experiments of the same dispatches, median by median.

    gemmetry profile --spec benchmarks/repeatability.yaml --experiment first
    gemmetry profile --spec benchmarks/repeatability.yaml --experiment second
    python benchmarks/repeatability.py first second

The second run is made an hour later or on another machine of the same kind. Printed are both
medians of each dispatch with their intervals and marks, how far they are apart, and the share that
agrees within 1 % or that the tool itself marked in one of the runs.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import timing_proof as proof

from gemmetry.dispatches.results import load
from gemmetry.domain.record import Measurement

AGREEMENT = 0.01
"""Medians that differ by no more than this agree."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """One dispatch in both runs."""

    provider: str
    operation: str
    configuration: str
    first: Measurement
    second: Measurement

    @property
    def apart(self) -> float:
        """Second median over the first, minus 1."""
        return self.second.median_ns / self.first.median_ns - 1

    @property
    def agrees(self) -> bool:
        return abs(self.apart) <= AGREEMENT

    @property
    def marks(self) -> tuple[str, ...]:
        """Kinds of marks that either run carries, in their order."""
        kinds = [mark.partition(":")[0] for mark in (*self.first.marks, *self.second.marks)]
        return tuple(dict.fromkeys(kinds))

    def row(self) -> str:
        """A row of the Markdown table."""
        sides = (
            f"{one.median_ns / 1e3:.4g} {proof.half_width_text(one)}"
            for one in (self.first, self.second)
        )
        _, shape, lhs = self.operation.split("_")[:3]
        return (
            f"| {shape} {lhs} | {self.provider} `{self.configuration}` | {' | '.join(sides)} "
            f"| {self.apart:+.2%} "
            f"| {'yes' if self.agrees else 'no'} | {', '.join(self.marks) or '–'} |"
        )


def repeats(first: Path, second: Path) -> list[Repeat]:
    """Dispatches that both experiments measured.

    Raises:
        SystemExit: a dispatch was not measured in both.
    """
    sides = []
    for path in (first, second):
        measured: dict[tuple[str, str, str], Measurement] = {}
        for record in load(path):
            if record.measurement is None:
                raise SystemExit(f"{path}: {record.dispatch} has no time: {record.reason}")
            key = (record.provider, record.operation, record.configuration)
            measured[key] = record.measurement
        sides.append(measured)
    if different := sides[0].keys() ^ sides[1].keys():
        raise SystemExit(f"measured in one experiment alone: {sorted(different)}")
    return [Repeat(*key, sides[0][key], sides[1][key]) for key in sides[0]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("first", type=Path, help="an experiment")
    parser.add_argument("second", type=Path, help="another of the same spec")
    parser.add_argument("--json", type=Path, help="where to write everything that was found")
    options = parser.parse_args()
    found = repeats(options.first, options.second)
    environments = [proof.environment_line(load(path)) for path in (options.first, options.second)]
    agree = sum(one.agrees for one in found)
    settled = sum(one.agrees or bool(one.marks) for one in found)
    print(f"first: {environments[0]}\nsecond: {environments[1]}\n")
    print("| product | dispatch | first µs | second µs | apart | within 1 % | marks |")
    print("|---|---|---|---|---|---|---|")
    for one in found:
        print(one.row())
    print(
        f"\nwithin {AGREEMENT:.0%}: {agree} of {len(found)}; within {AGREEMENT:.0%} or marked by "
        f"the tool: {settled} of {len(found)}"
    )
    proof.write_json(
        options.json,
        {"environments": environments, "within": agree, "within_or_marked": settled,
         "repeats": found},
    )  # fmt: skip


if __name__ == "__main__":
    main()
