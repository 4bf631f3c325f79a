"""Tests of ``gemmetry verify self-test``, with real mutants of the host: a share of them, as
``.ci/run`` runs all."""

from __future__ import annotations

import json
from pathlib import Path

DRAWN = "m?6_[a-f]*,m80_rows_in_*,ok?3_s*"
"""A few, by number, among them two for which only the level paranoid has a check; each is killed in
tests/selftest by the check that is meant for it."""


def test_host_mutants_are_killed_and_no_right_kernel_flagged(cli):
    document = cli.json("verify", "self-test", "--vehicle", "host", "--mutants", DRAWN, "-o",
                        "drawn.json", "--experiment", "e")  # fmt: skip
    assert json.loads(Path("drawn.json").read_text()) == document
    assert document["survivors"] == []
    assert document["false_alarms"] == []
    assert [item["name"] for item in document["not_run"] if item["is_broken"]] == []
    assert document["mutants_total"] == document["mutants_killed"] >= 8
    assert document["correct_total"] >= 3
    reasons = {item["name"]: item["reason"] for item in document["not_run"]}
    paranoid = {name for name, reason in reasons.items() if "level paranoid" in reason}
    assert paranoid == {"m56_fixed_wait_for_partner_host", "m80_rows_in_16_bits_host"}
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
    # quick tries no tail shape, so that the dropped tail gets away with it.
    command = ("verify", "self-test", "--vehicle", "host", "--mutants", "m01*,m05*,m47_b*,ok01*",
               "-o", page, "--level", "quick", "--experiment", "e")  # fmt: skip
    ended = cli(*command, status=1)
    for shown in ("Mutants", "m01 returns zeros", "What other checks let through", "SURVIVES",
                  "2 of 3 mutants killed"):  # fmt: skip
        assert shown in ended.stdout
    assert "level quick" in page.read_text()
    assert str(page) in ended.stderr
    again = cli(*command, status=1)
    assert again.stdout == ended.stdout and "4 from an earlier run are kept" in again.stderr
    assert "kept" not in cli(*command, "--fresh", status=1).stderr
