from __future__ import annotations

import json
import subprocess
import sys
from typing import get_args

import pytest
from pydantic import ValidationError

from gemmetry.domain.columns import COLUMNS, result_schema
from gemmetry.domain.errors import Stage
from gemmetry.domain.options import ALIASES, KEYS, PANELS, RETIRED, canonical_key
from gemmetry.domain.settings import Form, RunSettings, declarations, plain
from gemmetry.domain.specs.fields import setting_values
from gemmetry.domain.specs.model import ProfileSpec, spec_schema
from gemmetry.domain.specs.planning import run_settings


def test_names_are_given_once():
    assert set(KEYS) == set(ProfileSpec.model_fields)
    names = [*KEYS, *ALIASES, *(old.option.strip("-").replace("-", "_") for old in RETIRED)]
    shorts = [key.short for key in KEYS.values() if key.short]
    for given in (names, shorts):
        assert len(set(given)) == len(given)


def test_every_key_is_explained():
    for key in KEYS.values():
        assert key.panel in PANELS
        assert key.text.endswith((".", "..."))
        assert key.form is Form.FLAG or key.form is Form.SPEC_ONLY or key.metavar
        field = ProfileSpec.model_fields[key.name]
        assert (field.description, field.default) == (key.text, key.value)
        if key.default not in (None, {}, ""):
            assert key.help().endswith(f" Default: {plain(key.default)}.")


def test_canonical_key():
    found = [canonical_key(name) for name in ("Batch-Size", "ENABLE_SIZE_SEARCH", "unknown")]
    assert found == ["dispatch_repeat_count", "enable_size_search", "unknown"]


def test_a_command_may_have_a_default_of_its_own():
    assert KEYS["providers"].help("iree").endswith("user. Default: iree.")
    assert KEYS["dtypes"].help().endswith("Default: f32, or bf16 on a GPU.")
    assert KEYS["enable_rectangular"].help(False).endswith("Default: off.")
    assert KEYS["seed"].help(None) == KEYS["seed"].help()
    assert KEYS["problem_n"].help() == "Sizes of N."


ONE_MORE_SETTING = """
import contextlib, io, json, sys
from dataclasses import dataclass, replace

from gemmetry.domain import settings
from gemmetry.domain.settings import setting

@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings(settings.RunSettings):
    pause_s: float = setting(
        0.25, "Pause between rounds.", key="pause", aliases=("rest",), metavar="TIME")

settings.RunSettings = RunSettings

from gemmetry.cli.main import run
from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.engine.candidates import reproduction_command
from gemmetry.domain.specs.planning import run_settings
from gemmetry.domain.specs.model import spec_schema
from gemmetry.domain.specs.loader import make_spec
from gemmetry.engine.schema import Lane

def printed(*arguments):
    with contextlib.redirect_stdout(io.StringIO()) as out, \\
            contextlib.redirect_stderr(io.StringIO()) as err:
        status = run(list(arguments))
    return status, out.getvalue() + err.getvalue()

dry = "profile", "--providers", "null", "--device", "null:0", "--dry-run", "--json"
print(json.dumps({
    "help": printed("profile", "--help"),
    "schema": spec_schema()["properties"]["pause"],
    "default": run_settings(make_spec({})).pause_s,
    "plan": json.loads(printed(*dry, "--rest", "500ms")[1])["plan"]["settings"]["pause_s"],
    "mistake": printed(*dry, "--pause", "soon"),
    "again": reproduction_command(
        Lane(1, "null", {}, Target(TargetKind.NULL, "", 0)), "x", RunSettings(pause_s=0.5)),
}))
"""


def test_a_setting_is_added_by_its_declaration_alone():
    found = subprocess.run(
        [sys.executable, "-c", ONE_MORE_SETTING], capture_output=True, text=True, timeout=300
    )
    assert found.returncode == 0, found.stderr
    seen = json.loads(found.stdout)
    status, text = seen["help"]
    text = " ".join(text.split())
    assert (status, text.count("--pause TIME")) == (0, 1)
    assert "Pause between rounds. Default: 0.25. (also --rest)" in text
    assert seen["schema"] == {
        "anyOf": [{"type": "number"}, {"type": "string"}], "default": 0.25, "title": "Pause",
        "description": "Pause between rounds.",
    }  # fmt: skip
    assert (seen["default"], seen["plan"], seen["mistake"][0]) == (0.25, 0.5, 2)
    assert "--pause: " in seen["mistake"][1]
    assert seen["again"].endswith(" --pause 0.5s --fresh")


def test_every_field_of_a_run_but_the_schedule_of_traces_is_declared():
    names = [name for name in RunSettings.__slots__ if name != "trace"]
    assert list(declarations(RunSettings)) == names


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("benchmark_repetitions", 1, 0), ("warmup_time", None, 0), ("processes", 12, 13),
        ("interval_width", None, 1.0), ("verification_level", "paranoid", "thorough"),
        ("distribution", "normal", "gauss"), ("sanitizers", "all", "valgrind"), ("jobs", -1, -2),
        ("memory_budget", "2GiB", -1), ("deadlines", {"compile": "1min"}, {"lunch": 3}),
        ("tags", "a:b", "a"),
    ],
)  # fmt: skip
def test_limits_and_names_are_those_of_the_declaration(key, good, bad):
    ProfileSpec(**{key: good})
    with pytest.raises(ValidationError):
        ProfileSpec(**{key: bad})


def test_choices_of_the_schema_and_of_completion_are_the_same():
    choices = get_args(ProfileSpec.model_fields["timing_method"].annotation)
    assert choices == KEYS["timing_method"].choices == ("auto", "graph", "events")
    assert not KEYS["seed"].choices


def test_nothing_means_the_default_and_parts_of_a_mapping_are_added_to_it():
    values = setting_values(dict(ProfileSpec(deadlines={"compile": 7}, tags="a:b")))
    assert values["deadlines_s"] == {**RunSettings().deadlines_s, Stage.COMPILE: 7.0}
    assert values["tags"] == {"a": "b"}
    assert values["warmup_s"] == 0.0
    assert run_settings(ProfileSpec()) == RunSettings()


def test_the_spec_schema_has_every_key_with_its_text():
    properties = spec_schema()["properties"]
    assert set(properties) == set(KEYS) | set(ALIASES)
    for name, key in KEYS.items():
        assert properties[name]["description"] == key.text
    assert spec_schema()["additionalProperties"] is False


MEASURED = ("median_ns", "effective_samples", "harness_overhead_ns", "run_delay_share")


def test_the_result_schema_has_every_column():
    record = result_schema()["properties"]["records"]["items"]
    properties = record["properties"]
    assert list(properties) == record["required"] == [column.name for column in COLUMNS]
    for column in COLUMNS:
        assert column.description in properties[column.name]["description"]
    assert all(properties[name]["type"] == ["number", "null"] for name in MEASURED)
    assert properties["flops"]["type"] == "integer"
    marks = properties["marks"]
    assert (marks["type"], marks["items"]) == ("array", {"type": "string"})
    assert None in properties["stage"]["enum"] and "ok" in properties["outcome"]["enum"]
