"""Budgets of lines of code: raising one is a visible change of the table below.

Lines of code are those with anything that is no comment, docstring or import.
"""

from __future__ import annotations

import ast
import functools
import statistics
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "gemmetry"
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)

BUDGETS = {
    "cli": 2710,
    "counters": 4370,
    "dispatches": 3710,
    "documents": 2680,
    "domain": 4570,
    "engine": 6560,
    "formats": 4610,
    "hardware": 3270,
    "history": 1740,
    "judge": 3240,
    "measurement": 1900,
    "numerics": 1280,
    "providers": 8840,
    "results": 860,
    "selftest": 3430,
    "statistics": 1110,
    "sweeps": 6910,
    "traces": 6100,
    "tuning": 3530,
    "verification": 5450,
    ".": 260,
}
"""Room of the package -> lines of code. The package's own files are "."."""
TESTS = 45_220
FILES = 330


class Size(NamedTuple):
    lines: int
    code: int
    imports: int
    functions: list[tuple[str, int]]
    """Name of each function, and its lines from its ``def`` on, without its docstring."""


def _lines(node: ast.stmt | ast.expr) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _docstring(node: ast.AST) -> range:
    first = node.body[0] if getattr(node, "body", None) else None
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return _lines(first) if is_text and isinstance(first.value.value, str) else range(0)


@functools.cache
def size(path: Path) -> Size:
    text = path.read_text("utf-8")
    lines = [line.strip() for line in text.splitlines()]
    code = {number for number, line in enumerate(lines, 1) if line and line[0] != "#"}
    imports: set[int] = set()
    docstrings: set[int] = set()
    functions = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.update(_lines(node))
        elif isinstance(node, ast.Constant | ast.JoinedStr):  # all lines of a long string
            code.update(_lines(node))
        elif isinstance(node, (*FUNCTION, ast.ClassDef, ast.Module)):
            docstrings.update(_docstring(node))
            if isinstance(node, FUNCTION):
                functions.append((node.name, len(_lines(node)) - len(_docstring(node))))
    return Size(len(lines), len(code - imports - docstrings), len(imports), functions)


LONG = {
    "mutant_matmul": 120, "matmul_kernel_block_scaled": 105, "matmul_kernel": 97,
    "make_plan": 81, "prepare_tuning": 84, "run": 89,
}  # fmt: skip
"""Functions above 80 lines, most of them kernels: Triton compiles a kernel as one function."""


def _sizes(room: str = "") -> list[Size]:
    paths = SOURCE.glob("*.py") if room == "." else (SOURCE / room).rglob("*.py")
    return [size(path) for path in paths]


def test_every_room_has_a_budget():
    rooms = {path.relative_to(SOURCE).parts[0] for path in SOURCE.rglob("*/*.py")}
    assert rooms | {"."} == set(BUDGETS)


def test_rooms_keep_their_budgets():
    found = {room: sum(one.code for one in _sizes(room)) for room in BUDGETS}
    assert {room: code for room, code in found.items() if code > BUDGETS[room]} == {}


def test_the_tests_keep_theirs():
    assert sum(size(path).code for path in (ROOT / "tests").rglob("*.py")) <= TESTS


def test_files_are_few_and_none_is_long():
    sizes = _sizes()
    code, imports = (sum(getattr(one, name) for one in sizes) for name in ("code", "imports"))
    assert len(sizes) <= FILES
    assert code / len(sizes) >= 180
    assert imports <= 0.09 * (code + imports)
    assert max(one.lines for one in sizes) <= 1000


def test_functions_are_short():
    functions = [function for one in _sizes() for function in one.functions]
    lengths = [length for _, length in functions]
    assert statistics.median(lengths) <= 9
    assert statistics.quantiles(lengths, n=20)[-1] <= 35
    assert [one for one in functions if one[1] > max(80, LONG.get(one[0], 0))] == []
