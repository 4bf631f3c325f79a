"""Files of IREE's dispatches: reviewable sources, compiled artefacts, commands and their inputs.

There is one ``.mlir`` file per operation, with one function per configuration. It accumulates every
requested configuration, including those of other targets, so that several runs can share a folder;
it is replaced atomically, so a reader never sees a partial file.

Compiled artefacts are stored next to the sources and identified by the hash of everything they
depend on. A small JSON file per dispatch names the binary that holds its function and is written
last; all files are renamed into place, so a process killed at any moment leaves at most
unreferenced files. They are in the folder ``compiled``; its parent folder has the binaries, and the
compiler's output, under the names used by IREE's old dispatch profiler.

The same configuration as a tuning spec is a transform library that annotates matching contractions,
given to ``iree-compile --iree-codegen-tuning-spec-path``, without an edit of the input.

``python -m gemmetry.providers.iree_provider.batches OPERATION FOLDER [SEED [DISTRIBUTION]]``
writes the files that a printed ``iree-benchmark-module`` line names.
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

from gemmetry.domain.contracts import Compiled, HostArray, TunedDispatch, Workspace
from gemmetry.domain.dispatch import Dispatch, TargetKind, parse_operation
from gemmetry.domain.errors import CompileError, GemmetryError, RequestError, UnsupportedError
from gemmetry.domain.files import completed, write_whole
from gemmetry.domain.operation import Operation, OperationKind, TensorSpec, operation_name
from gemmetry.domain.record import BuildFacts
from gemmetry.domain.settings import RunSettings
from gemmetry.hardware.detect import processor_identity
from gemmetry.numerics.inputs import make_inputs
from gemmetry.providers.base import compute_capability, locked, storing, write_atomically
from gemmetry.providers.iree_provider import compiler as readback
from gemmetry.providers.iree_provider import support, tiles
from gemmetry.providers.iree_provider.compiler import CompileJob, IreeCompiler, JobResult
from gemmetry.providers.iree_provider.linalg import (
    MLIR_TYPES,
    contraction_indexing_maps,
    contraction_types,
    function_text,
    storage_type,
)
from gemmetry.providers.iree_provider.tiles import lowering_of

COMPILE_LOG = "iree_compile_cmd_stdout.mlir"
"""File in an operation's folder with every call that compiled one of its functions, and its
output."""

USES = ("profile", "verify")
"""The purposes in the names of the dispatch profiler's binaries; here both names refer to the same
code."""

_FUNCTION = re.compile(r"^func\.func @(?P<name>\w+)\(\n.*?^\}\n", re.MULTILINE | re.DOTALL)


def operation_folder(generated: Path, operation: Operation) -> Path:
    """``<generated>/linalg/<kind>/<operation>``, as the old dispatch profiler laid it out."""
    return generated / "linalg" / operation.kind.value / operation_name(operation)


def source_path(generated: Path, operation: Operation) -> Path:
    """Path of the file with the operation's functions."""
    return operation_folder(generated, operation) / f"{operation_name(operation)}.mlir"


def dispatch_function(dispatch: Dispatch) -> str:
    """The function of one dispatch; its symbol is the dispatch's name."""
    return function_text(dispatch.operation, dispatch.name, lowering_of(dispatch).compilation_info)


def parse_functions(text: str) -> dict[str, str]:
    """Function name -> its text, in the order of the file."""
    return {match["name"]: match[0] for match in _FUNCTION.finditer(text)}


def write_source(generated: Path, dispatches: Sequence[Dispatch]) -> Path:
    """Add the functions of dispatches of one operation to its file; unchanged files are not
    rewritten.

    Raises:
        StorageError: the folder cannot be written.
    """
    operation = dispatches[0].operation
    path = source_path(generated, operation)
    with storing(path), locked(path.parent):
        before = path.read_text() if path.exists() else ""
        functions = parse_functions(before)
        functions.update((dispatch.name, dispatch_function(dispatch)) for dispatch in dispatches)
        header = (
            f"// {operation_name(operation)}\n"
            "// One function per tuning configuration; all compute the same.\n"
        )
        text = "\n".join([header, *functions.values()])
        if text != before:
            write_whole(path, text.encode())
    return path


_LIBRARY = """\
// Tuning spec: {name}
{left_out}module @{name}_spec attributes {{
  transform.with_named_sequence, iree_codegen.tuning_spec_with_default_entrypoint
}} {{
  transform.named_sequence @annotate(
      %op: !transform.any_op {{transform.readonly}},
      %info: !transform.any_param {{transform.readonly}}) {{
    transform.annotate %op "compilation_info" = %info
        : !transform.any_op, !transform.any_param
    transform.yield
  }}

{matchers}
  transform.named_sequence @__kernel_config(
      %op: !transform.any_op {{transform.consumed}}) -> !transform.any_op
      attributes {{iree_codegen.tuning_spec_entrypoint}} {{
    %done = transform.foreach_match in %op {pairs}
        : (!transform.any_op) -> !transform.any_op
    transform.yield %done : !transform.any_op
  }}
}}
"""

_MATCHER = """\
  transform.named_sequence @{match}(
      %op: !transform.any_op {{transform.readonly}})
      -> (!transform.any_op, !transform.any_param) {{
    %batch, %m, %n, %k = transform.iree.match.contraction %op,
        lhs_type = {lhs}, rhs_type = {rhs}, output_type = {output},
        indexing_maps = [{maps}]
        : !transform.any_op -> !transform.param<i64>
{sizes}
    %info = transform.param.constant {info}
        -> !transform.any_param
    transform.yield %op, %info : !transform.any_op, !transform.any_param
  }}
"""


def tuning_spec(dispatch: Dispatch) -> str:
    """The spec's text; it applies to contractions of exactly this size, types and layout.

    Raises:
        UnsupportedError: the spec language cannot match the operation, the configuration is not an
            attribute, or the target's backend does not read specs.
    """
    return _library(dispatch.name, {"match": _matcher(dispatch, "match")})


def tuned_text(shapes: Sequence[Sequence[TunedDispatch]], _device: str, _suffix: str) -> str:
    """One spec with, of each shape, the first dispatch that a spec can describe (see
    :class:`gemmetry.domain.contracts.TunedFormat`); a comment lists shapes without one.

    Raises:
        RequestError: none is left.
    """
    matchers: dict[str, str] = {}
    reasons: list[str] = []
    for tuned in shapes:
        refused: list[str] = []
        label = f"match_{len(matchers)}"
        for one in tuned:
            try:
                matchers[label] = _matcher(one.dispatch, label)
                break
            except UnsupportedError as error:
                refused.append(error.message)
        else:
            reasons += refused[:1]
    if not matchers:
        raise RequestError(
            "the tuning spec would be empty: " + (reasons[0] if reasons else "nothing was found"),
            hint="Search what a spec can describe: --dispatches 'configuration=tile_config_*'.",
        )
    return _library("gemmetry", matchers, reasons)


def _library(name: str, matchers: Mapping[str, str], left_out: Sequence[str] = ()) -> str:
    return _LIBRARY.format(
        name=name,
        left_out="".join(f"// Left out: {reason}\n" for reason in left_out),
        matchers="\n".join(matchers.values()),
        pairs=", ".join(f"@{label} -> @annotate" for label in matchers),
    )


def _matcher(dispatch: Dispatch, label: str) -> str:
    """
    Raises:
        UnsupportedError: see :func:`tuning_spec`.
    """
    operation = dispatch.operation
    info = lowering_of(dispatch).compilation_info
    if operation.kind is OperationKind.CONV2D or info is None:
        what = "convolutions" if info is not None else "configurations without attributes"
        raise UnsupportedError(
            f"{dispatch.name}: no tuning spec for {what}",
            hint="Specs are written for matmuls with a tile_config_... configuration.",
        )
    if dispatch.target.kind is TargetKind.CUDA:
        raise UnsupportedError(
            f"{dispatch.name}: IREE 3.13 passes tuning specs only to its CPU and ROCm backends",
            hint="On CUDA, use the attribute in the generated .mlir file.",
        )
    m, n, k = tiles.loop_sizes(operation)
    sizes = {"m": [m], "n": [n], "k": [k]}
    if operation.kind is OperationKind.BATCH_MATMUL:
        sizes["batch"] = [operation.matmul_shape.batch]
    elif operation.kind is OperationKind.MATMUL_SPLITK:
        sizes["batch"] = [operation.signature.split_k_slices]
    lhs, rhs = contraction_types(operation)
    return _MATCHER.format(
        match=label,
        lhs=lhs,
        rhs=rhs,
        output=MLIR_TYPES[operation.signature.accumulator.name],
        maps=", ".join(contraction_indexing_maps(operation)),
        sizes="\n".join(
            f"    transform.iree.match.dims_equal %{dim}, {size} : !transform.param<i64>"
            for dim, size in sizes.items()
        ),
        info=info,
    )


def write_tuning_specs(dispatches: Iterable[Dispatch], generated: Path) -> list[Path]:
    """Write ``<operation>_<configuration>_spec.mlir`` next to the sources of the dispatches that
    have a spec. Returns the files written.

    Raises:
        StorageError: the folder cannot be written.
    """
    paths = []
    for dispatch in dispatches:
        try:
            text = tuning_spec(dispatch)
        except UnsupportedError:
            continue  # `default`, convolutions, CUDA: there is nothing to write
        folder = operation_folder(generated, dispatch.operation)
        paths.append(write_atomically(folder / f"{dispatch.name}_spec.mlir", text.encode()))
    return paths


@dataclass(frozen=True, slots=True)
class Artefact:
    """A compiled dispatch as it is stored."""

    compiler_version: str
    binary: str
    """File name of the ``.vmfb``, in the folder ``compiled`` of the operation's folder."""
    facts: BuildFacts
    """Without paths and commands. The time is this function's share of the compile call."""
    assembly: str | None = None
    """File name of the machine code, next to the binary; None where it is not available."""


def artefact_stem(generated: Path, dispatch: Dispatch, flags: Sequence[str]) -> Path:
    """Path, without a suffix, of the files about a compiled dispatch. Its name ends with sixteen
    hex digits over source, flags and (for the CPU) the host's processor."""
    host = processor_identity() if "--iree-llvmcpu-target-cpu=host" in flags else ""
    parts = "\0".join([dispatch_function(dispatch), *flags, host])
    key = hashlib.sha256(parts.encode()).hexdigest()[:16]
    folder = operation_folder(generated, dispatch.operation) / "compiled"
    return folder / f"{dispatch.configuration.name}_{dispatch.target.name}_{key}"


def _file(stem: Path, suffix: str) -> Path:
    return stem.with_name(stem.name + suffix)


def find_artefact(stem: Path, compiler_version: str | None) -> Artefact | None:
    """The complete result of an earlier compile; None if there is none.

    Args:
        stem: the dispatch's :func:`artefact_stem`.
        compiler_version: the required compiler version; None accepts any (there is no compiler
            here, and the binary came from another machine).
    """
    try:
        stored: dict[str, Any] = json.loads(_file(stem, ".json").read_text())
        own = {name: stored.pop(name, None) for name in ("compiler_version", "binary", "assembly")}
        artefact = Artefact(**own, facts=BuildFacts(**stored))
        if compiler_version not in (None, artefact.compiler_version):
            return None
        return artefact if (stem.parent / artefact.binary).is_file() else None
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def store_artefact(stem: Path, artefact: Artefact) -> None:
    """Write the record that marks a dispatch as compiled.

    Raises:
        StorageError: the record cannot be written.
    """
    fields = asdict(artefact)
    fields |= fields.pop("facts")
    stored = {name: value for name, value in fields.items() if value not in (None, ())}
    write_atomically(_file(stem, ".json"), json.dumps(stored, indent=1).encode())


def store_binary(
    generated: Path, dispatches: Sequence[Dispatch], binary: bytes
) -> dict[Dispatch, str]:
    """Store the binary that holds `dispatches` in the folder of each one's operation.

    There ``<dispatch>_<target>_profile.vmfb`` and ``..._verify.vmfb`` point to it, and
    ``<operation>_profile.vmfb`` and ``..._verify.vmfb`` once :func:`link_operation` is called.

    Returns:
        The binary's file name for each dispatch.

    Raises:
        StorageError: the disk is full or the folder cannot be written.
    """
    digest = hashlib.sha256(binary).hexdigest()[:12]
    names: dict[Dispatch, str] = {}
    first: Path | None = None
    for dispatch in dispatches:
        folder = operation_folder(generated, dispatch.operation)
        path = folder / "compiled" / f"{dispatch.target.name}_{digest}.vmfb"
        names[dispatch] = path.name
        with storing(path):
            path.parent.mkdir(exist_ok=True)
            if not path.exists():
                _write_once(first, path, binary)
            _point(folder, f"{dispatch.name}_{dispatch.target.name}", path.name)
        first = first or path
    return names


def store_logs(logs: Mapping[Path, str]) -> None:
    """Write the output about each dispatch, and gather it in the ``COMPILE_LOG`` of its operation.

    Args:
        logs: the dispatch's :func:`artefact_stem` -> the text; many dispatches share a text.

    Raises:
        StorageError: a log cannot be written.
    """
    first: dict[str, Path] = {}
    for stem, text in logs.items():
        path = _file(stem, ".log")
        with storing(path):
            path.parent.mkdir(exist_ok=True)
            _write_once(first.get(text), path, text.encode())
        first.setdefault(text, path)
    for folder in dict.fromkeys(stem.parent.parent for stem in logs):
        with storing(folder), locked(folder):
            paths = sorted((folder / "compiled").glob("*.log"))
            texts = dict.fromkeys(path.read_text(errors="replace") for path in paths)
            write_whole(folder / COMPILE_LOG, "\n".join(texts).encode())


def link_operation(generated: Path, operation: Operation) -> None:
    """Point ``<operation>_profile.vmfb`` and ``..._verify.vmfb`` to the binary that holds most of
    the operation's dispatches, which is all of them where they were compiled in one call.

    Raises:
        StorageError: the links cannot be created.
    """
    folder = operation_folder(generated, operation)
    with storing(folder), locked(folder):
        records = sorted((folder / "compiled").glob("*.json"))
        counts = Counter(str(json.loads(path.read_text()).get("binary")) for path in records)
        for binary, _ in counts.most_common(1):
            _point(folder, folder.name, binary)


def _point(folder: Path, name: str, binary: str) -> None:
    """Make ``<name>_profile.vmfb`` and ``<name>_verify.vmfb`` symbolic links to a binary, replacing
    any existing file. Hard links would become separate copies in most ways of copying a folder."""
    for use in USES:
        with completed(folder / f"{name}_{use}.vmfb") as temporary:
            temporary.symlink_to(Path("compiled", binary))


def _write_once(same: Path | None, path: Path, content: bytes) -> None:
    """Hard-link `same`, a file that holds `content`, to `path`, replacing any existing file;
    without one, and where the file system has no hard links, write the content."""
    # Renaming a hard link to another link of the same file leaves both; here the temporary name is
    # removed in every case.
    with completed(path) as temporary:
        try:
            if same is not None:
                os.link(same, temporary)
                return
        except OSError:
            pass
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
        f"--device={support.device_uri(dispatch.target)}",
        f"--function={dispatch.name}",
    ]
    words += [f"--input={_input(spec, folder)}" for spec in dispatch.operation.inputs]
    words.append(f"--input={_shape(dispatch.operation.output)}=0")
    writing = ["python", "-m", _INPUTS_MODULE, operation_name(dispatch.operation), str(folder)]
    return f"{shlex.join(writing)} {{seed}} {{distribution}} && {shlex.join(words)}"


def _write_inputs(operation: Operation, arrays: Sequence[HostArray], folder: Path) -> None:
    """Write the operation's inputs the way :func:`run_command` names them."""
    folder.mkdir(parents=True, exist_ok=True)
    for spec, array in zip(operation.inputs, arrays, strict=True):
        path = folder / _file_name(spec)
        if path.suffix == ".npy":
            np.save(path, array, allow_pickle=False)
        else:
            np.ascontiguousarray(array).tofile(path)


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

_COMPILER_CHOOSES = {tiles.DEFAULT.name, tiles.LEGACY_DEFAULT.name, tiles.DATA_TILING.name}


@dataclass(frozen=True, slots=True)
class BatchCompiler:
    """Compiles dispatches whose sources have been written: reuses existing results and groups the
    rest into calls."""

    compiler: IreeCompiler | None
    """Runs the jobs; None where only the runtime is installed, so that binaries compiled elsewhere
    and copied here are used."""
    version: str
    """The compiler version required of binaries that are reused."""
    options: Mapping[str, Any]
    """The provider's."""
    workspace: Workspace
    """Folder of sources and binaries."""

    def compile(self, dispatches: Sequence[Dispatch]) -> Iterator[Compiled]:
        """Yields one result per dispatch as soon as it is known."""
        pending: dict[tuple[tuple[str, ...], bool], dict[str, Dispatch]] = {}
        for dispatch in dispatches:
            flags = self._flags(dispatch)
            may_reuse = self.compiler is None or not self.workspace.force
            artefact = self._find(dispatch) if may_reuse else None
            if artefact is not None:
                yield Compiled(dispatch=dispatch, facts=self._facts(dispatch, artefact))
            elif self.compiler is None:
                error = CompileError(
                    f"this machine has no iree-compile, and no binary of {dispatch.name} from "
                    "another machine",
                    hint="pip install 'gemmetry[iree]', give --iree-bin-dir, or copy the generated "
                    "folder.",
                )
                yield Compiled(dispatch=dispatch, error=error)
            else:
                is_risky = self._is_risky(self.compiler, dispatch, flags)
                pending.setdefault((flags, is_risky), {})[dispatch.name] = dispatch
        if self.compiler is None:
            return
        by_name = {name: dispatch for group in pending.values() for name, dispatch in group.items()}
        jobs = [
            job
            for (flags, _), group in pending.items()
            for job in _jobs(list(group.values()), flags, self.workspace.jobs)
        ]
        for _, results in self.compiler.run(jobs, max(1, self.workspace.jobs)):
            for result in results:
                yield from self._keep(by_name, result)

    def _flags(self, dispatch: Dispatch) -> tuple[str, ...]:
        """All flags of ``iree-compile`` except input and output."""
        base = support.target_flags(dispatch.target, dispatch.operation, self.options)
        return (*base, *lowering_of(dispatch).flags)

    def _stem(self, dispatch: Dispatch) -> Path:
        return artefact_stem(self.workspace.generated, dispatch, self._flags(dispatch))

    def _is_risky(self, compiler: IreeCompiler, dispatch: Dispatch, flags: Sequence[str]) -> bool:
        """Whether the compiler will probably reject it."""
        vector_bytes = lowering_of(dispatch).vector_bytes
        if vector_bytes < tiles.SMALLEST_LIMIT_BYTES:
            return False
        limit = tiles.vector_limit_bytes(compiler.program, flags)
        return limit is None or vector_bytes >= limit

    def _find(self, dispatch: Dispatch) -> Artefact | None:
        version = None if self.compiler is None else self.version
        found = find_artefact(self._stem(dispatch), version)
        older = support.compiled_as(dispatch.target, dispatch.operation)
        if found is not None or older is None:
            return found
        found = find_artefact(self._stem(replace(dispatch, target=older)), version)
        if found is None:
            return None
        # The same flags give the same binary, but ptxas counts registers per architecture.
        architecture = support.compile_architecture(dispatch.target, dispatch.operation)
        facts = replace(found.facts, registers=None, spill_bytes=None, compiled_for=architecture)
        return replace(found, facts=facts)

    def _keep(self, by_name: Mapping[str, Dispatch], result: JobResult) -> Iterator[Compiled]:
        """Store the results of a job. Yields the outcome of each of its dispatches."""
        generated = self.workspace.generated
        store_logs({self._stem(by_name[name]): text for name, text in result.logs.items()})
        good = [by_name[name] for name in result.names]
        binaries = store_binary(generated, good, result.binary) if good else {}
        done: list[Compiled] = []
        for dispatch in good:
            stem, configured = self._stem(dispatch), result.configured.get(dispatch.name, "")
            chosen = None
            if dispatch.configuration.name in _COMPILER_CHOOSES:
                chosen = readback.chosen_configuration(configured)
            code = result.machine_code.get(dispatch.name)
            facts = replace(
                BuildFacts() if code is None else code.facts,
                compile_ns=result.duration_ns // len(good),
                default_configuration=chosen,
                compiled_for=_compiled_for(dispatch, configured),
            )
            assembly = None
            if code is not None:
                assembly = write_atomically(_file(stem, code.suffix), code.text.encode()).name
            artefact = Artefact(self.version, binaries[dispatch], facts, assembly)
            store_artefact(stem, artefact)
            done.append(Compiled(dispatch=dispatch, facts=self._facts(dispatch, artefact)))
        for operation in dict.fromkeys(dispatch.operation for dispatch in good):
            link_operation(generated, operation)
        yield from done
        for name, error in result.errors.items():
            facts = self._facts(by_name[name], None)
            yield Compiled(dispatch=by_name[name], facts=facts, error=error)

    def _facts(self, dispatch: Dispatch, artefact: Artefact | None) -> BuildFacts:
        """Facts of a stored dispatch; without an artefact those of one that was rejected."""
        root, stem = self.workspace.generated.parent, self._stem(dispatch)

        def relative(path: Path) -> str:
            """Relative to the experiment folder, which holds the folder ``generated``."""
            return str(path.relative_to(root))

        source = source_path(self.workspace.generated, dispatch.operation)
        log = _file(stem, ".log")
        facts = replace(
            BuildFacts() if artefact is None else artefact.facts,
            source_path=relative(source),
            tool_output_path=relative(log) if log.exists() else None,
            compile_command=compile_command(dispatch, source, self._flags(dispatch)),
        )
        if artefact is None:
            return facts
        binary, assembly = stem.parent / artefact.binary, artefact.assembly
        has_device = dispatch.target.index is not None
        return replace(
            facts,
            binary_path=relative(binary),
            assembly_path=None if assembly is None else relative(stem.parent / assembly),
            run_command=run_command(dispatch, binary) if has_device else None,
            notes=_notes(dispatch, facts.compiled_for),
        )


def _jobs(
    dispatches: Sequence[Dispatch], flags: tuple[str, ...], parallel: int
) -> Iterator[CompileJob]:
    """Split into calls: as few as the limit allows, but enough for every processor."""
    size = max(1, min(readback.MAX_FUNCTIONS, math.ceil(len(dispatches) / max(1, parallel))))
    for start in range(0, len(dispatches), size):
        part = dispatches[start : start + size]
        functions = {d.name: dispatch_function(d) for d in part}
        yield CompileJob(functions, flags, part[0].target.architecture)


def _compiled_for(dispatch: Dispatch, configured: str) -> str | None:
    if dispatch.target.kind is TargetKind.CPU:
        return readback.host_cpu(configured)
    architecture = support.compile_architecture(dispatch.target, dispatch.operation)
    return architecture if architecture != dispatch.target.architecture else None


def _notes(dispatch: Dispatch, compiled_for: str | None) -> tuple[str, ...]:
    notes, target = list(lowering_of(dispatch).notes), dispatch.target
    is_new = compute_capability(target.architecture) >= 90
    if target.kind is TargetKind.CUDA and is_new and compiled_for:
        notes.append(support.SM90_NOTE)
    if target.index is not None and target.kind is not TargetKind.CPU:
        notes.append(_GPU_TIMING)
    return tuple(notes)


def main(arguments: Sequence[str]) -> int:
    """Write the inputs of an operation; return the exit status."""
    if not 2 <= len(arguments) <= 4:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    usual = (str(RunSettings().seed), RunSettings().distribution)
    name, folder, seed, distribution = (*arguments, *usual[len(arguments) - 2 :])
    if not seed.isdecimal():
        sys.stderr.write(f"error: the seed {seed!r} is not a whole number\n")
        return 2
    try:
        operation = parse_operation(name)
        arrays = make_inputs(operation, distribution=distribution, seed=int(seed))
        _write_inputs(operation, arrays, Path(folder))
    except GemmetryError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_status
    except OSError as error:
        sys.stderr.write(f"error: cannot write {folder}: {error.strerror or error}\n")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
