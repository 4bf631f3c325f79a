"""What messages name exists: options, commands and pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
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
PARAMETERS = [one for command in KNOWN.values() for one in getattr(command, "params", ())]
OPTIONS = {"--help", "--version"}.union(*((*p.opts, *p.secondary_opts) for p in PARAMETERS))


def _texts(node: ast.AST) -> str:
    """The literal parts of an expression; what is filled in is ``{}``."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.FormattedValue):
        return "{}"
    return "".join(map(_texts, ast.iter_child_nodes(node)))


def _messages() -> Iterator[tuple[str, str, bool]]:
    """(place, text, whether it is a hint) of every text that is no docstring."""
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        hints = {id(one.value) for call in ast.walk(tree) if isinstance(call, ast.Call)
                 for one in call.keywords if one.arg in ("hint", "help", "epilog")}  # fmt: skip
        hints |= {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Assign)
                  and any("HINT" in getattr(name, "id", "") for name in one.targets)}  # fmt: skip
        stack: list[ast.AST] = [tree]
        while stack:
            node = stack.pop()
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                continue
            if id(node) in hints or isinstance(node, (ast.JoinedStr, ast.Constant)):
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", _texts(node), id(node) in hints
            else:
                stack += ast.iter_child_nodes(node)


def test_options_commands_and_pages_that_messages_name_exist():
    wrong, hints, topics = [], 0, 0
    for place, text, is_hint in _messages():
        foreign = {one for tool, options in FOREIGN.items() if tool in text for one in options}
        if is_hint and not place.startswith(OTHER_PROGRAMS):
            wrong += [(place, one) for one in OPTION.findall(text) if one not in OPTIONS | foreign]
        for name, sub in COMMAND.findall(text):
            if isinstance(KNOWN.get(name), TyperGroup) and f"{name} {sub}" not in KNOWN:
                wrong.append((place, f"{name} {sub}"))
        named = re.findall(r"gemmetry help ([a-z-]+)", text)
        wrong += [(place, one) for one in named if one not in pages()]
        wrong += [(place, one) for one in re.findall(r"docs/[a-z-]+\.md", text)]
        hints, topics = hints + is_hint, topics + len(named)
    assert not wrong, "neither may a file of the repository be named"
    assert hints > 300 and topics > 8


def test_pages_are_printed_and_listed(cli):
    listed = cli("help", status=0).stdout
    assert all(topic in listed for topic in pages())
    assert cli("help", "names").stdout.splitlines()[0] == "# Names"
    assert cli("help", "profile").stdout.strip() == cli("profile", "--help").stdout.strip()
    assert "names" in cli("help", "name", status=2).stderr
