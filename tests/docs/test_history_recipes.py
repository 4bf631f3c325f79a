"""The recipes for nightly runs in ``docs/history.md`` are valid, and their commands work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from gemmetry.cli.main import run

PAGE = Path(__file__).parents[2] / "docs" / "history.md"
RECIPES = [
    yaml.safe_load(text)
    for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
]


def _github(recipe):
    return [step["run"] for step in recipe["jobs"]["history"]["steps"] if "run" in step]


def _gitlab(recipe):
    return recipe["history"]["script"]


def test_there_is_a_recipe_for_each_service():
    assert ["jobs" in recipe for recipe in RECIPES] == [True, False]


@pytest.mark.parametrize(("recipe", "scripts"), list(zip(RECIPES, (_github, _gitlab), strict=True)))
def test_the_commands_of_a_recipe_work(recipe, scripts, tmp_path, monkeypatch):
    """On a simulated device; git, pip and the shell's variables are left out."""
    monkeypatch.chdir(tmp_path)
    Path("nightly.yaml").write_text("device: 'null'\nproviders: ['null']\nshapes: [64x64x64]\n")
    commands = [
        shlex.split(line.partition(" || ")[0])[1:]
        for script in scripts(recipe)
        for line in script.splitlines()
        if line.startswith("gemmetry ")
    ]
    assert [command[:2] for command in commands][:2] == [["profile", "--spec"], ["history", "add"]]
    assert commands[-1][:2] == ["history", "check"]
    for command in commands[:-1]:
        assert run(command) == 0, command
    assert run(commands[-1]) == 0, "a young history does not fail"
    assert run([*commands[-1], "--undecided", "fail"]) == 1, "one night decides nothing"
    assert list(Path("history/store").glob("*.jsonl"))
    assert "<testsuite" in Path("check.xml").read_text()
    assert Path("check.md").read_text()


def test_gitlab_keeps_what_the_commands_write():
    job = RECIPES[1]["history"]
    written = re.findall(r" -o (\S+)", "\n".join(job["script"]))
    kept = [job["artifacts"]["reports"]["junit"], *job["artifacts"]["paths"]]
    assert sorted(",".join(written).split(",")) == sorted(kept)
    assert job["artifacts"]["when"] == "always"
    assert job["rules"] == [{"if": '$CI_PIPELINE_SOURCE == "schedule"'}]
