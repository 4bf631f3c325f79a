"""``gemmetry tune --simulate`` on searches of the null provider."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

FACTORS = [f"factor_0p{n}" for n in range(711, 738) if n % 10]


@pytest.fixture
def searched(cli):
    """`cli` next to the folder t, which holds an exhaustive search of two shapes."""
    Path("spec.yaml").write_text(
        "shapes: 64x64x64, 32x32x32\nproviders:\n  - name: 'null'\n    options:\n"
        f"      configurations: [{', '.join(FACTORS)}, wrong]\n"
    )
    ended = cli("tune", "--spec", "spec.yaml", "--device", "null", "--strategy", "exhaustive",
                "--finalists", "0", "--experiment", "t")  # fmt: skip
    assert ended.status == 0, ended.stderr
    return cli


def test_strategies_are_compared_on_a_stored_search(searched):
    ended = searched("tune", "--simulate", "t", "--strategy", "exhaustive,random", "--runs", "4",
                     "--evaluations", "10%,100%", "--json")  # fmt: skip
    assert ended.status == 0, ended.stderr
    rows = json.loads(ended.stdout)["strategies"]
    assert [(row["strategy"], row["budget"]) for row in rows] == [
        ("exhaustive", 0.1), ("exhaustive", 1), ("random", 0.1), ("random", 1),
    ]  # fmt: skip
    for row in rows:
        assert 0 < row["lowest"] <= row["mean"] <= row["highest"] <= 1
    assert rows[0]["evaluations"] == 3
    assert rows[3]["mean"] > 0.999
    assert rows[2]["mean"] < rows[3]["mean"]


def test_a_compact_file_gives_the_same_results(searched):
    written = searched("tune", "--simulate", "t", "-o", "space.json", "--format", "space")
    assert written.status == 0, written.stderr
    arguments = ("--strategy", "random", "--runs", "3", "--json")
    stored, compact = (
        json.loads(searched("tune", "--simulate", source, *arguments).stdout)
        for source in ("t", "space.json")
    )
    for one, other in zip(stored["strategies"], compact["strategies"], strict=True):
        assert one["mean"] == pytest.approx(other["mean"], rel=1e-4)


def test_a_search_that_is_not_finished_is_left_out(cli):
    Path("spec.yaml").write_text("providers:\n  - name: 'null'\nshapes: 8x8x8\n")
    ended = cli("tune", "--spec", "spec.yaml", "--device", "null", "--experiment", "t",
                "--finalists", "0")  # fmt: skip
    assert ended.status == 0
    small = cli("tune", "--simulate", "t")
    assert small.status == 2
    assert "20 configurations with a time" in small.stderr


def test_a_search_that_did_not_try_everything_is_not_taken_for_exhaustive(cli):
    names = ", ".join(FACTORS)
    Path("spec.yaml").write_text(
        "shapes: 64x64x64\nproviders:\n  - name: 'null'\n    options:\n"
        f"      configurations: [{names}]\n"
    )
    ended = cli("tune", "--spec", "spec.yaml", "--device", "null", "--strategy", "random",
                "--evaluations", "22", "--finalists", "0", "--experiment", "part")  # fmt: skip
    assert ended.status == 0, ended.stderr
    shown = cli("tune", "--simulate", "part", "--strategy", "random", "--runs", "2")
    assert shown.status == 0, shown.stderr
    assert "strategy random, which does not try all" in shown.stderr
    assert "22 configurations that it tried" in shown.stdout
