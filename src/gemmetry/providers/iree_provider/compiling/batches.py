"""Compiles dispatches: reuses existing results and groups the rest into calls."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gemmetry.domain.contracts import Compiled, Workspace
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.errors import CompileError
from gemmetry.domain.record import BuildFacts
from gemmetry.domain.target import TargetKind
from gemmetry.providers.iree_provider import reproduce, targets
from gemmetry.providers.iree_provider.compiling import artefacts, readback, sources
from gemmetry.providers.iree_provider.compiling.compiler import (
    MAX_FUNCTIONS,
    CompileJob,
    IreeCompiler,
    JobResult,
)
from gemmetry.providers.iree_provider.tiling import vectors
from gemmetry.providers.iree_provider.tiling.tiles import DATA_TILING, DEFAULT, LEGACY_DEFAULT

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
        folder = artefacts.compiled_folder(workspace.generated, dispatch.operation)
        return folder / artefact.binary

    def flags(self, dispatch: Dispatch) -> tuple[str, ...]:
        """All flags of ``iree-compile`` except input and output."""
        base = targets.target_flags(dispatch.target, dispatch.operation, self._options)
        return (*base, *sources.lowering_of(dispatch).flags)

    def _is_risky(self, compiler: IreeCompiler, dispatch: Dispatch, flags: Sequence[str]) -> bool:
        """Whether the compiler will probably reject it."""
        vector_bytes = sources.lowering_of(dispatch).vector_bytes
        if vector_bytes < vectors.SMALLEST_LIMIT_BYTES:
            return False
        limit = vectors.vector_limit_bytes(compiler.program, flags)
        return limit is None or vector_bytes >= limit

    def _find(
        self, dispatch: Dispatch, flags: Sequence[str], workspace: Workspace
    ) -> artefacts.Artefact | None:
        key = artefacts.artefact_key(dispatch, flags)
        version = None if self._compiler is None else self._version
        found = artefacts.find_artefact(workspace.generated, dispatch, key, version)
        older = targets.compiled_as(dispatch.target, dispatch.operation)
        if found is not None or older is None:
            return found
        twin = replace(dispatch, target=older)
        found = artefacts.find_artefact(workspace.generated, twin, key, version)
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
            by_name[name]: (artefacts.artefact_key(by_name[name], flags), text)
            for name, text in result.logs.items()
        }
        artefacts.store_logs(generated, logs)
        good = [by_name[name] for name in result.names]
        binaries = artefacts.store_binary(generated, good, result.binary) if good else {}
        share = result.duration_ns // max(1, len(good))
        done: list[Compiled] = []
        for dispatch in good:
            configured = result.configured.get(dispatch.name, "")
            chosen = None
            if dispatch.configuration.name in _COMPILER_CHOOSES:
                chosen = readback.chosen_configuration(configured)
            artefact = artefacts.Artefact(
                compiler_version=self._version,
                binary=binaries[dispatch],
                compile_ns=share,
                default_configuration=chosen,
                compiled_for=_compiled_for(dispatch, configured),
            )
            key = artefacts.artefact_key(dispatch, flags)
            code = result.machine_code.get(dispatch.name)
            if code is not None:
                artefact = replace(
                    artefact,
                    assembly=artefacts.store_machine_code(generated, dispatch, key, code),
                    matrix_instruction=code.matrix_instruction,
                    registers=code.registers,
                    spill_bytes=code.spill_bytes,
                    shared_memory_bytes=code.shared_memory_bytes,
                )
            artefacts.store_artefact(generated, dispatch, key, artefact)
            done.append(
                Compiled(dispatch=dispatch, facts=self._facts(dispatch, artefact, workspace))
            )
        for operation in dict.fromkeys(dispatch.operation for dispatch in good):
            artefacts.link_operation(generated, operation)
        yield from done
        for name, error in result.errors.items():
            dispatch = by_name[name]
            facts = self._source_facts(dispatch, workspace)
            yield Compiled(dispatch=dispatch, facts=facts, error=error)

    def _source_facts(self, dispatch: Dispatch, workspace: Workspace) -> BuildFacts:
        source = sources.source_path(workspace.generated, dispatch.operation)
        flags = self.flags(dispatch)
        key = artefacts.artefact_key(dispatch, flags)
        log = artefacts.log_path(workspace.generated, dispatch, key)
        return BuildFacts(
            source_path=_relative(source, workspace),
            tool_output_path=_relative(log, workspace) if log.exists() else None,
            compile_command=reproduce.compile_command(dispatch, source, flags),
        )

    def _facts(
        self, dispatch: Dispatch, artefact: artefacts.Artefact, workspace: Workspace
    ) -> BuildFacts:
        folder = artefacts.compiled_folder(workspace.generated, dispatch.operation)
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
            run_command=reproduce.run_command(dispatch, binary) if has_device else None,
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
        functions = {d.name: sources.dispatch_function(d) for d in part}
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


def _notes(dispatch: Dispatch, artefact: artefacts.Artefact) -> tuple[str, ...]:
    notes = list(sources.lowering_of(dispatch).notes)
    is_cuda = dispatch.target.kind is TargetKind.CUDA
    if (
        is_cuda
        and targets.cuda_number(dispatch.target.architecture) >= 90
        and artefact.compiled_for
    ):
        notes.append(targets.SM90_NOTE)
    if dispatch.target.index is not None and dispatch.target.kind is not TargetKind.CPU:
        notes.append(_GPU_TIMING)
    return tuple(notes)


def _relative(path: Path, workspace: Workspace) -> str:
    """Relative to the experiment folder, which holds the folder ``generated``."""
    return str(path.relative_to(workspace.generated.parent))
