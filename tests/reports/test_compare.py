from __future__ import annotations

import csv
import dataclasses
import io
import json
from pathlib import Path

import numpy as np
import polars
import pytest

from gemmetry.analysis.comparison import compare
from gemmetry.domain.environment import Environment
from gemmetry.domain.errors import RequestError
from gemmetry.domain.outcome import Outcome
from gemmetry.domain.resultset import ResultSet
from gemmetry.reports.compare import comparison_document, print_comparison, write_comparison

EXPECTED = Path(__file__).parent / "expected"
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
    write_comparison(comparison, tmp_path / "c.json")
    assert json.loads((tmp_path / "c.json").read_text())["threshold"] == 0.02
    write_comparison(comparison, tmp_path / "c.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "c.csv").read_text())))
    assert [row["verdict"] for row in rows] == [
        "no difference shown", "slower", "faster", "ok → wrong",
    ]  # fmt: skip
    assert rows[3]["note"] == "bad"
    write_comparison(comparison, tmp_path / "c.md")
    assert "| torch:" in (tmp_path / "c.md").read_text()
    for suffix in ("xlsx", "parquet", "html"):
        write_comparison(comparison, tmp_path / f"c.{suffix}")
    assert "ok → wrong" in (tmp_path / "c.html").read_text()
    frame = polars.read_parquet(tmp_path / "c.parquet")
    assert frame["is_regression"].to_list() == [False, True, False, True]
    with pytest.raises(RequestError, match=r"\.csv, \.json"):
        write_comparison(comparison, tmp_path / "c.pdf")


def test_long_lists_without_difference_are_counted(make_record, console_text):
    records = [make_record(f"matmul_{n}x8x8_f32t_f32t_f32t") for n in range(1, 31)]
    same = ResultSet(title="same", records=records, samples=_samples)
    text = console_text(lambda c: print_comparison(compare([same, same]), c), width=120)
    assert text.count("no difference shown\n") == 21
    assert "… and 10 more without a shown difference" in text


def test_differing_inputs_are_said_aloud(make_record, console_text):
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
    assert "B/A is the typical ratio of one round of B to one of A, which is not B divided" in text
    same = compare([one, one])
    text = console_text(lambda console: print_comparison(same, console), width=300)
    assert "typical ratio" not in text


def test_a_comparison_is_short_in_a_notebook(comparison):
    assert repr(comparison) == (
        "<ExperimentComparison with old: new: 1 faster, 1 slower, 1 no difference shown>"
    )
