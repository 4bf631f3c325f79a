"""``--brief --json``: at most 4 KB, with what matters most, of the largest inputs at hand."""

from __future__ import annotations

import json
import string
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tuned import record, results

from gemmetry.dispatches.comparison import compare
from gemmetry.dispatches.comparison_report import comparison_files
from gemmetry.results.json_text import brief, encoded

DATA = Path(__file__).parents[1] / "data"
TRACES = [str(DATA / name) for name in ("straggler_h200", "traces", "reports/20", "reports/33")]
COUNTERS = DATA / "counters"


def _checked(text: str) -> dict:
    assert len(text.encode()) <= 4096
    return json.loads(text)


@pytest.mark.parametrize(
    "report", ["planted_h200/planted_severe", "planted_h200/gemms", "mi300x_vcopy_pmc_perf"]
)
def test_diagnoses(report, cli) -> None:
    command = ("counters", "diagnose", str(COUNTERS / f"{report}.csv.gz"))
    found = _checked(cli(*command, "--brief", "--json", status=0).stdout)
    whole = cli.json(*command)["launches"]
    times = Counter()
    for one in whole:
        times[one["kernel"]] += one["duration_ns"] or 0
    first = found["launches"][0]
    assert times[first["kernel"]] == max(times.values())
    verdicts = {one["verdict"]["id"] for one in whole if one["kernel"] == first["kernel"]}
    assert first["verdict"]["id"] in verdicts
    listed = len(found["launches"]) + found["more_kernels"]
    assert listed + found.get("left_out", {}).get("launches", 0) >= len(times)


def test_reports_of_traces(cli) -> None:
    ended = cli("trace", "report", *TRACES, "--no-cache", "--brief", "--json")
    found = _checked(ended.stdout)
    assert cli("trace", "report", *TRACES, "--no-cache", "-o", "all.json").status == 0
    whole = json.loads(Path("all.json").read_text())["sheets"]
    assert found["counts"]["traces"] == len(whole["summary"])
    longest = max(whole["summary"], key=lambda one: one["window_us"])
    assert found["traces"][0]["file"].endswith(Path(longest["file"]).name)
    assert found["traces"][0]["exposed_comm_us"] == longest["exposed_comm_us"]
    assert found["steps"][0]["window_us"] == max(one["window_us"] for one in whole["steps"])
    assert found["gemms"][0]["sum_us"] == max(one["sum_us"] for one in whole["gemms"])
    assert found["moments"][0]["length_us"] == found["steps"][0]["window_us"]
    assert found["stragglers"][0]["last_share"] == 1
    assert cli("trace", "report", *TRACES, "--json").status == 2  # no file, and not brief


def test_comparisons() -> None:
    rng = np.random.default_rng(1)
    names = [f"matmul_{n}x{n}x64_f32t_f32t_f32t" for n in range(64, 464)]
    times = rng.uniform(1e5, 1e6, len(names))
    sides = [
        results(*(record(name, "torch", "default", ns * (1.5 if is_new and name == names[7] else 1))
                  for name, ns in zip(names, times, strict=True)))
        for is_new in (False, True)
    ]  # fmt: skip
    files = comparison_files(compare(sides))
    found = files.brief()
    assert len(encoded(found)) < 4096
    candidate = found["candidates"][0]
    assert found["has_regression"] and sum(candidate["verdicts"].values()) == len(names)
    assert candidate["changes"][0]["dispatch"].startswith(names[7])
    assert candidate["changes"][0]["is_regression"]
    left_out = found["left_out"]["candidates.changes"]
    assert left_out + len(candidate["changes"]) == len(names)


def test_a_comparison_on_the_command_line(experiments) -> None:
    ended = experiments("compare", "a", "b", "--undecided", "pass", "--brief", "--json")
    assert _checked(ended.stdout)["candidates"][0]["changes"]


def test_a_verdict_on_the_command_line(cli) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    Path("mine.py").write_text("def f(a, b):\n    return 0 * (a @ b)\n")
    ended = cli("judge", "mine.py:f", "--task", "matmul_8x8x8_f32t_f32t_f32t", "--no-time",
                "--level", "quick", "--brief", "--json", status=1)  # fmt: skip
    found = _checked(ended.stdout)
    assert (found["verdict"], type(found["checks"])) == ("wrong", int), "checks are counted only"


_TEXTS = st.text(st.characters(exclude_categories=()), max_size=3000)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-(2**60), 2**60) | _TEXTS,
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(_TEXTS, inner, max_size=60),
    max_leaves=60,
)


@given(st.dictionaries(st.text(string.printable, max_size=5000), _VALUES, max_size=100))
@settings(max_examples=30, deadline=None)
def test_any_document_fits(document) -> None:
    found = brief(document)
    assert len(encoded(found)) < 4096
    if len(encoded(document)) < 1000 and all(len(name) < 60 for name in document):
        assert len(found) >= min(len(document), 1)
