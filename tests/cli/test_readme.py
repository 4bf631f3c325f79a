"""The README and the pages show only what the command line can do."""

from __future__ import annotations

import importlib.util
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gemmetry.cli.main import COMMANDS, load_command
from gemmetry.cli.usage import PARSER_ERROR

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.M | re.S)
_INDENTED = re.compile(r"(?:^(?: {4}|\t)[^\n]*\n)+", re.M)
_INLINE = re.compile(r"`([^`]+)`")
_SHELL = ("", "sh", "bash", "console", "shell")
_PLANNING = ("profile", "generate", "compile", "verify")
_NEEDS_FILES = {"DIR", "--spec", "--generated-dir", "self-test"}
_BETWEEN = ("|", "||", "&&", ";", "&")
_PLACEHOLDER = re.compile(r"^[\[<]|^…$|^\.\.\.$")
_OUTPUT_COMMAND = re.compile(r"^ *\$ (gemmetry .*)$", re.M)


@dataclass(frozen=True)
class Line:
    """A command line of a page."""

    page: str
    words: tuple[str, ...]
    in_prose: bool
    """Named within a sentence, where required arguments may be left out."""

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def lines(page: Path) -> list[Line]:
    """Every command line of a page: in its blocks of shell commands, and between backticks."""
    text = page.read_text()
    blocks = [
        body if language in _SHELL else "\n".join(_OUTPUT_COMMAND.findall(body))
        for language, body in _FENCE.findall(text)
    ]
    prose = _FENCE.sub("", text)
    blocks += _INDENTED.findall(prose)
    found = [
        (words, False)
        for block in blocks
        for line in block.replace("\\\n", " ").splitlines()
        for words in _commands(line.strip().removeprefix("$ "))
    ]
    inline = _INLINE.findall(_INDENTED.sub("", prose))
    found += [(words, True) for code in inline for words in _commands(" ".join(code.split()))]
    return [Line(page.name, tuple(words), in_prose) for words, in_prose in found]


def _commands(line: str) -> list[list[str]]:
    """The words of each command of a shell line, without variables that are set for it and
    without redirections; none if it is no shell line."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:
        return []
    commands: list[list[str]] = [[]]
    for word in words:
        if word in _BETWEEN:
            commands.append([])
        elif "=" not in word or commands[-1] or not word.split("=")[0].isupper():
            commands[-1].append(word)
    return [found for words in commands if (found := _without_redirections(words))]


def _without_redirections(words: list[str]) -> list[str]:
    for sign in (">", ">>", "<"):
        if sign in words:
            words = words[: words.index(sign)]
    return words


def gemmetry_lines(page: Path) -> list[Line]:
    """Those of this command, without the word ``gemmetry``; a synopsis is none."""
    return [
        Line(line.page, line.words[1:], line.in_prose)
        for line in lines(page)
        if line.words[0] == "gemmetry" and len(line.words) > 1 and "[OPTIONS]" not in line.words
    ]


def mistake(line: Line) -> str:
    """The parser's objection to a command line; "" if it has none."""
    name, *words = line.words
    if name.startswith("-") or name.isupper():
        return ""
    if name not in COMMANDS:
        return f"there is no command {name}"
    command: Any = load_command(name)
    if hasattr(command, "list_commands") and (words or not line.in_prose):
        below = command.get_command(None, words[0]) if words else None
        if below is None:
            return f"there is no such command of {name}"
        command, words = below, words[1:]
    words = [word for word in words if not _PLACEHOLDER.search(word)]
    if "--help" in words or hasattr(command, "list_commands"):
        return ""
    try:
        command.make_context(name, words)
    except PARSER_ERROR as error:
        is_left_out = type(error).__name__ == "MissingParameter" or "requires an" in error.message
        return "" if line.in_prose and is_left_out else str(error.format_message())
    return ""


def planned_lines() -> list[Line]:
    """Lines of commands that make a plan, in full. Commands that need files of ``generate`` or of a
    user are left to ``test_documents.py``, and most examples of help to ``test_examples.py``."""
    found = {
        line.words: line
        for page in PAGES
        for line in gemmetry_lines(page)
        if line.words[0] in _PLANNING
        and (page.name == "README.md" or not line.in_prose)
        and (page.name != "command-line.md" or line.words[0] == "profile")
        and not any(word in _NEEDS_FILES or word.startswith("/") for word in line.words)
    }
    return list(found.values())


def test_the_readme_is_short_and_whole():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 150
    assert "@@" not in text
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_output_is_left_to_be_pasted(page):
    text = page.read_text()
    assert "@@" not in text
    assert "<!-- output" not in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_line_parses(page):
    wrong = {str(line): text for line in gemmetry_lines(page) if (text := mistake(line))}
    assert wrong == {}


def test_command_lines_are_found_and_wrong_ones_are_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "`gemmetry trace\nreport` and `gemmetry profile --kernel`, not `gemmetry nothing`.\n\n"
        "    gemmetry compare A B --treshold 3 > file\n\n"
        "```console\n$ X=1 gemmetry profile --nosuch \\\n    --shapes 8x8x8 | head\n```\n"
        "```text\n  output\n    $ gemmetry verify runs\n```\n"
        "```python\ngemmetry profile\n```\n"
    )
    found = gemmetry_lines(page)
    assert [(line.words[0], line.in_prose) for line in found] == [
        ("profile", False), ("verify", False), ("compare", False),
        ("trace", True), ("profile", True), ("nothing", True),
    ]  # fmt: skip
    assert found[0].words == ("profile", "--nosuch", "--shapes", "8x8x8")
    assert found[2].words[-1] == "3"
    assert [bool(mistake(line)) for line in found] == [True, True, True, False, False, True]
    assert sum(len(gemmetry_lines(page)) for page in PAGES) > 150


@pytest.mark.parametrize("line", planned_lines(), ids=str)
def test_command_lines_that_plan_are_understood(cli, line, tmp_path):
    for name in ("examples", "src"):
        (tmp_path / name).symlink_to(ROOT / name)
    results = "GemmTunableOp_BFloat16_TN,tn_64_32_16,Gemm_Hipblaslt_1219,0.01\n"
    (tmp_path / "tunableop_results0.csv").write_text(results)
    (tmp_path / "my_gemm.py").write_text("def function(a, b):\n    return a @ b\n")
    ended = cli(*line.words, "--dry-run")
    no_such_device = "there is no device" in ended.stderr
    assert ended.status == 0 or no_such_device, ended.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_scripts_modules_and_targets_exist_with_the_options_named(page):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    for line in lines(page):
        program, *words = line.words
        if program == "make":
            wanted = [word for word in words if "=" not in word]
            assert set(wanted) <= set(targets), str(line)
        elif Path(program).name.startswith("python") and words and words[0].endswith(".py"):
            source = (ROOT / words[0]).read_text()
            own = words[1 : words.index("--") if "--" in words else None]
            options = [word.split("=")[0] for word in own if word.startswith("--")]
            if "BooleanOptionalAction" in source:
                options = [re.sub("^--no-", "--", name) for name in options]
            assert [name for name in options if f'"{name}"' not in source] == [], str(line)
        elif Path(program).name.startswith("python") and words[:1] == ["-m"]:
            assert importlib.util.find_spec(words[1]) is not None, str(line)
