"""What the number becomes when the method is changed: one way after the other to fool oneself.

    python benchmarks/method_table.py --device cuda:0
    python benchmarks/method_table.py --device cpu --shapes 512x512x512,1024x1024x1024,1x4096x4096

torch's default product is profiled once a method, each run in a fresh worker process, and the first
method (gemmetry's defaults) again at the end: how far that is from 1 is what the table can resolve.
Nothing is verified, so that nothing but the method differs.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping
from typing import Any

import timing_proof as proof

from gemmetry.dispatches.profile import profile
from gemmetry.dispatches.results import Results
from gemmetry.domain.record import Record

SHAPES = "8192x8192x8192,4096x4096x4096,16x8192x8192,1x4096x4096,256x256x256"

EVERYWHERE: dict[str, dict[str, Any]] = {
    "one warm set of buffers": {"cold_cache": False},
    "zeros": {"distribution": "zeros"},
    "normal": {"distribution": "normal"},
    "integers": {"distribution": "integers"},
    "uniform, signed": {"distribution": "uniform_signed"},
    "1 s of warm-up": {"warmup_time": "1s"},
    "10 s of warm-up": {"warmup_time": "10s"},
    "sustained": {"regime": "sustained"},
}

ON_A_GPU: dict[str, dict[str, Any]] = {
    "launches back to back": {"launches": "back_to_back"},
    "graphs": {"timing_method": "graph"},
    "events": {"timing_method": "events"},
    "events, one launch per sample": {"timing_method": "events", "dispatch_repeat_count": 1},
}

DEFAULT = "default"
AGAIN = "default, again"


def methods(device: str) -> dict[str, dict[str, Any]]:
    """Name -> what is set; the defaults first and last."""
    on_device = {} if device == "cpu" else ON_A_GPU
    return {DEFAULT: {}, **EVERYWHERE, **on_device, AGAIN: {}}


def measure(options: argparse.Namespace, name: str, changed: Mapping[str, Any]) -> Results:
    """One run over all shapes."""
    return profile(
        {"providers": [{"name": "torch", "configurations": ["default"]}]},
        experiment=proof.folder(options) / f"method-{name.replace(' ', '-').replace(',', '')}",
        fresh=True,
        shapes=options.shapes,
        dtypes=proof.dtype(options),
        device=options.device,
        verification_enabled=False,
        time_budget=options.time_budget,
        processes=options.processes,
        **changed,
    )


def cell(record: Record | None, reference: Record, *, is_first: bool) -> str:
    """The time with its interval in the first row, elsewhere the ratio to it; the clock where it
    is known."""
    if record is None or record.measurement is None or reference.measurement is None:
        return "–"
    measured = record.measurement
    half_width = proof.half_width_text(measured)
    if is_first:
        text = f"{measured.median_ns / 1e3:.4g} µs {half_width}"
    else:
        text = f"{measured.median_ns / reference.measurement.median_ns:.3f} {half_width}"
    clock = measured.telemetry.sm_clock_hz
    return text if clock is None else f"{text}, {clock / 1e6:.0f} MHz"


def table(found: Mapping[str, Results]) -> str:
    """Methods down, operations across."""
    first = list(found[DEFAULT])
    shapes = [record.operation.split("_")[1] for record in first]
    lines = [f"| method | {' | '.join(shapes)} |", "|---" * (len(shapes) + 1) + "|"]
    for name, results in found.items():
        by_operation = {record.operation: record for record in results}
        cells = [
            cell(by_operation.get(one.operation), one, is_first=name == DEFAULT) for one in first
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def resolution(found: Mapping[str, Results]) -> float:
    """Median difference between the first and the last run of the same method."""
    again = {record.operation: record.measurement for record in found[AGAIN]}
    apart = []
    for record in found[DEFAULT]:
        one, other = record.measurement, again.get(record.operation)
        if one is not None and other is not None:
            apart.append(abs(other.median_ns / one.median_ns - 1))
    return statistics.median(apart)


def run(options: argparse.Namespace) -> dict[str, object]:
    """Measure by every method and print the table."""
    found = {
        name: measure(options, name, changed)
        for name, changed in methods(options.device).items()
        if not options.only or name in (DEFAULT, AGAIN, *options.only.split(";"))
    }
    print(f"method table: {proof.environment_line(found[DEFAULT])}\n\n{table(found)}\n")
    print(f"The same method twice: {resolution(found):.2%} apart in the median.")
    return {
        "environment": proof.environment_line(found[DEFAULT]),
        "methods": {
            name: {"set": methods(options.device)[name], "results": results.to_dicts()}
            for name, results in found.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    proof.add_common(parser)
    parser.add_argument("--shapes", default=SHAPES, help="MxNxK,MxNxK")
    parser.add_argument("--time-budget", default="2s", help="of one dispatch")
    parser.add_argument("--only", default="", help="methods to try, separated by semicolons")
    options = parser.parse_args()
    proof.write_json(options.json, run(options))


if __name__ == "__main__":
    main()
