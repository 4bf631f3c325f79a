"""Command lines that reproduce gemmetry's work with IREE's own tools, and their input files."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gemmetry.domain.contracts import HostArray
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.names import operation_name
from gemmetry.domain.operation import Operation, TensorSpec
from gemmetry.providers.iree_provider.compiling.linalg import storage_type
from gemmetry.providers.iree_provider.targets import device_uri

_INPUTS_MODULE = "gemmetry.providers.iree_provider.input_files"

_NPY_DTYPES = ("f64", "f32", "f16", "s8", "s32")
"""Formats that ``.npy`` files support; the others (bf16, fp8) are written as raw bytes."""


def compile_command(dispatch: Dispatch, source: Path, flags: Sequence[str]) -> str:
    """A shell command that compiles only this function from the operation's file."""
    pick = f"/^func.func @{dispatch.name}(/,/^}}/p"
    words = ["iree-compile", "-", *flags, "-o", f"{dispatch.name}.vmfb"]
    return f"sed -n {shlex.quote(pick)} {shlex.quote(str(source))} | {shlex.join(words)}"


def run_command(dispatch: Dispatch, binary: Path) -> str:
    """A shell command that writes the inputs next to the binary, then times the function on them
    with ``iree-benchmark-module``. ``{seed}`` and ``{distribution}`` in it stand for the run's
    own."""
    folder = binary.parent / "inputs"
    words = [
        "iree-benchmark-module",
        f"--module={binary}",
        f"--device={device_uri(dispatch.target)}",
        f"--function={dispatch.name}",
    ]
    words += [f"--input={_input(spec, folder)}" for spec in dispatch.operation.inputs]
    words.append(f"--input={_shape(dispatch.operation.output)}=0")
    writing = ["python", "-m", _INPUTS_MODULE, operation_name(dispatch.operation), str(folder)]
    return f"{shlex.join(writing)} {{seed}} {{distribution}} && {shlex.join(words)}"


def write_inputs(operation: Operation, arrays: Sequence[HostArray], folder: Path) -> list[Path]:
    """Write the operation's inputs the way :func:`run_command` names them.

    Args:
        operation: the operation whose inputs `arrays` are, in the order of ``operation.inputs``.
        arrays: host arrays in storage shapes.
        folder: the ``inputs`` folder next to the binary, created if it does not exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for spec, array in zip(operation.inputs, arrays, strict=True):
        path = folder / _file_name(spec)
        if path.suffix == ".npy":
            np.save(path, array, allow_pickle=False)
        else:
            np.ascontiguousarray(array).tofile(path)
        paths.append(path)
    return paths


def _file_name(spec: TensorSpec) -> str:
    return f"{spec.role}.{'npy' if spec.dtype.name in _NPY_DTYPES else 'bin'}"


def _shape(spec: TensorSpec) -> str:
    return storage_type(spec).removeprefix("tensor<").removesuffix(">")


def _input(spec: TensorSpec, folder: Path) -> str:
    path = folder / _file_name(spec)
    return f"@{path}" if path.suffix == ".npy" else f"{_shape(spec)}=@{path}"
