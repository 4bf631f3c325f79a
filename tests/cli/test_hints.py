"""What messages name exists: options, commands and pages."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from typer.core import TyperGroup

import gemmetry
from gemmetry.cli.main import every_command, pages

SOURCE = Path(gemmetry.__file__).parent
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9_-]*[a-z0-9]")
COMMAND = re.compile(r"\bgemmetry ([a-z]+) ([a-z][a-z-]*)")

FOREIGN = {
    "srun": {"--ntasks-per-node", "--gres"},
    "ncu": {"--csv", "--page", "--set", "--section", "--import", "--export", "--metrics", "--raw"},
    "rocprof": {"--kernel-trace", "--pmc", "--hip-trace", "--hsa-trace", "--output-format"},
    "torchrun": {"--nproc-per-node"},
    "dcgmi": {"--pause"},
    "ray start": {"--head", "--address", "--num-gpus"},
    "container": {"--cap-add"},
    "pytest": {"--kernel-benchmark-json"},
}
"""Options of other tools, which a text that names the tool may give."""

OTHER_PROGRAMS = ("sweeps/workload.py", "sweeps/trainer.py")
"""Programs of ours with options of their own."""


KNOWN = dict(every_command())
OPTIONS = {
    option
    for command in KNOWN.values()
    for parameter in getattr(command, "params", ())
    for option in (*parameter.opts, *parameter.secondary_opts)
} | {"--help", "--version"}


def _texts(node: ast.AST) -> str:
    """The literal parts of an expression; what is filled in is ``{}``."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.FormattedValue):
        return "{}"
    return "".join(map(_texts, ast.iter_child_nodes(node)))


def _is_docstring(parent: ast.AST, node: ast.AST) -> bool:
    return isinstance(parent, ast.Expr) and isinstance(node, ast.Constant)


@cache
def _messages() -> list[tuple[str, str, bool]]:
    """(place, text, whether it is a hint) of every text that is no docstring."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        hints = {id(one.value) for call in ast.walk(tree) if isinstance(call, ast.Call)
                 for one in call.keywords if one.arg in ("hint", "help", "epilog")}  # fmt: skip
        hints |= {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Assign)
                  and any("HINT" in getattr(name, "id", "") for name in one.targets)}  # fmt: skip
        stack = [(tree, tree)]
        while stack:
            parent, node = stack.pop()
            is_text = isinstance(node, (ast.JoinedStr, ast.Constant))
            if id(node) in hints or is_text:
                text = _texts(node)
                if text and not _is_docstring(parent, node):
                    place = f"{path.relative_to(SOURCE)}:{node.lineno}"
                    found.append((place, text, id(node) in hints))
                continue
            stack += [(node, child) for child in ast.iter_child_nodes(node)]
    return found


def test_every_option_of_a_hint_exists():
    assert sum(is_hint for _, _, is_hint in _messages()) > 300
    wrong = []
    for place, text, is_hint in _messages():
        foreign = {one for tool, options in FOREIGN.items() if tool in text for one in options}
        if is_hint and not place.startswith(OTHER_PROGRAMS):
            wrong += [(place, one) for one in OPTION.findall(text) if one not in OPTIONS | foreign]
    assert not wrong


def test_every_command_of_a_message_exists():
    wrong = []
    for place, text, _ in _messages():
        for name, sub in COMMAND.findall(text):
            is_group = isinstance(KNOWN.get(name), TyperGroup)
            if is_group and f"{name} {sub}" not in KNOWN:
                wrong.append((place, f"{name} {sub}"))
    assert not wrong


def test_every_page_of_a_message_exists_and_none_is_a_file_of_the_repository():
    topics = [(place, one) for place, text, _ in _messages()
              for one in re.findall(r"gemmetry help ([a-z-]+)", text)]  # fmt: skip
    assert len(topics) > 8
    assert not [(place, one) for place, one in topics if one not in pages()]
    files = [(place, one) for place, text, _ in _messages()
             for one in re.findall(r"docs/[a-z-]+\.md", text)]  # fmt: skip
    assert not files


def test_pages_are_printed_and_listed(cli):
    listed = cli("help", status=0)
    assert all(topic in listed.stdout for topic in pages())
    shown = cli("help", "names")
    assert shown.stdout.splitlines()[0] == "# Names"
    assert cli("help", "profile").stdout.strip() == cli("profile", "--help").stdout.strip()
    unknown = cli("help", "name", status=2)
    assert "names" in unknown.stderr
