"""Alternate runs of two versions, compared by run: what the GitHub action does after them.

::

    python -m gemmetry.judge.runs --before base-*.json --after head-*.json --summary table.md

Files are those of ``pytest --kernel-benchmark-json`` (or of pytest-benchmark), or what
``gemmetry profile -o run.json`` writes. Run number i of both sides is a pair, as one followed the
other. Exit status 1 if something is slower, 2 if the files cannot be compared.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmetry.domain.errors import GemmetryError, RequestError
from gemmetry.domain.rows import Row, fact, table
from gemmetry.domain.units import format_change, format_interval

THRESHOLD = 0.02
"""Default difference up to which a change counts as none."""

Times = Mapping[str, Sequence[Sequence[float]]]
"""Name of what was timed -> rounds -> durations in ns."""


class Change(Row):
    """What one test or dispatch shows over all runs."""

    name: str = fact("test or dispatch")
    change: str = fact("time after over time before, with its interval")
    runs: int = fact("pairs of runs")
    verdict: str = fact("faster, slower, no difference shown, undecided, or gone")


def read_times(path: Path) -> dict[str, list[list[float]]]:
    """The times in a file.

    Raises:
        RequestError: it cannot be read, or is of another kind.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if "benchmarks" in document:
            return {entry["fullname"]: _rounds(entry) for entry in document["benchmarks"]}
        return {
            f"{record['provider']} {record['dispatch']} {record['target']}": [
                [float(record["median_ns"])]
            ]
            for record in document["records"]
            if record["median_ns"] is not None
        }
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RequestError(
            f"{path} holds no times ({type(error).__name__}: {error})",
            hint="Write it by `pytest --kernel-benchmark-json`, or `gemmetry profile -o run.json`.",
        ) from error


def _rounds(entry: Mapping[str, Any]) -> list[list[float]]:
    """Rounds in ns; pytest-benchmark's own files have single samples in seconds."""
    if "rounds_ns" in entry["extra_info"]:
        return [[float(ns) for ns in turn] for turn in entry["extra_info"]["rounds_ns"]]
    return [[1e9 * float(value)] for value in entry["stats"]["data"]]


def compare_runs(
    before: Sequence[Times], after: Sequence[Times], threshold: float = THRESHOLD
) -> list[Change]:
    """Compare what all runs timed, by run.

    Args:
        before, after: the runs of both sides; those of the same place were adjacent.
    """
    from gemmetry.statistics.comparison import compare_rounds, is_testable

    names = list(dict.fromkeys(name for run in (*before, *after) for name in run))
    sides = {name: (_by_run(name, before), _by_run(name, after)) for name in names}
    family = sum(is_testable(len(a), len(b), by_rounds=True) for a, b in sides.values())
    found = []
    for name, (a, b) in sides.items():
        if not a or not b:
            verdict = "gone" if a else "new"
            found.append(Change(name=name, change="", runs=0, verdict=verdict))
            continue
        compared = compare_rounds(a, b, relevant=threshold, family=max(1, family))
        interval = format_interval(compared.ratio_low, compared.ratio_high)
        change = format_change(compared.ratio) + (f" ({interval})" if interval else "")
        runs = len(a.keys() & b.keys())
        found.append(Change(name=name, change=change, runs=runs, verdict=str(compared.verdict)))
    return found


def _by_run(name: str, runs: Sequence[Times]) -> dict[int, list[float]]:
    """Run -> all samples of `name`."""
    return {
        place: [ns for turn in run[name] for ns in turn]
        for place, run in enumerate(runs)
        if any(run.get(name, ()))
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", type=Path, nargs="+", required=True, metavar="FILE")
    parser.add_argument("--after", type=Path, nargs="+", required=True, metavar="FILE")
    parser.add_argument("--threshold", type=float, default=THRESHOLD, metavar="SHARE")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="append the table to it")
    options = parser.parse_args(arguments)
    try:
        before, after = (
            [read_times(path) for path in side] for side in (options.before, options.after)
        )
    except GemmetryError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    changes = compare_runs(before, after, options.threshold)
    if not changes:
        sys.stderr.write("error: the runs timed nothing\n")
        return 2
    from gemmetry.results.tables import markdown_text

    text = markdown_text([table("changes", Change, changes)])
    sys.stdout.write(text)
    if options.summary is not None:
        with options.summary.open("a", encoding="utf-8") as file:
            file.write(f"## Times of kernels\n\n{text}\n")
    return int(any(one.verdict == "slower" for one in changes))


if __name__ == "__main__":
    sys.exit(main())
