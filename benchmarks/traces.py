"""Reading and reporting traces: seconds and memory, alongside TraceLens and HTA in one run.

    python benchmarks/traces.py --trace h100_owlv2.json.gz --sweep sweep_h200x4 --large 1,10 \
        --tracelens TRACELENS_ENVIRONMENT/bin --hta HTA_ENVIRONMENT/bin

Every command is a process of its own, start-up counted, with `--no-cache` unless the row says
cached; commands take turns, and the median of ``--runs`` rounds is reported. Python's bytecode is
there, as in an installation. ``--large`` makes traces of so many GB by repeating the trace in time,
as Kineto writes them (all of the host, then all of the GPU), and reads them once each. TraceLens
(AMD-AGI/TraceLens) and HTA (HolisticTraceAnalysis) want environments of their own; without them
their rows are left out. Limits are those that the project set itself.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

GEMMETRY = [sys.executable, "-m", "gemmetry"]
GPU_CATEGORIES = {"kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation"}
HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
found = TraceAnalysis(trace_files={0: sys.argv[1]})
tables = [
    found.get_temporal_breakdown(visualize=False),
    *found.get_gpu_kernel_breakdown(visualize=False),
    found.get_comm_comp_overlap(visualize=False),
    found.get_idle_time_breakdown(ranks=[0], visualize=False)[0],
    found.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)[0],
    found.get_queue_length_summary(ranks=[0]),
    found.get_memory_bw_summary(ranks=[0]),
]
for number, table in enumerate(tables):
    if table is not None:
        table.to_csv(f"{sys.argv[2]}_{number}.csv")
"""
"""All of HTA's tables of one trace, as csv (it writes no workbook)."""

METER = """
import json, os, subprocess, sys, time
began = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
seconds = time.perf_counter() - began
status = os.waitstatus_to_exitcode(status)
print(json.dumps([status, seconds, used.ru_utime + used.ru_stime, used.ru_maxrss]))
"""
"""Runs a command out of a small process: Linux counts the memory of the one that starts it too."""

TRACELENS_FLAGS = [
    "--include_unlinked_kernels", "--short_kernel_study", "--short_kernel_threshold_us", "50",
    "--topk_ops", "100", "--enable_kernel_summary", "--topk_roofline_ops", "100",
]  # fmt: skip
"""Those of the sweep analysis document's script."""


@dataclass
class Row:
    """One command, its limits, and what it took."""

    what: str
    command: Sequence[str]
    limit_s: float | None = None
    limit_mb: float | None = None
    runs: int = 1
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)
    failure: str = ""

    def measure(self, environment: Mapping[str, str]) -> None:
        """Run the command once."""
        meter = [sys.executable, "-c", METER, *self.command]
        run = subprocess.run(meter, env=environment, capture_output=True)
        status, seconds, cpu_seconds, kilobytes = json.loads(run.stdout)
        self.seconds.append(seconds)
        self.cpu_seconds.append(cpu_seconds)
        self.memory_mb.append(kilobytes * 1024 / 1e6)
        if status:
            lines = run.stderr.decode("utf-8", "replace").strip().splitlines()
            self.failure = f"exit status {status}: {lines[-1] if lines else ''}"

    def line(self) -> str:
        """The row of the table."""
        if self.failure:
            return f"| {self.what} | {self.failure[:100]} | | | | |"
        limits = [f"{self.limit_s:.3g} s" if self.limit_s else "",
                  f"{self.limit_mb:g} MB" if self.limit_mb else ""]  # fmt: skip
        spread = f"{min(self.seconds):.2f}–{max(self.seconds):.2f}" if self.runs > 1 else ""
        return (
            f"| {self.what} | {statistics.median(self.seconds):.2f} | {spread} | "
            f"{statistics.median(self.cpu_seconds):.2f} | {max(self.memory_mb):.0f} | "
            f"{', '.join(filter(None, limits))} |"
        )


def unpacked(trace: Path, folder: Path) -> Path:
    """`trace` as plain JSON."""
    if trace.suffix != ".gz":
        return trace
    plain = folder / trace.stem
    plain.write_bytes(gzip.decompress(trace.read_bytes()))
    return plain


def repeat(trace: Path, gigabytes: float, path: Path) -> None:
    """Write `trace` again and again behind itself in time until the file has so many GB (10⁹)."""
    document = json.loads(trace.read_bytes())
    events = document.pop("traceEvents")
    timed = [event for event in events if "ts" in event]
    span = max(event["ts"] + event.get("dur", 0) for event in timed)
    span -= min(event["ts"] for event in timed)
    numbers = 1 + max(_largest_number(event) for event in events)
    on_gpu = [event for event in timed if event.get("cat") in GPU_CATEGORIES]
    on_host = [event for event in timed if event.get("cat") not in GPU_CATEGORIES]
    encoder = msgspec.json.Encoder()
    copies = max(1, round(gigabytes * 1e9 / (sum(len(encoder.encode(e)) + 2 for e in timed))))
    with path.open("wb") as file:
        file.write(encoder.encode(document)[:-1] + b',\n"traceEvents": [\n')
        for event in events:
            if "ts" not in event:
                file.write(encoder.encode(event) + b",\n")
        for part in (on_host, on_gpu):
            for copy in range(copies):
                is_last = part is on_gpu and copy == copies - 1
                moved = (_moved(e, copy * (span + 100), copy * numbers) for e in part)
                lines = map(encoder.encode, moved)
                file.write(b",\n".join(lines) + (b"\n]}\n" if is_last else b",\n"))


def _numbers(event: dict[str, Any]) -> Iterable[tuple[dict[str, Any], str]]:
    arguments = event.get("args")
    if isinstance(arguments, dict):
        for key in ("correlation", "External id", "Record function id"):
            if isinstance(arguments.get(key), int):
                yield arguments, key
    if isinstance(event.get("id"), int):
        yield event, "id"


def _largest_number(event: dict[str, Any]) -> int:
    return max((int(place[key]) for place, key in _numbers(event)), default=0)


def _moved(event: dict[str, Any], by_us: float, by_number: int) -> dict[str, Any]:
    moved = dict(event, ts=round(event["ts"] + by_us, 3))
    if isinstance(event.get("args"), dict):
        moved["args"] = dict(event["args"])
    for place, key in _numbers(moved):
        place[key] += by_number
    return moved


def rows_of_trace(plain: Path, folder: Path, options: argparse.Namespace) -> list[Row]:
    """The report of one trace, ours and others', and the summary."""
    runs = options.runs
    report = [*GEMMETRY, "trace", "report", str(plain), "--no-cache"]
    summary = [*GEMMETRY, "trace", "summary", str(plain), "--json"]
    rows = [
        Row("gemmetry, xlsx", [*report, "-o", f"{folder}/ours.xlsx"], 0.9, 260, runs),
        Row("gemmetry, html", [*report, "-o", f"{folder}/ours.html"], runs=runs),
        Row("gemmetry, summary", [*summary, "--no-cache"], runs=runs),
        Row("gemmetry, summary, cached", summary, 0.2, None, runs),
        Row(
            "import numpy, typer, msgspec",
            [sys.executable, "-c", "import numpy, typer, msgspec"],
            runs=runs,
        ),
    ]
    if options.tracelens is not None:
        program = options.tracelens / "TraceLens_generate_perf_report_pytorch"
        rows.append(Row("TraceLens, xlsx", [
            str(program), "--profile_json_path", str(plain), "--output_xlsx_path",
            f"{folder}/theirs.xlsx", *TRACELENS_FLAGS], runs=runs))  # fmt: skip
    if options.hta is not None:
        rows.append(Row("HTA, all tables, csv", [
            str(options.hta / "python"), "-c", HTA, str(plain), f"{folder}/hta"],
            runs=runs))  # fmt: skip
    return rows


def rows_of_sweep(sweep: Path, folder: Path, runs: int) -> list[Row]:
    """A sweep's jobs together."""
    traces = sorted(sweep.rglob("rank*.pt.trace.json.gz"))
    what = f"{len({path.parent for path in traces})} jobs, {len(traces)} traces"
    command, no_cache = [*GEMMETRY, "trace"], [str(sweep), "--no-cache"]
    report = [*command, "report", *no_cache, "-o", f"{folder}/sweep.xlsx"]
    collectives = [*command, "collectives", *no_cache, "--json"]
    return [
        Row(f"gemmetry, xlsx, {what}", report, 8, None, runs),
        Row(f"gemmetry, collectives, {what}", collectives, 8, None, runs),
    ]


def rows_of_large(path: Path, gigabytes: float, folder: Path) -> list[Row]:
    """One trace that is repeated in time."""
    command, name = [*GEMMETRY, "trace"], f"{gigabytes:.1f} GB"
    report = [*command, "report", str(path), "--no-cache", "-o", f"{folder}/large.xlsx"]
    summary = [*command, "summary", str(path), "--no-cache", "--json"]
    return [
        Row(f"gemmetry, xlsx, {name}", report, 14 * gigabytes, 600),
        Row(f"gemmetry, summary, {name}", summary, 14 * gigabytes, 600),
    ]


def measure_in_turns(rows: Sequence[Row], environment: Mapping[str, str]) -> None:
    """Run each row as often as it asks, in turns; one more run before, to fill file caches and
    to make what "cached" reads."""
    for row in rows:
        if row.runs > 1:
            Row(row.what, row.command).measure(environment)
    for turn in range(max(row.runs for row in rows)):
        for row in rows:
            if turn < row.runs and not row.failure:
                row.measure(environment)
                print(f"  {row.what}: {row.seconds[-1]:.2f} s", file=sys.stderr)


def print_table(rows: Sequence[Row]) -> None:
    print("| what | wall s | range | CPU s | peak RSS MB | limit |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        print(row.line())
    print()


def print_factors(rows: Sequence[Row]) -> None:
    """How much longer the others take than our workbook, turn by turn: what else the host does
    slows both down."""
    took = {row.what: row.seconds for row in rows if not row.failure}
    for name, least in (("TraceLens, xlsx", 10), ("HTA, all tables, csv", 4)):
        if name in took:
            pairs = zip(took[name], took["gemmetry, xlsx"], strict=True)
            factors = [theirs / ours for theirs, ours in pairs]
            print(
                f"{name} takes {statistics.median(factors):.1f} times as long as our workbook "
                f"({min(factors):.1f}–{max(factors):.1f}; limit: {least})"
            )


def versions(options: argparse.Namespace) -> list[str]:
    """Of what is compared."""
    found = [f"gemmetry {version('gemmetry')}"]
    for name, folder in (("TraceLens", options.tracelens), ("HolisticTraceAnalysis", options.hta)):
        if folder is not None:
            ask = f"from importlib.metadata import version; print(version({name!r}))"
            done = subprocess.run([folder / "python", "-c", ask], capture_output=True, text=True)
            found.append(f"{name} {done.stdout.strip()}")
    return found


def environment_in(folder: Path) -> dict[str, str]:
    """Of the commands: caches and bytecode go to `folder`."""
    places = {"XDG_CACHE_HOME": folder / "caches", "PYTHONPYCACHEPREFIX": folder / "bytecode"}
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return kept | {name: str(place) for name, place in places.items()}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--sweep", type=Path)
    parser.add_argument("--large", default="", help="GB of the repeated traces, with commas")
    parser.add_argument("--tracelens", type=Path, help="bin folder of its environment")
    parser.add_argument("--hta", type=Path, help="bin folder of its environment")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}")
    print(", ".join(versions(options)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = environment_in(folder)
        plain = unpacked(options.trace, folder)
        print(f"{plain.name}: {plain.stat().st_size / 1e6:.0f} MB\n")
        rows = rows_of_trace(plain, folder, options)
        measure_in_turns(rows, environment)
        print_table(rows)
        print_factors(rows)
        if options.sweep:
            rows = rows_of_sweep(options.sweep, folder, options.runs)
            measure_in_turns(rows, environment)
            print_table(rows)
        for gigabytes in map(float, filter(None, options.large.split(","))):
            path = folder / "large.json"
            repeat(plain, gigabytes, path)
            size = path.stat().st_size / 1e9
            rows = rows_of_large(path, size, folder)
            measure_in_turns(rows, environment)
            print_table(rows)
            path.unlink()


if __name__ == "__main__":
    main()
