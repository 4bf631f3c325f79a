"""What the proofs of timing share: pairs of dispatches, verdicts on them, rates, tables.

Used by ``aa_test.py``, ``planted_slowdown.py`` and ``rivals.py``; docs/measurement.md, section
"Proof", says what they show.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proportions import lower_bound, upper_bound

from gemmetry.dispatches.analysis import relative_half_width
from gemmetry.dispatches.comparison import compare
from gemmetry.dispatches.profile import profile
from gemmetry.dispatches.results import Results
from gemmetry.domain.operation import parse_dtype
from gemmetry.domain.record import Measurement, Record, ResultSet
from gemmetry.engine.slots import ASSUMED_CACHE_BYTES
from gemmetry.measurement.launches import CACHE_FACTOR, MAX_SETS
from gemmetry.statistics.comparison import Comparison, Difference, Pairing

KERNEL = Path(__file__).with_name("slowed_product.py")

NOMINAL = 0.02
"""Level of every test here: the permitted share of false alarms (1 - confidence)."""

NAME = "matmul_1x1x1_pair"
"""Both sides of a pair get one name, because comparisons join dispatches by name."""

Configuration = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two measured dispatches of one experiment and what the comparison says of them."""

    operation: str
    ratio: float
    """median(second) / median(first)."""
    low: float | None
    high: float | None
    """Of the ratio's interval; None where too little was measured for one."""
    verdict: Difference
    bare_verdict: Difference
    """Of the same test without a least relevant difference."""
    half_width: float | None
    """Of the first side's median, relative to it."""
    pairing: Pairing
    """``paired rounds``, unless the time budget ended before there were enough of them."""


@dataclass(frozen=True, slots=True)
class Rate:
    """How often one method's rule concluded "slower", "faster" or either."""

    method: str
    rule: str
    what: str
    """What was compared: operation, format, device."""
    counted: int
    pairs: int
    seconds_per_side: float
    """Wall-clock time spent on one side of a pair, all set-up included."""

    @property
    def share(self) -> float:
        return self.counted / self.pairs

    def row(self, *, is_alarm: bool) -> str:
        """A row of the Markdown table: of false alarms (bound from above) or of power (below)."""
        bound = upper_bound if is_alarm else lower_bound
        sign = "≤" if is_alarm else "≥"
        return (
            f"| {self.method} | {self.rule} | {self.what} | {self.counted} of {self.pairs} "
            f"| {self.share:.1%} | {sign} {bound(self.counted, self.pairs):.1%} "
            f"| {self.seconds_per_side:.2g} s |"
        )


COMPARE = "verdict of compare"
TEST_ALONE = "the test alone, no least relevant difference"


def rates(
    pairs: Sequence[Pair], wanted: Sequence[Difference], what: str, seconds_per_side: float
) -> list[Rate]:
    """How often both of gemmetry's verdicts are among `wanted`."""
    verdicts = {
        COMPARE: [pair.verdict for pair in pairs],
        TEST_ALONE: [pair.bare_verdict for pair in pairs],
    }
    return [
        Rate(
            "gemmetry", rule, what, sum(one in wanted for one in each), len(pairs), seconds_per_side
        )
        for rule, each in verdicts.items()
    ]


HEADER = "\n".join(
    (
        "| method | rule | what | counted | rate | 95 % bound | time a side |",
        "|---|---|---|---|---|---|---|",
    )
)


def measure(
    configurations: Sequence[Configuration],
    *,
    shape: str,
    dtype: str,
    device: str,
    group: int,
    settings: Mapping[str, Any],
    experiment: Path,
) -> tuple[Results, float]:
    """Measure the kernel's `configurations`, at most `group` of them side by side; results and
    seconds.

    Nothing is verified: what is computed is torch's own product, and time is what is looked at.
    """
    provider = {
        "name": "user",
        "options": {
            "kernel": f"{KERNEL}:product",
            "configurations": [dict(values) for values in configurations],
            "arrays": "torch",
        },
    }
    began = time.perf_counter()
    results = profile(
        {"providers": [provider]},
        experiment=experiment,
        fresh=True,
        shapes=shape,
        dtypes=dtype,
        device=device,
        verification_enabled=False,
        memory_budget=group_memory(shape, dtype, group) * int(settings["processes"]),
        **settings,
    )
    return results, time.perf_counter() - began


def group_memory(shape: str, dtype: str, group: int) -> int:
    """The --memory-budget at which the engine opens `group` dispatches at a time, and no more, in
    one process."""
    m, n, k = (int(side) for side in shape.split("x"))
    one_set = (m * k + k * n + m * n) * parse_dtype(dtype).storage_bits // 8
    sets = min(max(2, math.ceil(CACHE_FACTOR * ASSUMED_CACHE_BYTES / one_set)), MAX_SETS)
    return group * one_set * sets


def judge(results: Results, first: Record, second: Record, confidence: float) -> Pair:
    """The verdict of ``gemmetry compare`` on `second` compared with `first`, alone."""
    measured = first.measurement
    assert measured is not None
    sides = [_alone(results.result_set, first), _alone(results.result_set, second)]
    found = _comparison(sides, confidence, None)
    return Pair(
        operation=first.operation,
        ratio=found.ratio,
        low=found.ratio_low,
        high=found.ratio_high,
        verdict=found.verdict,
        bare_verdict=_comparison(sides, confidence, 0.0).verdict,
        half_width=relative_half_width(measured),
        pairing=found.pairing,
    )


def _comparison(
    sides: Sequence[ResultSet], confidence: float, threshold: float | None
) -> Comparison:
    found = compare(sides, confidence=confidence, threshold=threshold)
    (change,) = found.candidates[0].changes
    if change.comparison is None:
        raise SystemExit(f"{change.before.operation} cannot be compared: {change.note}")
    return change.comparison


def _alone(result_set: ResultSet, record: Record) -> ResultSet:
    """A view that holds one record, under the name that all pairs share."""
    return dataclasses.replace(
        result_set,
        records=[dataclasses.replace(record, dispatch=NAME)],
        samples=lambda _: result_set.samples(record),
        rounds=lambda _: result_set.rounds(record),
    )


def judge_pairs(
    results: Results, pairs: Iterable[tuple[Configuration, Configuration]], confidence: float
) -> list[Pair]:
    """The comparison of each pair of configurations that were measured.

    Raises:
        SystemExit: a dispatch has no measurement.
    """
    by_values = {
        tuple(sorted(record.configuration_parameters.items())): record for record in results
    }
    if results.failures:
        raise SystemExit(f"{results.failures[0].dispatch}: {results.failures[0].reason}")
    return [
        judge(
            results,
            by_values[tuple(sorted(first.items()))],
            by_values[tuple(sorted(second.items()))],
            confidence,
        )
        for first, second in pairs
    ]


def not_paired(pairs: Sequence[Pair]) -> str:
    """How many comparisons rest on something else than paired rounds; "" if none does."""
    count = sum(pair.pairing is not Pairing.ROUNDS for pair in pairs)
    return f"; {count} of {len(pairs)} had too few rounds to be paired" if count else ""


def half_width_text(measured: Measurement) -> str:
    """``± 0.5%`` or ``± n/a``."""
    width = relative_half_width(measured)
    return "± n/a" if width is None else f"± {width:.1%}"


def sampled_seconds(results: Results) -> float:
    """Median over the dispatches of the time that their samples take together."""
    return statistics.median(
        sum(results.samples(record)) * record.measurement.launches_per_sample / 1e9
        for record in results
        if record.measurement is not None
    )


def environment_line(results: Results) -> str:
    """What stood behind the numbers, in one line."""
    record = results[0]
    environment = results.result_set.environments[record.environment_id]
    packages = environment.packages
    parts = [
        record.device,
        *environment.device_ids,
        f"driver {environment.driver}" if environment.driver else "",
        environment.cpu,
        f"{environment.cpu_count} processors",
        f"Python {environment.python}",
        *(f"{name} {packages[name]}" for name in ("torch", "triton") if name in packages),
        results.result_set.created[:10],
    ]
    return ", ".join(part for part in parts if part)


def add_common(parser: argparse.ArgumentParser) -> None:
    """Options that every proof has."""
    parser.add_argument("--device", default="cuda:0", help="cuda:0 or cpu")
    parser.add_argument("--dtype", default="", help="default: bf16 on a GPU, f32 on a CPU")
    parser.add_argument(
        "--processes", type=int, default=1, help="that share the rounds of each dispatch"
    )
    parser.add_argument("--json", type=Path, help="where to write everything that was found")
    parser.add_argument("--experiment", type=Path, help="where the experiments are kept")


def folder(options: argparse.Namespace) -> Path:
    """Where experiments go: as requested, else a fresh temporary folder."""
    return options.experiment or Path(tempfile.mkdtemp(prefix="gemmetry-proof-"))


def dtype(options: argparse.Namespace) -> str:
    """The requested format, or the device's usual one."""
    return options.dtype or ("f32" if options.device == "cpu" else "bf16")


def write_json(path: Path | None, document: Mapping[str, Any]) -> None:
    """Write `document`, dataclasses included, where a path was given."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, default=_plain, indent=1) + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)
