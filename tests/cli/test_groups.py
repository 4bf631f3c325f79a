from __future__ import annotations

import sys
from types import ModuleType
from typing import ClassVar

import pytest
import typer

from gemmetry.cli.main import COMMANDS, LazyGroup, group_app, load_command

ran: list[str] = []


def _command(name: str):
    def function() -> None:
        """Do something."""
        ran.append(name)

    return function


@pytest.fixture
def modules(monkeypatch):
    """Modules with a command each: a plain name, a name of Python's, a name with a hyphen."""
    ran.clear()
    for module, function in (("plain", "plain"), ("keyword", "import_"), ("hyphen", "two_words")):
        made = ModuleType(f"gemmetry.cli.made_up.{module}")
        setattr(made, function, _command(function))
        monkeypatch.setitem(sys.modules, made.__name__, made)


class Made(LazyGroup):
    modules: ClassVar = {
        "plain": "made_up.plain",
        "import": "made_up.keyword",
        "two-words": "made_up.hyphen",
        "broken": "made_up.does_not_exist",
    }


class Listed(Made):
    summaries: ClassVar = dict.fromkeys(Made.modules, "One line.")


@pytest.mark.parametrize(
    ("name", "function"), [("plain", "plain"), ("import", "import_"), ("two-words", "two_words")]
)
@pytest.mark.parametrize("kind", [Made, Listed])
def test_a_command_is_found_by_its_name(modules, kind, name, function):
    group = typer.main.get_command(group_app(kind, "A group."))
    group.main(args=[name], prog_name="made", standalone_mode=False)
    assert ran == [function]
    assert list(group.commands) == [name]


def test_a_group_with_summaries_lists_its_commands_without_importing_them(capsys):
    group = typer.main.get_command(group_app(Listed, "A group."))
    group.main(args=["--help"], prog_name="made", standalone_mode=False)
    text = capsys.readouterr().out
    assert "made" in text.splitlines()[0] and "A group." in text
    assert text.count("One line.") == len(Listed.modules)
    assert group.commands == {}


def test_every_group_of_gemmetry_is_one_of_these():
    groups = [load_command(name) for name in COMMANDS]
    lazy = [group.name for group in groups if isinstance(group, LazyGroup)]
    assert {"trace", "sweep", "counters", "kernels", "dispatcher"} <= set(lazy)
