"""One contract for every command and group: help, examples, completion, and mistyped options."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup, TyperOption

from gemmetry.cli.console import Source
from gemmetry.cli.main import every_command, group_app, read_examples
from gemmetry.cli.options import COMPLETERS, argument, build_command, option, request, split_names
from gemmetry.domain.options import KEYS, RETIRED
from gemmetry.domain.settings import Form

ALL = dict(every_command())
LEAVES = {name: one for name, one in ALL.items() if not isinstance(one, TyperGroup)}
EXAMPLES = read_examples()


def test_every_command_has_three_examples_of_its_own():
    assert set(EXAMPLES) == {"", *ALL}
    for name, examples in EXAMPLES.items():
        lines = {line for _, line in examples}
        assert len(lines) == 3
        assert all(f"gemmetry {name}".strip() in line for line in lines)


@pytest.mark.parametrize("name", EXAMPLES)
def test_help_begins_with_examples_and_fits(cli, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    help_text = cli(*name.split(), "--help", status=0).stdout
    lines = help_text.splitlines()
    assert f"gemmetry {name}".strip() in lines[0]
    assert lines[1:3] == ["", "Examples:"]
    assert max(map(len, lines)) <= 80
    for text, line in EXAMPLES[name]:
        assert f"  {text}" in lines
        assert all(part.strip() in help_text for part in line.splitlines())
    for parameter in ALL[name].params if name else ():
        if not getattr(parameter, "hidden", False):
            is_option = parameter.param_type_name == "option"
            assert (parameter.opts[0] if is_option else parameter.metavar) in help_text


@pytest.mark.parametrize("name", LEAVES)
def test_every_option_has_help_and_completes(name):
    for parameter in LEAVES[name].params:
        assert parameter.help
        completion = parameter._custom_shell_complete
        assert completion is None or completion(None, parameter, "") or name == "tune"
        if isinstance(parameter, TyperOption) and (key := KEYS.get(parameter.name)):
            takes_key = parameter.rich_help_panel == key.panel
            assert not takes_key or bool(completion) == (key.name in COMPLETERS)


@pytest.mark.parametrize("name", ALL)
def test_a_mistyped_option_is_named_with_what_to_do(cli, name):
    ended = cli(*name.split(), "--no-such-thing")
    assert (ended.status, ended.stdout) == (2, "")
    assert "--no-such-thing" in ended.stderr
    usual = f" {ALL[name].usual}".rstrip() if isinstance(ALL[name], TyperGroup) else ""
    assert f"`gemmetry {name}{usual} --help`" in ended.stderr


@pytest.mark.parametrize("name", ["profile", "generate", "compile", "tune", "list operations"])
def test_every_key_is_an_option_of_the_commands_that_take_requests(name):
    options = {p.name: p for p in LEAVES[name].params}
    for key in KEYS.values():
        if key.form is Form.SPEC_ONLY:
            assert key.name not in options
        else:
            assert key.option in options[key.name].opts
            assert options[key.name].is_flag == (key.form is Form.FLAG)
    for old in RETIRED:
        assert any(old.option in option.opts and option.hidden for option in options.values())


def test_lists_are_completed_at_their_end_without_repeats():
    assert COMPLETERS["dtypes"]("f32,f3") == []
    assert COMPLETERS["dtypes"]("f16,f3") == ["f16,f32"]
    assert COMPLETERS["baseline"]("cubl") == ["cublaslt", "cublaslt:best"]
    assert COMPLETERS["providers"]("mut") == []


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(kw_only=True)
class Shared:
    dry: bool = option("Shared by commands.")


@dataclass(kw_only=True)
class Made(Shared):
    place: Path = argument("Where.", "PLACE")
    names: list[str] = option("Names.", "-n", parse=split_names)
    colour: Colour = option("A choice.", default=Colour.RED)
    count: int | None = option("A number.", "--how-many", min=1)
    source: Source = request()
    seed: int = option("In place of the key.", default=3)


def made(options: Made) -> int:
    """Do one
    thing.

    And explain more.
    """
    global seen
    seen = options
    return 5


def call(*words: str) -> Any:
    return build_command("made", made).main(args=list(words), standalone_mode=False)


def test_a_field_is_an_option_and_its_value(capsys):
    words = ["here", "-n", "a,b", "-n", "c", "--colour=blue", "--how-many", "2", "--dry"]
    assert call(*words, "--jobs", "2", "--append=false", "--build-dir", "x") == 5
    assert seen.source.given == {"jobs": "2", "append": False}
    seen.source = None
    assert seen == Made(place=Path("here"), names=["a", "b", "c"], colour=Colour.BLUE, count=2,
                        dry=True, seed=3, source=None)  # fmt: skip
    assert "--build-dir has no effect" in capsys.readouterr().err
    assert call("here") == 5
    assert (seen.names, seen.colour, seen.count, seen.dry) == ([], Colour.RED, None, False)
    assert seen.source.given == {}


def test_a_command_shows_its_own_options_before_those_it_shares():
    command = build_command("made", made)
    names = [p.name for p in command.params]
    assert names.index("seed") < names.index("dry") < names.index("jobs")
    assert command.help == "Do one thing.\n\nAnd explain more."


def test_a_group_with_summaries_lists_its_commands_without_importing_them(capsys):
    members = {"made": made, "broken": "does_not_exist:at_all"}
    group: Any = typer.main.get_command(
        group_app("A group.", members, dict.fromkeys(members, "One line."))
    )
    group.main(args=["--help"], prog_name="some", standalone_mode=False)
    text = capsys.readouterr().out
    assert "A group." in text
    assert text.count("One line.") == 2
    assert group.commands == {}
    assert group.main(args=["made", "here"], prog_name="some", standalone_mode=False) == 5
