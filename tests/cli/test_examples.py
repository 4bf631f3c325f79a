"""Examples of the help texts: three for every command, and every line can be typed."""

from __future__ import annotations

import re
import shlex

import pytest
from typer.core import TyperGroup

from gemmetry.cli.examples import EXAMPLES, examples_of
from gemmetry.cli.main import COMMANDS, load_command

LINES = [
    (f"gemmetry {part.strip()}".replace("gemmetry gemmetry", "gemmetry"), name)
    for name, examples in EXAMPLES.items()
    for _, line in examples
    for part in re.split(r"\||&&", line.replace("\\\n", ""))
]


def commands():
    found = {""}
    for name in COMMANDS:
        found.add(name)
        command = load_command(name)
        if isinstance(command, TyperGroup):
            found |= {f"{name} {sub}" for sub in command.list_commands(None)}
    return found


def test_every_command_has_three_examples_of_its_own():
    assert set(EXAMPLES) == commands()
    for name, examples in EXAMPLES.items():
        assert len({line for _, line in examples}) == 3
        for _, line in examples:
            assert f"gemmetry {name}".strip() in line


@pytest.mark.parametrize(("line", "name"), LINES)
def test_every_line_parses(line, name):
    _, command_name, *words = shlex.split(line)
    command = load_command(command_name)
    if isinstance(command, TyperGroup):
        command = command.get_command(None, words.pop(0))
    context = command.make_context(command_name, words)
    assert context.args == []
    assert context.params


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_help_begins_with_examples_and_fits(cli, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    ended = cli(*name.split(), "--help")
    assert ended.status == 0
    usage, blank, heading, first, *_ = ended.stdout.splitlines()
    assert (f"gemmetry {name}".strip() in usage, blank, heading) == (True, "", "Examples:")
    assert first.strip() == EXAMPLES[name][0][0]
    assert max(map(len, ended.stdout.splitlines())) <= 80
    for text, line in EXAMPLES[name]:
        assert text in ended.stdout
        assert all(part.strip() in ended.stdout for part in line.splitlines())


def test_commands_of_others_have_none():
    assert examples_of("pytest profile") == ()
    assert examples_of("gemmetry nothing") == ()


RUN = [line for line, name in LINES
       if name in ("generate", "compile", "verify run", "trace record", "list operations",
                   "list configurations")
       and not re.search(r"--kernel|--spec|--generated-dir here$|llm|triton", line)]  # fmt: skip


@pytest.mark.parametrize("line", RUN)
def test_requests_can_be_planned(cli, line):
    """Those that need neither a device nor a file."""
    pytest.importorskip("iree.compiler", reason="the iree extra is not installed")
    pytest.importorskip("torch")
    words = shlex.split(line)[1:]
    ended = cli(*words, *([] if words[0] == "list" or "--dry-run" in words else ["--dry-run"]))
    assert ended.status == 0, ended.stderr
    assert ended.stdout
