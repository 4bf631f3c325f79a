from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from gemmetry.traces.figures import Bar, bars_html, short_paths, time_bars
from gemmetry.traces.gemms import common_folder

HOSTILE = "<script>alert(1)</script>"


def _widths(page):
    return [float(share) for share in re.findall(r'<i [^>]*--share:([\d.]+)"', page)]


def test_bars_are_as_long_as_their_parts():
    bars = [Bar("a", (("gemm", 3.0), ("idle", 1.0)), "4"), Bar("b", (("gemm", 2.0),), "2")]
    page = bars_html(bars, "lengths")
    first, second, third = _widths(page)
    assert first == pytest.approx(3 * second, rel=1e-3)
    assert third == pytest.approx(first * 2 / 3, rel=1e-3)
    root = ET.fromstring(page)
    assert root.get("aria-label") == "lengths"


def test_the_whole_sets_the_scale_and_values_have_room():
    half = bars_html([Bar("a", (("gemm", 0.5),), "v" * 10)], "t", 1.0)
    whole = bars_html([Bar("a", (("gemm", 1.0),), "v" * 10)], "t", 1.0)
    assert _widths(half)[0] == pytest.approx(_widths(whole)[0] / 2, abs=0.01)
    assert _widths(whole) == [1.0]
    assert "--room:10ch" in whole


def test_texts_are_escaped():
    page = bars_html([Bar(HOSTILE, (('"><script>', 1.0),), HOSTILE, "\x1b" + HOSTILE)], HOSTILE)
    assert "<script" not in page
    assert "\x1b" not in page
    ET.fromstring(page)


def test_parts_of_time_add_up_to_the_window(job_report):
    bars = time_bars(job_report.summaries)
    assert len(bars) == 4
    for bar in bars:
        assert sum(length for _, length in bar.parts) == pytest.approx(1)
    assert [bar.label for bar in bars] == ["rank0", "rank1", "rank2", "rank3"]


def test_a_window_shorter_than_a_millisecond_is_not_nothing(job_report):
    short = dataclasses.replace(job_report.summaries[0], window_ns=41_500)
    assert [bar.value for bar in time_bars([short])] == ["41.5 µs"]


def test_both_ends_of_a_long_label_are_kept():
    page = bars_html([Bar("first_" + "x" * 80 + "_last", (("gemm", 1.0),), "")], "t")
    (label,) = re.findall(r'class="label"[^>]*>([^<]*)<', page)
    assert label.startswith("first_x")
    assert label.endswith("x_last")
    assert len(label) == 44


@pytest.mark.parametrize(
    ("paths", "folder"),
    [(["/a/b/x.json", "/a/b/c/y.json"], "/a/b"), (["a/x.json"], "a"), (["x.json", "b/y.json"], "."),
     (["/a/x.json", "a/x.json"], "."), ([], ".")],
)  # fmt: skip
def test_the_common_folder_is_the_deepest(paths, folder):
    assert common_folder([Path(path) for path in paths]) == Path(folder)


def test_paths_are_labelled_by_what_differs():
    paths = [Path(f"/a/{c}/x/rank{r}.json.gz") for c in "bc" for r in (0, 1)]
    assert list(short_paths(paths).values()) == ["b/rank0", "b/rank1", "c/rank0", "c/rank1"]
    mixed = [Path("a/b.json"), Path("c.csv")]
    assert list(short_paths(mixed).values()) == ["a/b.json", "c.csv"]
    assert short_paths([Path("a/b.json")]) == {Path("a/b.json"): "b"}
