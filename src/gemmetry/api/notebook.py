"""Writes a function of a notebook or prompt to a file, so that worker processes can import it."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from gemmetry.domain.errors import RequestError, StorageError
from gemmetry.store.places import DEFAULT_FOLDER

_CONSTANTS = (bool, int, float, str, bytes, type(None))


def write_notebook_kernel(function: Callable[..., Any], folder: Path | None) -> Path:
    """Write `function`, and everything of its notebook that it uses, to ``kernels/`` in `folder`.

    Raises:
        RequestError: its source is not known, or it uses something that cannot be written.
        StorageError: the file cannot be written.
    """
    text = kernel_source(function)
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    place = (folder or DEFAULT_FOLDER) / "kernels"
    path = (place / f"{function.__name__}_{digest}.py").resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"cannot write the kernel to {path}: {error.strerror}",
            hint="Give run() an experiment folder that you can write to.",
        ) from error
    return path


def kernel_source(function: Callable[..., Any]) -> str:
    """A module's text: imports, constants and helper functions of the notebook that `function`
    uses, then the function without its decorators.

    Raises:
        RequestError: a source is not known, or a value cannot be written as text.
    """
    parts: dict[str, str] = {}
    _collect(function.__name__, function, parts, chain=function.__name__)
    imports = [text for text in parts.values() if text.startswith(("import ", "from "))]
    rest = [text for text in parts.values() if not text.startswith(("import ", "from "))]
    # Annotations stay texts, so that the names in them need not exist.
    return "\n".join(["from __future__ import annotations", *imports, "", *rest])


def _collect(name: str, value: Any, parts: dict[str, str], *, chain: str) -> None:
    """Add the text that defines `name` as `value`, after the definitions that it needs."""
    if name in parts:
        return
    if isinstance(value, ModuleType):
        parts[name] = f"import {value.__name__} as {name}"
    elif (origin := _importable(value)) is not None:
        parts[name] = f"from {origin[0]} import {origin[1]} as {name}"
    elif isinstance(value, FunctionType):
        if value.__closure__:
            raise _cannot(chain, f"{value.__name__} uses variables of a function around it")
        parts[name] = ""  # breaks cycles of functions that call each other
        definition = _definition(value)
        for used in sorted(_global_names(value.__code__) | _default_names(definition)):
            if used in value.__globals__:
                _collect(used, value.__globals__[used], parts, chain=f"{chain} uses {used}")
        del parts[name]
        parts[name] = definition
    elif _is_constant(value):
        parts[name] = f"{name} = {value!r}"
    else:
        raise _cannot(
            chain, f"{name} is a {type(value).__name__}, which cannot be written as source code"
        )


def _cannot(chain: str, why: str) -> RequestError:
    return RequestError(
        f"cannot write the kernel into a file ({chain}): {why}",
        hint="Define it inside the function, or put the kernel into a .py file.",
    )


def _importable(value: Any) -> tuple[str, str] | None:
    """(module, name) from which a worker can import `value`; None if it exists only here."""
    module_name, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    module = sys.modules.get(module_name or "")
    if module is None or name is None or module_name == "__main__":
        return None
    if getattr(module, "__file__", None) is None or getattr(module, name, None) is not value:
        return None
    return str(module_name), str(name)


def _global_names(code: CodeType) -> set[str]:
    """Names that the code and the functions inside it may look up in the module."""
    nested: Iterable[CodeType] = (c for c in code.co_consts if isinstance(c, CodeType))
    return {*code.co_names, *(name for inner in nested for name in _global_names(inner))}


def _default_names(definition: str) -> set[str]:
    """Names in the parameters' defaults, which are looked up when the module is imported."""
    node = ast.parse(definition).body[0]
    if not isinstance(node, ast.FunctionDef):
        return set()
    defaults = [*node.args.defaults, *(value for value in node.args.kw_defaults if value)]
    return {n.id for tree in defaults for n in ast.walk(tree) if isinstance(n, ast.Name)}


def _definition(function: FunctionType) -> str:
    """The function's source from its ``def`` on; decorators are for the notebook only."""
    try:
        lines, _ = inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        raise _cannot(function.__name__, f"its source is not known ({error})") from error
    text = textwrap.dedent("".join(lines))
    kept = text.splitlines(keepends=True)
    start = next((i for i, line in enumerate(kept) if line.startswith("def ")), None)
    if start is None:
        raise _cannot(function.__name__, "it is not a def at the top level")
    return "".join(kept[start:]).rstrip() + "\n"


def _is_constant(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_constant(item) for item in value)
    return isinstance(value, _CONSTANTS)
