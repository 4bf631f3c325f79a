"""The reviewable ``.mlir`` files: one per operation, one function per configuration.

A file accumulates every requested configuration, including those of other targets, so that several
runs can share a folder; it is replaced atomically, so a reader never sees a partial file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.errors import StorageError
from gemmetry.domain.names import operation_name
from gemmetry.domain.operation import Operation
from gemmetry.formats.files import write_whole
from gemmetry.providers.files import locked
from gemmetry.providers.iree_provider.compiling.linalg import function_text
from gemmetry.providers.iree_provider.tiling.configurations import parse_tile
from gemmetry.providers.iree_provider.tiling.tiles import Lowering

DIALECT = "linalg"

_FUNCTION = re.compile(r"^func\.func @(?P<name>\w+)\(\n.*?^\}\n", re.MULTILINE | re.DOTALL)


def operation_folder(generated: Path, operation: Operation) -> Path:
    """``<generated>/linalg/<kind>/<operation>``, as the old dispatch profiler laid it out."""
    return generated / DIALECT / operation.kind.value / operation_name(operation)


def source_path(generated: Path, operation: Operation) -> Path:
    """Path of the file with the operation's functions."""
    name = operation_name(operation)
    return operation_folder(generated, operation) / f"{name}.mlir"


def lowering_of(dispatch: Dispatch) -> Lowering:
    """The lowering that the dispatch's configuration specifies; empty for an unknown name."""
    tile = parse_tile(dispatch.configuration.name, dispatch.target)
    return Lowering() if tile is None else tile.lowering(dispatch.operation)


def dispatch_function(dispatch: Dispatch) -> str:
    """The function of one dispatch; its symbol is the dispatch's name."""
    info = lowering_of(dispatch).compilation_info
    return function_text(dispatch.operation, dispatch.name, info)


def parse_functions(text: str) -> dict[str, str]:
    """Function name -> its text, in the order of the file."""
    return {match["name"]: match[0] for match in _FUNCTION.finditer(text)}


def source_text(operation: Operation, functions: Mapping[str, str]) -> str:
    """The whole file."""
    header = (
        f"// {operation_name(operation)}\n"
        "// One function per tuning configuration; all compute the same.\n"
    )
    return "\n".join([header, *functions.values()])


def write_source(generated: Path, dispatches: Iterable[Dispatch]) -> Path:
    """Add the functions of dispatches of one operation to its file; unchanged files are not
    rewritten.

    Raises:
        StorageError: the folder cannot be written.
    """
    wanted = list(dispatches)
    operation = wanted[0].operation
    path = source_path(generated, operation)
    try:
        with locked(path.parent):
            before = path.read_text() if path.exists() else ""
            functions = parse_functions(before)
            functions.update((dispatch.name, dispatch_function(dispatch)) for dispatch in wanted)
            text = source_text(operation, functions)
            if text != before:
                write_whole(path, text.encode())
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}",
            hint="Free some space, or choose another folder with --generated-dir.",
        ) from error
    return path
