"""The reviewable ``.mlir`` files: one per operation, one function per configuration.

A file accumulates every requested configuration, including those of other targets, so that several
runs can share a folder; it is replaced atomically, so a reader never sees a partial file.

Compiled artefacts, stored next to the sources and identified by the hash of everything they
depend on.

A small JSON file per dispatch names the binary that holds its function and is written last; all
files are renamed into place, so a process killed at any moment leaves at most unreferenced files.
They are in the folder ``compiled``; its parent folder has the binaries, and the compiler's output,
under the names used by IREE's old dispatch profiler.

Command lines that reproduce gemmetry's work with IREE's own tools, and their input files.

Compiles dispatches: reuses existing results and groups the rest into calls.

``python -m gemmetry.providers.iree_provider.batches OPERATION FOLDER [SEED [DISTRIBUTION]]``
writes the files that a printed ``iree-benchmark-module`` line names.

A module of its own, because the provider does not need it: only printed commands do.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gemmetry.domain.contracts import Compiled, HostArray, Workspace
from gemmetry.domain.dispatch import Dispatch, TargetKind
from gemmetry.domain.errors import CompileError, GemmetryError
from gemmetry.domain.files import completed, write_whole
from gemmetry.domain.names import parse_operation
from gemmetry.domain.operation import Operation, TensorSpec, operation_name
from gemmetry.domain.record import BuildFacts
from gemmetry.domain.settings import RunSettings
from gemmetry.hardware.detect import processor_identity
from gemmetry.numerics.inputs import make_inputs
from gemmetry.providers.base import compute_capability, locked, unwritable, write_atomically
from gemmetry.providers.iree_provider import compiler as readback
from gemmetry.providers.iree_provider import support as targets
from gemmetry.providers.iree_provider import tiles as vectors
from gemmetry.providers.iree_provider.compiler import (
    MAX_FUNCTIONS,
    CompileJob,
    IreeCompiler,
    JobResult,
)
from gemmetry.providers.iree_provider.linalg import function_text, storage_type
from gemmetry.providers.iree_provider.machine_code import MachineCode
from gemmetry.providers.iree_provider.support import device_uri
from gemmetry.providers.iree_provider.tiles import DATA_TILING, DEFAULT, LEGACY_DEFAULT, Lowering
from gemmetry.providers.iree_provider.tiling import parse_tile

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
        raise unwritable(path, error) from error
    return path


COMPILE_LOG = "iree_compile_cmd_stdout.mlir"
"""File in an operation's folder with every call that compiled one of its functions, and its
output."""


USES = ("profile", "verify")
"""The purposes in the names of the dispatch profiler's binaries; here both names refer to the same
code."""


@dataclass(frozen=True, slots=True)
class Artefact:
    """The stored facts of a compiled dispatch."""

    compiler_version: str
    binary: str
    """File name of the ``.vmfb``, in the folder ``compiled`` of the operation's folder."""
    compile_ns: int
    """This function's share of the compile call."""
    default_configuration: str | None = None
    compiled_for: str | None = None
    assembly: str | None = None
    """File name of the machine code, in the binary's folder; None where it is not available."""
    matrix_instruction: str | None = None
    registers: int | None = None
    spill_bytes: int | None = None
    shared_memory_bytes: int | None = None


def artefact_key(dispatch: Dispatch, flags: Sequence[str]) -> str:
    """Sixteen hex digits over source, flags and (for the CPU) the host's processor."""
    host = processor_identity() if "--iree-llvmcpu-target-cpu=host" in flags else ""
    parts = [dispatch_function(dispatch), *flags, host]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def compiled_folder(generated: Path, operation: Operation) -> Path:
    """The folder of an operation's binaries and their records."""
    return operation_folder(generated, operation) / "compiled"


def log_path(generated: Path, dispatch: Dispatch, key: str) -> Path:
    """Output of the compiler and the assembler about a dispatch."""
    return _path(generated, dispatch, key, ".log")


def _path(generated: Path, dispatch: Dispatch, key: str, suffix: str) -> Path:
    folder = compiled_folder(generated, dispatch.operation)
    return folder / f"{dispatch.configuration.name}_{dispatch.target.name}_{key}{suffix}"


def find_artefact(
    generated: Path, dispatch: Dispatch, key: str, compiler_version: str | None
) -> Artefact | None:
    """The complete result of an earlier compile with exactly this key; None if there is none.

    Args:
        generated: the workspace's folder.
        dispatch: the dispatch whose binary is needed.
        key: its :func:`artefact_key`.
        compiler_version: the required compiler version; None accepts any (there is no compiler
            here, and the binary came from another machine).
    """
    path = _path(generated, dispatch, key, ".json")
    try:
        fields: dict[str, Any] = json.loads(path.read_text())
        artefact = Artefact(**fields)
    except (OSError, ValueError, TypeError):
        return None
    if compiler_version not in (None, artefact.compiler_version):
        return None
    return artefact if (path.parent / artefact.binary).is_file() else None


def store_binary(
    generated: Path, dispatches: Sequence[Dispatch], binary: bytes
) -> dict[Dispatch, str]:
    """Store the binary that holds `dispatches` in the folder of each one's operation.

    There ``<dispatch>_<target>_profile.vmfb`` and ``..._verify.vmfb`` point to it.

    Returns:
        The binary's file name for each dispatch.

    Raises:
        StorageError: the disk is full or the folder cannot be written.
    """
    digest = hashlib.sha256(binary).hexdigest()[:12]
    names: dict[Dispatch, str] = {}
    first: Path | None = None
    for dispatch in dispatches:
        path = compiled_folder(generated, dispatch.operation)
        path = path / f"{dispatch.target.name}_{digest}.vmfb"
        names[dispatch] = path.name
        try:
            path.parent.mkdir(exist_ok=True)
            if path.exists():
                pass
            elif first is None:
                write_whole(path, binary)
            else:
                _same_file(first, path, binary)
            for use in USES:
                name = f"{dispatch.name}_{dispatch.target.name}_{use}.vmfb"
                _point(path.parent.parent / name, path)
        except OSError as error:
            raise unwritable(path, error) from error
        first = first or path
    return names


def store_machine_code(generated: Path, dispatch: Dispatch, key: str, code: MachineCode) -> str:
    """Write a dispatch's machine code next to its binary. Returns the file name.

    Raises:
        StorageError: it cannot be written.
    """
    path = _path(generated, dispatch, key, code.suffix)
    return write_atomically(path, code.text.encode()).name


def store_logs(generated: Path, logs: Mapping[Dispatch, tuple[str, str]]) -> None:
    """Write the output about each dispatch, and append it to the ``COMPILE_LOG`` of its operation.

    Args:
        generated: the workspace's folder.
        logs: dispatch -> its :func:`artefact_key` and the text; many dispatches share a text.

    Raises:
        StorageError: they cannot be written.
    """
    first: dict[str, Path] = {}
    folders = dict.fromkeys(operation_folder(generated, d.operation) for d in logs)
    try:
        for dispatch, (key, text) in logs.items():
            path = log_path(generated, dispatch, key)
            path.parent.mkdir(exist_ok=True)
            if text in first:
                _same_file(first[text], path, text.encode())
            else:
                write_whole(path, text.encode())
                first[text] = path
        for folder in folders:
            with locked(folder):
                paths = sorted((folder / "compiled").glob("*.log"))
                texts = dict.fromkeys(path.read_text(errors="replace") for path in paths)
                write_whole(folder / COMPILE_LOG, "\n".join(texts).encode())
    except OSError as error:
        raise unwritable(generated, error) from error


def store_artefact(generated: Path, dispatch: Dispatch, key: str, artefact: Artefact) -> None:
    """Write the record that marks a dispatch as compiled.

    Raises:
        StorageError: it cannot be written.
    """
    path = _path(generated, dispatch, key, ".json")
    fields = {name: value for name, value in asdict(artefact).items() if value is not None}
    write_atomically(path, json.dumps(fields, indent=1).encode())


def link_operation(generated: Path, operation: Operation) -> None:
    """Point ``<operation>_profile.vmfb`` and ``..._verify.vmfb`` to the binary that holds most of
    the operation's dispatches, which is all of them where they were compiled in one call.

    Raises:
        StorageError: the links cannot be created.
    """
    folder = operation_folder(generated, operation)
    try:
        with locked(folder):
            counts: Counter[str] = Counter()
            for path in sorted((folder / "compiled").glob("*.json")):
                counts[str(json.loads(path.read_text()).get("binary"))] += 1
            for binary, _ in counts.most_common(1):
                for use in USES:
                    name = f"{folder.name}_{use}.vmfb"
                    _point(folder / name, folder / "compiled" / binary)
    except (OSError, ValueError) as error:
        cause = error if isinstance(error, OSError) else OSError(str(error))
        raise unwritable(folder, cause) from error


def _point(link: Path, path: Path) -> None:
    """Make `link` a symbolic link to `path`, in a neighbouring folder, replacing any existing file.
    A hard link would become a separate copy in most ways of copying a folder."""
    with completed(link) as temporary:
        temporary.symlink_to(path.relative_to(link.parent))


def _same_file(source: Path, path: Path, content: bytes) -> None:
    """Hard-link `source`, which holds `content`, to `path`, replacing any existing file; where the
    file system has no hard links, copy it."""
    # Renaming a hard link to another link of the same file leaves both; here the temporary name is
    # removed in every case.
    with completed(path) as temporary:
        try:
            os.link(source, temporary)
        except OSError:
            temporary.write_bytes(content)


_INPUTS_MODULE = "gemmetry.providers.iree_provider.batches"

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


_GPU_TIMING = (
    "timed by the host's clock around queued launches: about 15 µs of host work per launch hide "
    "the time of shorter kernels"
)
"""On an H200, launches of 1 to 10 µs took 15 µs when fifty were queued."""

_COMPILER_CHOOSES = {DEFAULT.name, LEGACY_DEFAULT.name, DATA_TILING.name}


class BatchCompiler:
    """Compiles dispatches whose sources have been written.

    Args:
        compiler: runs the jobs; None where only the runtime is installed, so that binaries compiled
            elsewhere and copied here are used.
        compiler_version: the compiler version required of binaries that are reused.
        options: the provider's.
    """

    def __init__(
        self, compiler: IreeCompiler | None, compiler_version: str, options: Mapping[str, Any]
    ) -> None:
        self._compiler = compiler
        self._version = compiler_version
        self._options = options

    def compile(self, dispatches: Sequence[Dispatch], workspace: Workspace) -> Iterator[Compiled]:
        """Yields one result per dispatch as soon as it is known."""
        pending: dict[tuple[tuple[str, ...], bool], dict[str, Dispatch]] = {}
        for dispatch in dispatches:
            flags = self.flags(dispatch)
            may_reuse = self._compiler is None or not workspace.force
            artefact = self._find(dispatch, flags, workspace) if may_reuse else None
            if artefact is not None:
                yield Compiled(dispatch=dispatch, facts=self._facts(dispatch, artefact, workspace))
            elif self._compiler is None:
                yield Compiled(dispatch=dispatch, error=_no_compiler(dispatch))
            else:
                is_risky = self._is_risky(self._compiler, dispatch, flags)
                pending.setdefault((flags, is_risky), {})[dispatch.name] = dispatch
        if self._compiler is None:
            return
        by_name = {name: dispatch for group in pending.values() for name, dispatch in group.items()}
        jobs = [
            job
            for (flags, _), group in pending.items()
            for job in _jobs(list(group.values()), flags, workspace.jobs)
        ]
        for job, results in self._compiler.run(jobs, max(1, workspace.jobs)):
            for result in results:
                yield from self._keep(by_name, job.flags, result, workspace)

    def binary_path(self, dispatch: Dispatch, workspace: Workspace) -> Path:
        """The path of the binary of a compiled dispatch.

        Raises:
            CompileError: it was not compiled.
        """
        artefact = self._find(dispatch, self.flags(dispatch), workspace)
        if artefact is None:
            raise CompileError(f"{dispatch.name} has no compiled binary")
        folder = compiled_folder(workspace.generated, dispatch.operation)
        return folder / artefact.binary

    def flags(self, dispatch: Dispatch) -> tuple[str, ...]:
        """All flags of ``iree-compile`` except input and output."""
        base = targets.target_flags(dispatch.target, dispatch.operation, self._options)
        return (*base, *lowering_of(dispatch).flags)

    def _is_risky(self, compiler: IreeCompiler, dispatch: Dispatch, flags: Sequence[str]) -> bool:
        """Whether the compiler will probably reject it."""
        vector_bytes = lowering_of(dispatch).vector_bytes
        if vector_bytes < vectors.SMALLEST_LIMIT_BYTES:
            return False
        limit = vectors.vector_limit_bytes(compiler.program, flags)
        return limit is None or vector_bytes >= limit

    def _find(
        self, dispatch: Dispatch, flags: Sequence[str], workspace: Workspace
    ) -> Artefact | None:
        key = artefact_key(dispatch, flags)
        version = None if self._compiler is None else self._version
        found = find_artefact(workspace.generated, dispatch, key, version)
        older = targets.compiled_as(dispatch.target, dispatch.operation)
        if found is not None or older is None:
            return found
        twin = replace(dispatch, target=older)
        found = find_artefact(workspace.generated, twin, key, version)
        if found is None:
            return None
        # The same flags give the same binary, but ptxas counts registers per architecture.
        architecture = targets.compile_architecture(dispatch.target, dispatch.operation)
        return replace(found, registers=None, spill_bytes=None, compiled_for=architecture)

    def _keep(
        self,
        by_name: Mapping[str, Dispatch],
        flags: tuple[str, ...],
        result: JobResult,
        workspace: Workspace,
    ) -> Iterator[Compiled]:
        """Store the results of a job. Yields the outcome of each of its dispatches."""
        generated = workspace.generated
        logs = {
            by_name[name]: (artefact_key(by_name[name], flags), text)
            for name, text in result.logs.items()
        }
        store_logs(generated, logs)
        good = [by_name[name] for name in result.names]
        binaries = store_binary(generated, good, result.binary) if good else {}
        share = result.duration_ns // max(1, len(good))
        done: list[Compiled] = []
        for dispatch in good:
            configured = result.configured.get(dispatch.name, "")
            chosen = None
            if dispatch.configuration.name in _COMPILER_CHOOSES:
                chosen = readback.chosen_configuration(configured)
            artefact = Artefact(
                compiler_version=self._version,
                binary=binaries[dispatch],
                compile_ns=share,
                default_configuration=chosen,
                compiled_for=_compiled_for(dispatch, configured),
            )
            key = artefact_key(dispatch, flags)
            code = result.machine_code.get(dispatch.name)
            if code is not None:
                artefact = replace(
                    artefact,
                    assembly=store_machine_code(generated, dispatch, key, code),
                    matrix_instruction=code.matrix_instruction,
                    registers=code.registers,
                    spill_bytes=code.spill_bytes,
                    shared_memory_bytes=code.shared_memory_bytes,
                )
            store_artefact(generated, dispatch, key, artefact)
            done.append(
                Compiled(dispatch=dispatch, facts=self._facts(dispatch, artefact, workspace))
            )
        for operation in dict.fromkeys(dispatch.operation for dispatch in good):
            link_operation(generated, operation)
        yield from done
        for name, error in result.errors.items():
            dispatch = by_name[name]
            facts = self._source_facts(dispatch, workspace)
            yield Compiled(dispatch=dispatch, facts=facts, error=error)

    def _source_facts(self, dispatch: Dispatch, workspace: Workspace) -> BuildFacts:
        source = source_path(workspace.generated, dispatch.operation)
        flags = self.flags(dispatch)
        key = artefact_key(dispatch, flags)
        log = log_path(workspace.generated, dispatch, key)
        return BuildFacts(
            source_path=_relative(source, workspace),
            tool_output_path=_relative(log, workspace) if log.exists() else None,
            compile_command=compile_command(dispatch, source, flags),
        )

    def _facts(self, dispatch: Dispatch, artefact: Artefact, workspace: Workspace) -> BuildFacts:
        folder = compiled_folder(workspace.generated, dispatch.operation)
        binary = folder / artefact.binary
        assembly = None if artefact.assembly is None else folder / artefact.assembly
        has_device = dispatch.target.index is not None
        return replace(
            self._source_facts(dispatch, workspace),
            registers=artefact.registers,
            spill_bytes=artefact.spill_bytes,
            shared_memory_bytes=artefact.shared_memory_bytes,
            matrix_instruction=artefact.matrix_instruction,
            compiled_for=artefact.compiled_for,
            default_configuration=artefact.default_configuration,
            compile_ns=artefact.compile_ns,
            binary_path=_relative(binary, workspace),
            assembly_path=None if assembly is None else _relative(assembly, workspace),
            run_command=run_command(dispatch, binary) if has_device else None,
            notes=_notes(dispatch, artefact),
        )


def _jobs(
    dispatches: Sequence[Dispatch], flags: tuple[str, ...], parallel: int
) -> Iterator[CompileJob]:
    """Split into calls: as few as the limit allows, but enough for every processor."""
    share = math.ceil(len(dispatches) / max(1, parallel))
    size = max(1, min(MAX_FUNCTIONS, share))
    for start in range(0, len(dispatches), size):
        part = dispatches[start : start + size]
        functions = {d.name: dispatch_function(d) for d in part}
        yield CompileJob(functions, flags, part[0].target.architecture)


def _no_compiler(dispatch: Dispatch) -> CompileError:
    return CompileError(
        f"this machine has no iree-compile, and no binary of {dispatch.name} from another machine",
        hint="pip install 'gemmetry[iree]', give --iree-bin-dir, or copy the generated folder.",
    )


def _compiled_for(dispatch: Dispatch, configured: str) -> str | None:
    if dispatch.target.kind is TargetKind.CPU:
        return readback.host_cpu(configured)
    architecture = targets.compile_architecture(dispatch.target, dispatch.operation)
    return architecture if architecture != dispatch.target.architecture else None


def _notes(dispatch: Dispatch, artefact: Artefact) -> tuple[str, ...]:
    notes = list(lowering_of(dispatch).notes)
    is_cuda = dispatch.target.kind is TargetKind.CUDA
    if is_cuda and compute_capability(dispatch.target.architecture) >= 90 and artefact.compiled_for:
        notes.append(targets.SM90_NOTE)
    if dispatch.target.index is not None and dispatch.target.kind is not TargetKind.CPU:
        notes.append(_GPU_TIMING)
    return tuple(notes)


def _relative(path: Path, workspace: Workspace) -> str:
    """Relative to the experiment folder, which holds the folder ``generated``."""
    return str(path.relative_to(workspace.generated.parent))


def main(arguments: Sequence[str]) -> int:
    """Write the inputs of an operation; the exit status."""
    if not 2 <= len(arguments) <= 4:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    name, folder, *rest = arguments
    seed = rest[0] if rest else str(RunSettings().seed)
    distribution = rest[1] if len(rest) > 1 else RunSettings().distribution
    if not seed.isdecimal():
        sys.stderr.write(f"error: the seed {seed!r} is not a whole number\n")
        return 2
    try:
        operation = parse_operation(name)
        arrays = make_inputs(operation, distribution=distribution, seed=int(seed))
        write_inputs(operation, arrays, Path(folder))
    except GemmetryError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_status
    except OSError as error:
        sys.stderr.write(f"error: cannot write {folder}: {error.strerror or error}\n")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
