"""Tests of ``gemmetry verify self-test``, with the real mutants of the host."""

from __future__ import annotations

import json

import pytest

from gemmetry.api import self_test as module
from gemmetry.domain.outcome import Stage

PART = ("--vehicle", "host", "--mutants", "m01*,m05*,m47_b*,ok01*")


@pytest.fixture
def checked(cli, tmp_path, monkeypatch):
    """The self-test of all host mutants but the unseen ones, and its document. Verifying them takes
    most of a minute, since each is right or wrong in a way of its own."""
    # The mutant that hangs costs this long; the slowest of the others takes one second of processor
    # time.
    monkeypatch.setattr(module, "DEADLINES_S", {Stage.VERIFY: 10.0, Stage.MEASURE: 10.0})
    path = tmp_path / "all.json"
    ended = cli(
        "verify", "self-test", "--vehicle", "host", "--mutants", "m*,ok*", "--json", "-o", str(path)
    )
    document = json.loads(ended.stdout)
    assert json.loads(path.read_text()) == document
    return ended, document


def test_every_host_mutant_is_killed_and_no_right_kernel_flagged(checked):
    ended, document = checked
    assert document["survivors"] == []
    assert document["false_alarms"] == []
    assert [item["name"] for item in document["not_run"] if item["is_broken"]] == []
    assert ended.status == 0
    assert document["mutants_total"] == document["mutants_killed"] >= 40
    assert document["correct_total"] >= 14
    host = [item for item in document["not_run"] if item["vehicle"] == "host"]
    left = [item for item in host if not item["name"].startswith("u")]
    assert all("only the level paranoid has a check for it" in item["reason"] for item in left)
    assert [item["name"] for item in left] == [
        "m56_fixed_wait_for_partner_host",
        "m80_rows_in_16_bits_host",
    ]
    # A crash or an exception that nobody planned may be a broken emulation.
    for row in document["matrix"]:
        if row["is_bug"] and row["outcome"] != "wrong":
            assert row["outcome"] in row["planned"] or not row["planned"], row["name"]
    # Other harnesses' checks of the same results let real bugs through.
    assert document["rivals"]
    for score in document["rivals"].values():
        assert 0 < len(score["let_through"]) < score["asked"] <= document["mutants_total"]


def test_the_terminal_shows_matrix_score_and_rivals(cli, tmp_path):
    page = tmp_path / "m.md"
    ended = cli("verify", "self-test", *PART, "-o", str(page), "--level", "quick")
    assert "Mutants" in ended.stdout
    assert "m01 returns zeros" in ended.stdout
    assert "What other checks let through" in ended.stdout
    # quick tries no tail shape, so that the dropped tail gets away with it.
    assert ended.status == 1
    assert "SURVIVES" in ended.stdout
    assert "2 of 3 mutants killed" in ended.stdout
    assert "level quick" in page.read_text()
    assert str(page) in ended.stderr


def test_it_resumes_and_starts_over(cli, monkeypatch):
    monkeypatch.setattr(module, "DEADLINES_S", {Stage.VERIFY: 30.0})
    first = cli("verify", "self-test", *PART, "--json", "--experiment", "e")
    assert first.status == 0
    again = cli("verify", "self-test", *PART, "--json", "--experiment", "e")
    assert "4 from an earlier run are kept" in again.stderr
    fresh = cli("verify", "self-test", *PART, "--json", "--experiment", "e", "--fresh")
    assert "kept" not in fresh.stderr
    assert json.loads(again.stdout)["matrix"] == json.loads(first.stdout)["matrix"]


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (("--level", "sloppy"), "verification level"),
        (("--vehicle", "horse"), "carrier"),
        (("--mutants", "x99"), "x99"),
        (("-o", "matrix.docx"), "unknown suffix"),
    ],
)
def test_wrong_requests_end_with_2(cli, arguments, reported):
    ended = cli("verify", "self-test", *arguments)
    assert ended.status == 2
    assert reported in ended.stderr
