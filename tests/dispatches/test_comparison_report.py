"""What is shown of comparisons: golden outputs, one file for each comparison."""

from __future__ import annotations

import csv
import dataclasses
import io
import json

import polars
import pytest
from tests.dispatches.conftest import noisy_samples

from gemmetry.dispatches.comparison import compare
from gemmetry.dispatches.comparison_report import (
    comparison_document,
    comparison_files,
    comparison_junit,
    print_comparison,
)
from gemmetry.domain.errors import RequestError
from gemmetry.domain.record import Environment, ResultSet

NAMES = [f"matmul_{n}x{n}x{n}_f32t_f32t_f32t" for n in (64, 128)]
ENVIRONMENTS = {"old": Environment(driver="550"), "new": Environment(driver="560 [bold]")}
SAMPLES = {f"{NAMES[0]}_default": 3, f"{NAMES[1]}_default": 0}


def _sets(before, after, **fields):
    made = {"samples": noisy_samples, **fields}
    return [ResultSet(title="old", records=before, **made),
            ResultSet(title="new", records=after, **made)]  # fmt: skip


def _contradicted(make):
    """Experiments of which another process disturbed half of the first one's rounds."""
    record = make(NAMES[0])
    ns = record.measurement.median_ns
    slow = {turn: [ns * (0.02 if turn % 2 else 1.0)] * 20 for turn in range(1, 40)}
    fast = {turn: [ns * 0.02] * 20 for turn in range(100, 140)}
    one, other = _sets([record], [make(NAMES[0], measured={"median_ns": 0.02 * ns})])
    return [dataclasses.replace(one, rounds=lambda _: slow),
            dataclasses.replace(other, rounds=lambda _: fast)]  # fmt: skip


def _quotients(make):
    """Medians 2 % apart are enough: anyone can divide the two numbers next to the ratio."""
    records = [make(name) for name in NAMES]
    first = records[0].measurement.median_ns

    def rounds(record):
        base = record.measurement.median_ns if record.dispatch == records[1].dispatch else first
        return {turn: [base * (1 + turn % 3 / 1000)] * 5 for turn in range(40)}

    slower = make(NAMES[0], measured={"median_ns": 1.02 * first})
    return _sets(records, [slower, records[1]], rounds=rounds)


def _many(make):
    records = [make(f"matmul_{n}x8x8_f32t_f32t_f32t") for n in range(1, 31)]
    return _sets(records, records)


MADE = {"contradicted": _contradicted, "quotients": _quotients, "many": _many}
FIELDS = {
    "changes": {"environments": ENVIRONMENTS},
    "few": {"samples": lambda one: noisy_samples(one)[: SAMPLES.get(one.dispatch, 40)]},
    "inputs": {}, "threshold": {},
}  # fmt: skip
OPTIONS = {"inputs": {"allow_different_inputs": True}, "threshold": {"threshold": 0.005}}


@pytest.fixture
def sets(make_record, records_of):
    """The experiments of a case, from ``experiments.txt`` unless their rounds are made."""

    def of(case):
        if case in MADE:
            return MADE[case](make_record)
        both = (records_of(f"comparison: {case}, {side}") for side in ("before", "after"))
        return _sets(*both, **FIELDS[case])

    return of


@pytest.mark.parametrize("case", [*MADE, *FIELDS])
def test_a_comparison(case, sets, console_text, golden, dumped, page_text, tmp_path):
    found = compare(sets(case), **OPTIONS.get(case, {}))
    for suffix in ("md", "csv", "html"):
        comparison_files(found).write(tmp_path / f"c.{suffix}")
    texts = [console_text(lambda console, width=width: print_comparison(found, console), width)
             for width in (80, 160)]  # fmt: skip
    assert all(len(line) <= 80 for line in texts[0].splitlines() if line.startswith("torch"))
    document = comparison_document(found)
    changes = [one for candidate in document["candidates"] for one in candidate.pop("changes")]
    parts = [*texts, repr(found), dumped(document, *changes),
             comparison_junit(found).decode(),
             comparison_junit(found, undecided_fails=False).decode(),
             (tmp_path / "c.md").read_text(),
             page_text((tmp_path / "c.html").read_text())]  # fmt: skip
    golden(f"comparison_{case}", "\f\n".join(parts))
    rows = list(csv.DictReader(io.StringIO((tmp_path / "c.csv").read_text())))
    assert [row["verdict"] for row in rows] == [one["verdict"] for one in changes]


def test_files(sets, tmp_path):
    files = comparison_files(compare(sets("changes")))
    for suffix in ("json", "xlsx", "parquet", "html"):
        files.write(tmp_path / f"c.{suffix}")
    assert json.loads((tmp_path / "c.json").read_text())["threshold"] == 0.02
    assert "ok → wrong" in (tmp_path / "c.html").read_text()
    frame = polars.read_parquet(tmp_path / "c.parquet")
    assert frame["is_regression"].to_list() == [False, True, False, True]
    with pytest.raises(RequestError, match=r"\.csv, \.json"):
        files.write(tmp_path / "c.pdf")


def test_an_experiment_is_recognised_in_a_copy_and_behind_a_link(make_record, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    made = {"created": "2026-01-01T00:00:00+00:00", "command": "gemmetry x"}
    one, _ = _sets([make_record(NAMES[0])], [], path=str(tmp_path / "a"), **made)
    copy = dataclasses.replace(one, path=str(tmp_path / "copy"))
    linked = dataclasses.replace(one, path=str(tmp_path / "link"), command="")
    again = dataclasses.replace(copy, created="2026-01-02T00:00:00+00:00")
    for other, is_same in ((one, True), (copy, True), (linked, True), (again, False)):
        (candidate,) = comparison_document(compare([one, other]))["candidates"]
        assert candidate["same_experiment"] is is_same
