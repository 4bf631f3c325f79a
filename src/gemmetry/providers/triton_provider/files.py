"""Paths of generated files, and writing them atomically."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.errors import StorageError
from gemmetry.domain.names import operation_name


def output_folder(generated: Path, dispatch: Dispatch) -> Path:
    """``<generated>/triton/<kind>/<operation>``."""
    operation = dispatch.operation
    return generated / "triton" / str(operation.kind) / operation_name(operation)


def kernel_source(module: str = "triton_matmul") -> bytes:
    """The source of one of gemmetry's kernels, read as a file: importing it would import triton."""
    return files("gemmetry.kernels").joinpath(f"{module}.py").read_bytes()


def write_atomically(path: Path, data: bytes) -> Path:
    """Write `data` to `path`, creating its folder.

    Raises:
        StorageError: the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}",
            hint="Free some space or choose another folder with --generated-dir.",
        ) from error
    return path
