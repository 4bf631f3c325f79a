"""Integer expressions of a manifest: ``ceil(N, TILE)``, ``2 * STAGES * TILE_K``, ``K % 8 == 0``.

They are Python's, limited to the arithmetic below, and are computed without executing anything
else, because a manifest is data.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_OPERATORS: Mapping[type[ast.AST], Callable[..., int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}

FUNCTIONS: Mapping[str, Callable[..., int]] = {
    "ceil": lambda size, step: -(-size // step),
    "min": min,
    "max": max,
}
"""``ceil(a, b)`` is a divided by b, rounded up."""

_GRAMMAR = "+ - * // %, comparisons, and, or, not, parentheses, ceil(a, b), min() and max()"


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression, parsed."""

    text: str
    _tree: ast.expr

    @property
    def names(self) -> frozenset[str]:
        """The sizes and macros that it mentions."""
        nodes = ast.walk(self._tree)
        return frozenset(n.id for n in nodes if isinstance(n, ast.Name)) - FUNCTIONS.keys()

    def value(self, names: Mapping[str, int]) -> int:
        """Its value, where comparisons are 1 or 0.

        Raises:
            ValueError: it divides by zero, or calls a function with a wrong number of arguments.
        """
        try:
            return int(_value(self._tree, names))
        except (ArithmeticError, TypeError) as error:
            raise ValueError(f"{self.text!r} has no value: {error}") from None


def parse_expression(text: str | int) -> Expression:
    """Raises:
    ValueError: it is not an expression of the grammar; the message says where.
    """
    if isinstance(text, bool) or not isinstance(text, int | str):
        raise ValueError(f"{text!r} is neither a number nor an expression")
    try:
        tree = ast.parse(str(text), mode="eval").body
    except (SyntaxError, ValueError):
        raise ValueError(f"{text!r} is not an expression of {_GRAMMAR}") from None
    _check(tree, str(text))
    return Expression(str(text), tree)


def _check(node: ast.expr, text: str) -> None:
    match node:
        case ast.Constant(value=value) if type(value) is int:
            return
        case ast.Name():
            return
        case ast.BinOp(op=op) if type(op) in _OPERATORS:
            inner = [node.left, node.right]
        case ast.UnaryOp(op=op) if type(op) in _OPERATORS:
            inner = [node.operand]
        case ast.Compare(ops=ops) if all(type(op) in _OPERATORS for op in ops):
            inner = [node.left, *node.comparators]
        case ast.BoolOp():
            inner = node.values
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in FUNCTIONS:
            inner = node.args
        case _:
            part = ast.unparse(node)
            hint = "; // divides" if isinstance(node, ast.BinOp) else ""
            raise ValueError(f"{part!r} in {text!r} is not made of {_GRAMMAR}{hint}")
    for one in inner:
        _check(one, text)


def _value(node: Any, names: Mapping[str, int]) -> int:
    """The value of an expression that :func:`_check` has accepted."""
    match node:
        case ast.Constant():
            return int(node.value)  # type: ignore[arg-type]
        case ast.Name(id=name):
            return names[name]
        case ast.BinOp():
            left, right = _value(node.left, names), _value(node.right, names)
            return _OPERATORS[type(node.op)](left, right)
        case ast.UnaryOp():
            return _OPERATORS[type(node.op)](_value(node.operand, names))
        case ast.Compare():
            values = [_value(part, names) for part in (node.left, *node.comparators)]
            pairs = zip(node.ops, values[:-1], values[1:], strict=True)
            return all(_OPERATORS[type(op)](left, right) for op, left, right in pairs)
        case ast.BoolOp():
            wanted = all if isinstance(node.op, ast.And) else any
            return wanted(_value(part, names) for part in node.values)
        case _:
            return FUNCTIONS[node.func.id](*(_value(part, names) for part in node.args))
