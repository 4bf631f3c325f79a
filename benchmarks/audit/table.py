"""The page docs/audit.md from the rows of an audit.

    python benchmarks/audit/table.py > docs/audit.md

Every number of the page is computed from the rows, ``h100.json`` unless a file is named.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from audit import LATE
from classify import CLASSES

from gemmetry.dispatches.analysis import geometric_mean

VERDICTS = (
    "right",
    "right at f16 only",
    "wrong at both",
    "not finished",
    "did not run",
    "not built",
    "not reached",
)

ROWS = Path(__file__).with_name("h100.json")
DEVICE = "H100 80GB HBM3 (driver 580.159.04, CUDA 13.0, torch 2.11.0, 2026-11-27)"

_PAGE = """# An audit of released kernels

This page is generated: `python benchmarks/audit/table.py > docs/audit.md`.

For readers who want to know what verification finds in kernels of others. CUDA-L2 is a public
release of 1,000 GEMM kernels for the H100, each for one shape, all of them called kernels "with
32-bit accumulator". Its own check draws inputs of 0 and 1 and leaves out results above 2047, so
that sums in f16 are exact. Here {count} of them, drawn at random within classes of their text, were
built and judged on one {device}.

## What was found

{summary}

*Right*: every check of [verification](verification.md) passed with sums in f32. *Right at f16
only*: one failed, and all of them pass for a kernel that is declared to accumulate in f16. *Not
finished*: one of the two verifications took longer than its limit, of 45 to 120 s with several at
once. *Did not run*: it crashed or refused its own shape. *Not reached*: the time was over first.
× is the time of cuBLASLt's best proposal over the kernel's own, a geometric mean of those that
could be timed, with their number; above 1 the kernel is faster.

Checks that failed at both, with the number of kernels: {failures}.

Most kernels with a stream of their own have no time, as the timed stream does not wait for their
work. The column *µs* then says `wrong`, where less time passed than any right kernel takes, or
`launch_error`, where the device was still busy when the timed stream had ended.

## Method

* Classes are regular expressions over the text without comments (`benchmarks/audit/classify.py`).
  Left out before drawing: kernels that read both forms of B, or that the release calls with larger
  operands.
* nvcc builds each with the release's options for `sm_90a`. Launches on the default stream go to the
  current one, so that this habit is not judged; streams of their own stay.
* `gemmetry verify run` judges each in processes of its own, at both accumulators, with bounds from
  the shape and the formats. An order of summation that changes is allowed.
* `gemmetry profile` times all, interleaved with torch and `cublaslt:best`, by graphs where a kernel
  can be captured; else with events (column *clock*), which include the time for which a call waits.

```sh
python benchmarks/audit/audit.py CUDA-L2/kernels/h100_F32F16F16F32 --cutlass CUTLASS \\
  -o benchmarks/audit/h100.json
```

CUDA-L2 is the commit dbe0177, CUTLASS the folder `source` of the package `nvidia-cutlass` 4.2.0.

## All kernels

{rows}
"""


def verdict(row: dict[str, Any]) -> str:
    """One of :data:`VERDICTS`."""
    if not row["built"]:
        return "not reached" if LATE in row.get("log", LATE) else "not built"
    if "f32" not in row or "f16" not in row:
        return "not reached"
    f32, f16 = row["f32"]["outcome"], row["f16"]["outcome"]
    if "timeout" in (f32, f16):
        return "not finished"
    if {f32, f16} - {"ok", "wrong"}:
        return "did not run"
    return {"ok": "right"}.get(f32) or {"ok": "right at f16 only"}.get(f16, "wrong at both")


def speed(row: dict[str, Any], rival: str) -> float | None:
    """Time of `rival` over the kernel's own; None where one was not timed."""
    times = [row.get(name, {}).get("median_ns") for name in (rival, "user")]
    return None if None in times else times[0] / times[1]


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """A row for each class: how many of its kernels have each verdict, and their mean speed."""
    lines = [
        _line(["class of the text", "drawn", *VERDICTS, "× cuBLASLt"]),
        "|---" * (len(VERDICTS) + 3) + "|",
    ]
    for kind in (*CLASSES, None):
        of_kind = [row for row in rows if kind in (row["kind"], None)]
        if of_kind:
            counts = Counter(map(verdict, of_kind))
            cells = [str(counts[one] or "") for one in VERDICTS]
            ratios = [ratio for row in of_kind if (ratio := speed(row, "cublaslt"))]
            mean = f"{geometric_mean(ratios):.3f} ({len(ratios)})" if ratios else ""
            lines.append(_line([kind or "all", str(len(of_kind)), *cells, mean]))
    return "\n".join(lines)


def failures(rows: Sequence[dict[str, Any]]) -> str:
    """Which checks failed at f16, and for how many kernels: what no accumulator explains."""
    counts = Counter(
        name
        for row in rows
        if verdict(row) == "wrong at both"
        for name in {text.partition(":")[0] for text in row["f16"]["checks_failed"]}
    )
    return ", ".join(f"`{name}` {count}" for name, count in counts.most_common()) or "none"


def details(rows: Sequence[dict[str, Any]]) -> str:
    """A row for each kernel."""
    heads = [
        "M×N×K",
        "class",
        "f32",
        "f16",
        "accuracy class",
        "µs",
        "× cuBLASLt",
        "× torch",
        "clock",
    ]
    lines = [_line(heads), "|---" * len(heads) + "|"]
    for row in sorted(rows, key=lambda row: (CLASSES.index(row["kind"]), _sizes(row))):
        found = [row.get(name, {}) for name in ("f32", "f16")]
        classes = [one.get("accuracy_class") for one in found]
        user = row.get("user", {})
        own, clock, timed = user.get("median_ns"), user.get("method"), user.get("outcome", "")
        ratios = [speed(row, rival) for rival in ("cublaslt", "torch")]
        cells = [
            "×".join(map(str, _sizes(row))), row["kind"], *map(_outcome, found),
            next(filter(None, classes), ""), timed if own is None else f"{own / 1e3:.4g}",
            *("" if ratio is None else f"{ratio:.3f}" for ratio in ratios), clock or "",
        ]  # fmt: skip
        lines.append(_line(cells))
    return "\n".join(lines)


def _outcome(found: dict[str, Any]) -> str:
    """The outcome, for a wrong one with the names of the first checks that failed."""
    names = [text.partition(":")[0] for text in found.get("checks_failed", ())]
    more = f" +{len(names) - 2}" if len(names) > 2 else ""
    return " ".join([found.get("outcome", ""), ", ".join(names[:2]) + more]).strip()


def _sizes(row: dict[str, Any]) -> list[int]:
    return [int(size) for size in row["name"].split("_")]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def page(rows: Sequence[dict[str, Any]], device: str) -> str:
    """The page, in Markdown."""
    judged = [row for row in rows if verdict(row) not in ("not built", "not reached")]
    found = {"summary": summary(rows), "failures": failures(rows), "rows": details(rows)}
    return _PAGE.format(count=len(judged), device=device, **found)


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path, nargs="?", default=ROWS)
    parser.add_argument("--device", default=DEVICE, help="the GPU, the versions and the date")
    options = parser.parse_args()
    print(page(json.loads(options.rows.read_text()), options.device), end="")


if __name__ == "__main__":
    main()
