"""Shards of a plan, merged, are the experiment of the whole plan but for times."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmetry.domain.dispatch import Shard, parse_shard
from gemmetry.domain.errors import RequestError
from gemmetry.engine.schema import read_manifest

WHOLE = ("profile", "--providers", "null", "--device", "null", "--dtypes", "f32",
         "--shapes", "8x8x8,16x16x16,32x8x8,8x8x64", "--max-samples", "5")  # fmt: skip


@given(st.text(max_size=30), st.integers(1, 50))
def test_each_name_belongs_to_one_shard(name, count):
    assert sum(Shard(number, count).takes(name) for number in range(1, count + 1)) == 1


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "1/0", "a/b", "1/2/3", "-1/2"])
def test_shards_that_do_not_exist(text):
    with pytest.raises(RequestError):
        parse_shard(text)


@pytest.fixture
def measure(cli):
    """Runs the plan, or a shard of it, into a folder."""

    def run(folder, *options):
        ended = cli(*WHOLE, *options, "--experiment", folder, status=0)
        return ended

    return run


def _content(folder):
    """What is in a journal, without times and samples."""
    with closing(sqlite3.connect(f"{folder}/journal.sqlite")) as journal:
        tables = dict.fromkeys(("operations", "configurations", "lanes", "plan"), "*")
        tables["records"] = "id, target, device, provider, dispatch, environment, outcome, seed"
        tables["rounds"] = "DISTINCT dispatch, environment"
        return {
            name: sorted(journal.execute(f"SELECT {columns} FROM {name}"))
            for name, columns in tables.items()
        }


def test_shards_merge_into_the_experiment_of_the_whole_plan(cli, measure):
    measure("whole")
    for number in (1, 2, 3):
        measure(f"part{number}", "--shard", f"{number}/3")
    cli("merge", "part2", "part3", "part1", "--into", "merged", status=0)
    assert _content("merged") == _content("whole")
    one, other = read_manifest(Path("merged")), read_manifest(Path("whole"))
    assert (one.plan_hash, one.name, one.document) == (other.plan_hash, other.name, other.document)
    again = measure("merged")
    assert "8 from an earlier run are kept" in again.stderr


def test_a_shard_without_operations_says_so(cli):
    one = ("profile", "--providers", "null", "--shapes", "8x8x8", "--dtypes", "f32")
    warned = []
    for number in (1, 2, 3):
        ended = cli(*one, "--layouts", "nn", "--shard", f"{number}/3", "--experiment", f"p{number}")
        warned.append(f"Shard {number}/3" in ended.stderr)
        assert ("0 dispatches" in ended.stderr) == warned[-1]
        assert ended.status == 0
    assert sum(warned) == 2


def test_a_shard_that_was_extended_merges(cli, measure):
    """The numbers of what was added meet those of other shards."""
    for number in (1, 2):
        measure(f"part{number}", "--shard", f"{number}/2")
        longer = f"{WHOLE[8]},16x8x8,8x16x16"
        measure(f"part{number}", "--shard", f"{number}/2", "--shapes", longer)
    assert cli("merge", "part1", "part2", "--into", "merged").status == 0
    content = _content("merged")
    assert len(content["operations"]) == 6
    assert len(content["records"]) == len(content["plan"]) == 12


@pytest.mark.parametrize(
    ("others", "folders", "named"),
    [
        ((), ("part1", "part2"), "3/3"),
        (("--seed", "7", "--shard", "3/3"), ("part1", "part2", "other"), "seed"),
        (("--shard", "2/3"), ("part1", "part2", "other"), "other"),
        (("--shard", "2/2"), ("part1", "other"), "other"),
        (("--seed", "42"), ("part1", "other"), "other"),
    ],
)
def test_what_is_not_all_of_a_plan_is_refused(cli, measure, others, folders, named):
    for number in (1, 2):
        measure(f"part{number}", "--shard", f"{number}/3")
    if others:
        measure("other", *others)
    refused = cli("merge", *folders, "--into", "merged", status=2)
    assert named in refused.stderr
    assert not Path("merged").exists()


def test_shards_of_a_training_sweep_merge(cli):
    """The folders of points do not meet, and the same command continues what is merged."""
    sweep = ("sweep", "run", "--channels", "1,2,3,4", "--library", "gloo", "--command",
             "sh -c 'exit 3'")  # fmt: skip
    for number in (1, 2):
        assert cli(*sweep, "--shard", f"{number}/2", "-o", f"part{number}").status == 1
    refused = cli("merge", "part2", "part2", "--into", "merged")
    assert refused.status == 2 and not Path("merged").exists()
    merged = cli("merge", "part1", "part2", "--into", "merged", "--json", status=0)
    assert json.loads(merged.stdout)["points"] == 4
    assert len(list(Path("merged").rglob("point.json"))) == 4
    again = cli(*sweep, "-o", "merged", "--dry-run", "--json", status=0)
    assert len(json.loads(again.stdout)["points"]) == 4


def test_an_experiment_that_agents_measured_is_read(cli, measure):
    measure("e")
    with Path("e/spec.yaml").open("a") as spec:
        spec.write("executor: slurm\nlisten: 0.0.0.0\nagents: 2\n")
    assert cli("report", "e").status == 0
    again = cli("profile", "--spec", "e/spec.yaml")
    assert again.status == 2 and "listen" in again.stderr
