"""Shards of a plan, merged, are the experiment of the whole plan but for times."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmetry.domain.dispatch import Shard, parse_shard
from gemmetry.domain.errors import RequestError
from gemmetry.engine.schema import read_manifest

WHOLE = ("profile", "--providers", "null", "--device", "null", "--dtypes", "f32", "--max-samples",
         "5", "--verification-level", "quick", "--processes", "1")  # fmt: skip
SHAPES = "8x8x8,16x16x16,32x8x8,8x8x64"
PARTS = {
    "whole": (), "part1": ("--shard", "1/3"), "part2": ("--shard", "2/3"),
    "part3": ("--shard", "3/3"), "seed": ("--seed", "7", "--shard", "3/3"),
    "twice": ("--shard", "2/3"), "half": ("--shard", "2/2"),
}  # fmt: skip
"""Experiment -> what of the plan it measures."""


@given(st.text(max_size=30), st.integers(1, 50))
def test_each_name_belongs_to_one_shard(name, count):
    assert sum(Shard(number, count).takes(name) for number in range(1, count + 1)) == 1


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "1/0", "a/b", "1/2/3", "-1/2"])
def test_shards_that_do_not_exist(text):
    with pytest.raises(RequestError):
        parse_shard(text)


@pytest.fixture(scope="module")
def plans(run_in, tmp_path_factory):
    """The folder of the experiments `PARTS`."""
    folder = tmp_path_factory.mktemp("plans")
    for name, options in PARTS.items():
        run_in(folder, *WHOLE, "--shapes", SHAPES, *options, "--experiment", name, status=0)
    return folder


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


def test_shards_merge_into_the_experiment_of_the_whole_plan(cli, plans):
    cli("merge", *(plans / name for name in ("part2", "part3", "part1")), "--into", "merged",
        status=0)  # fmt: skip
    assert _content("merged") == _content(plans / "whole")
    one, other = read_manifest(Path("merged")), read_manifest(plans / "whole")
    assert (one.plan_hash, one.name, one.document) == (other.plan_hash, other.name, other.document)
    again = cli(*WHOLE, "--shapes", SHAPES, "--experiment", "merged", status=0)
    assert "8 from an earlier run are kept" in again.stderr


def test_a_shard_without_operations_says_so(cli):
    warned = []
    for number in (1, 2, 3):
        ended = cli(*WHOLE, "--shapes", "8x8x8", "--layouts", "nn", "--shard", f"{number}/3",
                    "--experiment", f"p{number}", status=0)  # fmt: skip
        warned.append(f"Shard {number}/3" in ended.stderr)
        assert ("0 dispatches" in ended.stderr) == warned[-1]
    assert sum(warned) == 2


def test_a_shard_that_was_extended_merges(cli):
    """The numbers of what was added meet those of other shards."""
    for number in (1, 2):
        for shapes in (SHAPES, f"{SHAPES},16x8x8,8x16x16"):
            cli(*WHOLE, "--shapes", shapes, "--shard", f"{number}/2", "--experiment",
                f"part{number}", status=0)  # fmt: skip
    cli("merge", "part1", "part2", "--into", "merged", status=0)
    content = _content("merged")
    assert len(content["operations"]) == 6
    assert len(content["records"]) == len(content["plan"]) == 12


@pytest.mark.parametrize(
    ("folders", "named"),
    [("part1 part2", "3/3"), ("part1 part2 seed", "seed"), ("part1 part2 twice", "twice"),
     ("part1 half", "half"), ("part1 whole", "whole")],
)  # fmt: skip
def test_what_is_not_all_of_a_plan_is_refused(cli, plans, folders, named):
    places = [plans / name for name in folders.split()]
    assert named in cli("merge", *places, "--into", "merged", status=2).stderr
    assert not Path("merged").exists()


def test_shards_of_a_training_sweep_merge(cli):
    """The folders of points do not meet, and the same command continues what is merged."""
    sweep = ("sweep", "run", "--channels", "1,2,3,4", "--library", "gloo", "--command",
             "sh -c 'exit 3'")  # fmt: skip
    for number in (1, 2):
        assert cli(*sweep, "--shard", f"{number}/2", "-o", f"part{number}").status == 1
    cli("merge", "part2", "part2", "--into", "merged", status=2)
    assert not Path("merged").exists()
    assert cli.json("merge", "part1", "part2", "--into", "merged")["points"] == 4
    assert len(list(Path("merged").rglob("point.json"))) == 4
    again = cli.json(*sweep, "-o", "merged", "--dry-run")
    assert len(again["points"]) == 4


def test_an_experiment_that_agents_measured_is_read(cli, plans):
    shutil.copytree(plans / "part1", "e")
    with Path("e/spec.yaml").open("a") as spec:
        spec.write("executor: slurm\nlisten: 0.0.0.0\nagents: 2\n")
    cli("report", "e", status=0)
    assert "listen" in cli("profile", "--spec", "e/spec.yaml", status=2).stderr
