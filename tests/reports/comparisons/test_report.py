from __future__ import annotations

import csv
import dataclasses
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars
import pytest

from gemmetry.dispatches.comparison import compare
from gemmetry.dispatches.comparison_report import (
    comparison_document,
    comparison_files,
    comparison_junit,
    print_comparison,
)
from gemmetry.domain.errors import Outcome, RequestError
from gemmetry.domain.record import Environment, ResultSet

EXPECTED = Path(__file__).parents[1] / "expected"
NAMES = [f"matmul_{n}x{n}x{n}_f32t_f32t_f32t" for n in (64, 128, 256, 512)]


def _samples(record):
    noise = np.random.default_rng(7).normal(1.0, 0.01, 40)
    return [] if record.measurement is None else list(record.measurement.median_ns * noise)


@pytest.fixture
def comparison(make_record):
    old, new = Environment(driver="550"), Environment(driver="560 [bold]")
    before = [make_record(name, environment_id=old.id) for name in NAMES]
    speeds = (200.0, 150.0, 300.0, 200.0)
    after = [
        make_record(name, gflops=speed, environment_id=new.id)
        for name, speed in zip(NAMES, speeds, strict=True)
    ]
    after[3] = make_record(
        NAMES[3], outcome=Outcome.WRONG, reason="bad\nworse", environment_id=new.id
    )
    extra = make_record("matmul_8x8x8_f32t_f32t_f32t", environment_id=new.id)
    first = ResultSet(title="old", records=before, samples=_samples, environments={old.id: old})
    second = ResultSet(
        title="new", records=[*after, extra], samples=_samples, environments={new.id: new}
    )
    return compare([first, second])


def test_console_is_as_reviewed(comparison, console_text):
    text = console_text(lambda console: print_comparison(comparison, console), width=100)
    assert text == (EXPECTED / "comparison.txt").read_text(encoding="utf-8")


def test_narrow_consoles_keep_names_readable(comparison, console_text):
    text = console_text(lambda console: print_comparison(comparison, console), width=80)
    squeezed = text.replace("\n", "").replace(" ", "")
    assert "slower" in squeezed
    assert all(len(line) <= 80 for line in text.splitlines())


def test_document_is_json_with_every_key(comparison):
    document = json.loads(json.dumps(comparison_document(comparison), allow_nan=False))
    assert document["schema_version"] == 1
    assert document["has_regression"] is True
    candidate = document["candidates"][0]
    assert candidate["environment_differences"] == ["driver: 550 vs 560 [bold]"]
    assert candidate["only_in_candidate"] == ["torch:matmul_8x8x8_f32t_f32t_f32t_default"]
    assert len({tuple(change) for change in candidate["changes"]}) == 1
    lost = candidate["changes"][3]
    assert lost["verdict"] == "ok → wrong"
    assert lost["median_ns_after"] is None
    assert lost["is_regression"] is True


def test_files(comparison, tmp_path):
    comparison_files(comparison).write(tmp_path / "c.json")
    assert json.loads((tmp_path / "c.json").read_text())["threshold"] == 0.02
    comparison_files(comparison).write(tmp_path / "c.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "c.csv").read_text())))
    assert all(row["ratio_low"] for row in rows[:3])
    assert [row["verdict"] for row in rows] == [
        "no difference shown", "slower", "faster", "ok → wrong",
    ]  # fmt: skip
    assert rows[3]["note"] == "bad"
    comparison_files(comparison).write(tmp_path / "c.md")
    assert "| torch:" in (tmp_path / "c.md").read_text()
    for suffix in ("xlsx", "parquet", "html"):
        comparison_files(comparison).write(tmp_path / f"c.{suffix}")
    assert "ok → wrong" in (tmp_path / "c.html").read_text()
    frame = polars.read_parquet(tmp_path / "c.parquet")
    assert frame["is_regression"].to_list() == [False, True, False, True]
    with pytest.raises(RequestError, match=r"\.csv, \.json"):
        comparison_files(comparison).write(tmp_path / "c.pdf")


@pytest.fixture
def few(make_record):
    """Three dispatches: one with three samples per side that takes 85 times as long, one whose
    samples are missing, and one that is fine."""
    before = [make_record(name) for name in NAMES[:3]]
    after = [make_record(NAMES[0], gflops=200.0 / 85), *before[1:]]

    def samples(record):
        count = {before[0].dispatch: 3, before[1].dispatch: 0}.get(record.dispatch, 40)
        return _samples(record)[:count]

    first, second = (ResultSet(title=t, records=r, samples=samples)
                     for t, r in (("old", before), ("new", after)))  # fmt: skip
    return compare([first, second])


def test_what_is_undecided_is_seen_on_the_console(few, console_text):
    text = console_text(lambda console: print_comparison(few, console), width=80)
    assert "85.000           n/a undecided" in text
    assert "0 faster, 0 slower, 1 no difference shown, 2 undecided" in text
    assert "≷ 2 undecided: too little was measured to decide" in text
    assert "1 × 3 samples a side: at least 6 are needed; raise --time-budget," in text
    assert "1 × raw samples are missing, so there is no interval" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert repr(few).endswith("1 no difference shown, 2 undecided>")


def test_what_is_undecided_is_seen_in_every_file(few, tmp_path):
    document = comparison_document(few)
    assert (document["has_regression"], document["has_undecided"]) == (False, True)
    change = document["candidates"][0]["changes"][0]
    assert (change["verdict"], change["ratio_low"], change["ratio_high"]) == (
        "undecided", None, None,
    )  # fmt: skip
    for suffix in ("csv", "parquet", "xlsx", "md", "html", "xml"):
        comparison_files(few).write(tmp_path / f"c.{suffix}")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "c.csv").read_text())))
    assert [row["verdict"] for row in rows] == ["undecided", "undecided", "no difference shown"]
    assert [row["ratio_low"] == "" for row in rows] == [True, True, False]
    assert polars.read_parquet(tmp_path / "c.parquet")["ratio_low"].null_count() == 2
    for suffix in ("md", "html"):
        text = (tmp_path / f"c.{suffix}").read_text()
        assert "undecided" in text
        assert "n/a" in text


def test_a_regression_and_what_is_undecided_fail_in_junit(few, comparison, tmp_path):
    root = ElementTree.fromstring(comparison_junit(comparison))
    assert [root.get(key) for key in ("tests", "failures", "skipped")] == ["4", "2", "0"]
    kinds = [(one.get("type"), one.get("message")) for one in root.iter("failure")]
    assert kinds[0][0] == kinds[1][0] == "regression"
    assert kinds[0][1].startswith("slower: 1.333 times as long (interval 1.3")
    assert kinds[1] == ("regression", "ok → wrong")
    root = ElementTree.fromstring(comparison_junit(few))
    assert [root.get(key) for key in ("tests", "failures", "skipped")] == ["3", "2", "0"]
    [one, _] = root.iter("failure")
    assert (one.get("type"), one.get("message")) == (
        "undecided", "undecided: 85.000 times as long (interval n/a)",
    )  # fmt: skip
    assert "at least 6 are needed" in one.text
    comparison_files(few, undecided_fails=False).write(tmp_path / "c.xml")
    root = ElementTree.fromstring((tmp_path / "c.xml").read_bytes())
    assert [root.get(key) for key in ("tests", "failures", "skipped")] == ["3", "0", "2"]


def test_long_lists_without_difference_are_counted(make_record, console_text):
    records = [make_record(f"matmul_{n}x8x8_f32t_f32t_f32t") for n in range(1, 31)]
    same = ResultSet(title="same", records=records, samples=_samples)
    text = console_text(lambda c: print_comparison(compare([same, same]), c), width=120)
    assert text.count("no difference shown\n") == 21
    assert "… and 10 more without a shown difference" in text


def test_differing_inputs_are_reported(make_record, console_text):
    one = ResultSet(title="a", records=[make_record(NAMES[0])], samples=_samples)
    records = [dataclasses.replace(one.records[0], distribution="zeros")]
    other = dataclasses.replace(one, records=records)
    result = compare([one, other], allow_different_inputs=True)
    text = console_text(lambda console: print_comparison(result, console))
    assert "! inputs differ: distribution: offset_uniform vs zeros" in text


def test_a_ratio_by_rounds_that_the_medians_contradict_is_explained(make_record, console_text):
    """As on a machine that another process used during half of A's rounds."""
    record = make_record(NAMES[0])
    median = record.measurement.median_ns
    slow = {turn: [median * (0.02 if turn % 2 else 1.0)] * 20 for turn in range(1, 40)}
    fast = {turn: [median * 0.02] * 20 for turn in range(100, 140)}
    quick = dataclasses.replace(
        record, measurement=dataclasses.replace(record.measurement, median_ns=median * 0.02)
    )
    one = ResultSet(title="a", records=[record], samples=_samples, rounds=lambda r: slow)
    other = ResultSet(title="b", records=[quick], samples=_samples, rounds=lambda r: fast)
    comparison = compare([one, other])
    (change,) = comparison.candidates[0].changes
    assert change.ratio > 2 * 0.02
    text = console_text(lambda console: print_comparison(comparison, console), width=300)
    assert (
        "; * B/A is the typical ratio of one round of B to one of A, which is not B divided" in text
    )
    assert f"{change.ratio:.3f}* " in text, "the row says so itself"
    same = compare([one, one])
    text = console_text(lambda console: print_comparison(same, console), width=300)
    assert "typical ratio" not in text
    assert "*" not in text


def test_every_ratio_is_the_quotient_of_its_row_or_has_the_sign(make_record, console_text):
    """Medians 2 % apart are enough: anyone can divide the two numbers next to it."""
    records = [make_record(name) for name in NAMES[:2]]
    median = records[0].measurement.median_ns
    shifted = dataclasses.replace(
        records[0],
        measurement=dataclasses.replace(records[0].measurement, median_ns=median * 1.02),
    )

    def rounds(record):
        base = record.measurement.median_ns if record.dispatch == records[1].dispatch else median
        return {turn: [base * (1 + turn % 3 / 1000)] * 5 for turn in range(40)}

    one = ResultSet(title="a", records=records, samples=_samples, rounds=rounds)
    other = dataclasses.replace(one, title="b", records=[shifted, records[1]])
    comparison = compare([one, other])
    text = console_text(lambda console: print_comparison(comparison, console), width=100)
    rows = [line for line in text.splitlines() if line.startswith("torch")]
    assert sorted("1.000*" in row for row in rows) == [False, True]
    assert len({row.index("1.000") for row in rows}) == 1, "numbers stay below each other"


def test_a_regression_has_a_sign_of_its_own(comparison, console_text):
    """``!`` marks what weakens a result, here as in other tables; ▼ is a regression."""
    text = console_text(lambda console: print_comparison(comparison, console), width=100)
    assert [line.split()[-1] for line in text.splitlines() if "▼" in line] == ["▼", "▼", "ok"]
    assert [line.split()[1] for line in text.splitlines() if "!" in line] == ["the"]


def test_the_relevant_difference_of_regressions_is_shown_in_full(make_record, console_text):
    before, after = make_record(NAMES[0]), make_record(NAMES[0], gflops=150.0)
    sets = [ResultSet(title="x", records=[r], samples=_samples) for r in (before, after)]
    comparison = compare(sets, threshold=0.005)
    text = console_text(lambda console: print_comparison(comparison, console), width=100)
    assert "▼ 1 regression: slower by more than 0.5 %\n" in text


def test_an_experiment_against_itself_is_named_first(make_record, console_text, tmp_path):
    records = [make_record(name) for name in NAMES]
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    made = {"samples": _samples, "created": "2026-01-01T00:00:00+00:00", "command": "gemmetry x"}
    one = ResultSet(title="a", records=records, path=str(tmp_path / "a"), **made)
    copy = dataclasses.replace(one, path=str(tmp_path / "copy"))
    linked = dataclasses.replace(one, path=str(tmp_path / "link"), command="")
    for other in (one, copy, linked):
        same = compare([one, other])
        lines = console_text(lambda c, same=same: print_comparison(same, c), width=160)
        assert lines.splitlines()[1].startswith("! B is the same experiment as A: its samples are")
        assert comparison_document(same)["candidates"][0]["same_experiment"] is True
        comparison_files(same).write(tmp_path / "c.md")
        assert "- B is the same experiment as A" in (tmp_path / "c.md").read_text()
    again = dataclasses.replace(copy, created="2026-01-02T00:00:00+00:00")
    assert comparison_document(compare([one, again]))["candidates"][0]["same_experiment"] is False


def test_a_comparison_is_short_in_a_notebook(comparison):
    assert repr(comparison) == (
        "<ExperimentComparison with old: new: 1 faster, 1 slower, 1 no difference shown>"
    )
