"""The provider ``iree``: linalg functions, compiled by iree-compile, run by iree.runtime."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakValueDictionary

from gemmetry.domain.contracts import Compiled, Executable, Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind
from gemmetry.domain.errors import DispatchError, UnsupportedError
from gemmetry.domain.operation import Operation
from gemmetry.domain.tables import grouped
from gemmetry.providers.base import BaseProvider, Requirement, is_installed
from gemmetry.providers.iree_provider import support
from gemmetry.providers.iree_provider.batches import BatchCompiler, write_source, write_tuning_specs
from gemmetry.providers.iree_provider.compiler import IreeCompiler, find_program
from gemmetry.providers.iree_provider.tiles import (
    parse_tile,
    search_tiles,
    tiles_for,
    vector_limit_bytes,
)

if TYPE_CHECKING:
    from gemmetry.providers.iree_provider.device import LoadedModule


_PACKAGES = {"iree.compiler": "iree-base-compiler", "iree.runtime": "iree-base-runtime"}


class IreeProvider(BaseProvider):
    """IREE's code generation, one function per tuning configuration.

    Options (all optional): ``iree_bin_dir``, a folder with ``iree-compile``; ``target_cpu``, the
    processor to compile for on a CPU (default: this one); ``compile_flags``, a list of additional
    flags; ``compile_timeout_s``; ``threads`` of the CPU device; ``tuning_specs``: true writes each
    configuration as a tuning spec too.
    """

    name: ClassVar[str] = "iree"
    description: ClassVar[str] = "IREE: linalg compiled for CPU, CUDA, ROCm and Vulkan"
    rebuilds_quickly: bool = False
    requires: ClassVar[Sequence[Requirement]] = (("iree.runtime", "iree-base-runtime", "iree"),)

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        self._modules: WeakValueDictionary[tuple[str, str], LoadedModule] = WeakValueDictionary()

    def available(self) -> str | None:
        if reason := self.missing():
            return reason
        bin_dir = self.options.get("iree_bin_dir")
        if bin_dir and self._compiler_path() is None:
            return f"there is no iree-compile in {bin_dir}"
        return None

    def doctor_notes(self) -> tuple[str, ...]:
        """Notes of ``gemmetry doctor`` in addition to ``available``."""
        if self._compiler_path() is None:
            return ("iree-compile is missing: only binaries compiled elsewhere can run.",)
        return (support.SM90_NOTE,)

    def supports(self, operation: Operation, target: Target) -> str | None:
        return support.unsupported_reason(operation, target)

    def configurations(self, operation: Operation, target: Target) -> Iterator[Configuration]:
        found = tiles_for(operation, target, self._vector_limit(operation, target))
        return (tile.configuration for tile in found)

    def search_space(self, operation: Operation, target: Target) -> Iterator[Configuration]:
        found = search_tiles(operation, target, self._vector_limit(operation, target))
        return (tile.configuration for tile in found)

    def _vector_limit(self, operation: Operation, target: Target) -> int | None:
        """Bytes of a vector that the compiler rejects on a CPU; None: not known."""
        program = self._compiler_path() if target.kind is TargetKind.CPU else None
        if program is None:
            return None
        return vector_limit_bytes(program, support.target_flags(target, operation, self.options))

    def parse_configuration(
        self, name: str, operation: Operation, target: Target
    ) -> Configuration | None:
        tile = parse_tile(name, target)
        return None if tile is None else tile.configuration

    def targets(self) -> Sequence[Target]:
        attached = support.attached_targets() if self.available() is None else ()
        return (Target(TargetKind.CPU), *attached, *support.COMPILE_ONLY)

    def compiles_ahead(self, target: Target) -> bool:
        return True

    def generate(self, dispatches: Sequence[Dispatch], workspace: Workspace) -> Sequence[Path]:
        good = [dispatch for dispatch in dispatches if self._refusal(dispatch) is None]
        operations = grouped(good, lambda dispatch: dispatch.operation).values()
        paths = [write_source(workspace.generated, of) for of in operations]
        if self.options.get("tuning_specs"):
            for of in operations:
                paths += write_tuning_specs(of, workspace.generated)
        return paths

    def compile(self, dispatches: Sequence[Dispatch], workspace: Workspace) -> Iterable[Compiled]:
        good: list[Dispatch] = []
        for dispatch in dispatches:
            if refusal := self._refusal(dispatch):
                yield Compiled(dispatch=dispatch, error=refusal)
            else:
                good.append(dispatch)
        if good:
            self.generate(good, workspace)
            yield from self._batches(workspace).compile(good)

    def build(self, dispatch: Dispatch, workspace: Workspace) -> Executable:
        from gemmetry.providers.iree_provider.device import (
            IreeExecutable,
            LoadedModule,
            open_device,
        )

        if dispatch.target.index is None:
            raise UnsupportedError(
                f"{dispatch.target.name} is not on this machine",
                hint="`gemmetry compile` compiles it; measuring requires the device.",
            )
        (compiled,) = self.compile([dispatch], replace(workspace, force=False))
        if compiled.error is not None:
            raise compiled.error
        device = open_device(dispatch.target, int(self.options.get("threads", 0)))
        path = workspace.generated.parent / str(compiled.facts.binary_path)
        key = (dispatch.target.device, str(path))
        module = self._modules.get(key) or LoadedModule(device, path)
        self._modules[key] = module
        return IreeExecutable(device, module, dispatch.name, compiled.facts)

    def versions(self) -> Mapping[str, str]:
        return {
            package: importlib.metadata.version(package)
            for module, package in _PACKAGES.items()
            if is_installed(module)
        }

    def _refusal(self, dispatch: Dispatch) -> DispatchError | None:
        """Reason why the dispatch is not passed to the compiler at all."""
        reason = self.supports(dispatch.operation, dispatch.target)
        name = dispatch.configuration.name
        if reason is None and (tile := parse_tile(name, dispatch.target)):
            reason = tile.problem(dispatch.operation)
        elif reason is None:
            reason = f"{name!r} is not a configuration for {dispatch.target}"
        return None if reason is None else UnsupportedError(f"{dispatch.name}: {reason}")

    def _batches(self, workspace: Workspace) -> BatchCompiler:
        program = self._compiler_path()
        compiler = None
        version = self.versions().get("iree-base-compiler", "")
        if program is not None:
            timeout = self.options.get("compile_timeout_s")
            compiler = IreeCompiler(program, None if timeout is None else float(timeout))
            if self.options.get("iree_bin_dir"):
                # A compiler of the user's own has no package version; a rebuild changes its time.
                version = f"{program} {program.stat().st_mtime_ns}"
        return BatchCompiler(compiler, version, self.options, workspace)

    def _compiler_path(self) -> Path | None:
        packaged = None
        spec = importlib.util.find_spec("iree.compiler") if is_installed("iree.compiler") else None
        if spec is not None and spec.submodule_search_locations:
            packaged = Path(spec.submodule_search_locations[0]) / "_mlir_libs" / "iree-compile"
        return find_program("iree-compile", self.options.get("iree_bin_dir"), packaged)


PROVIDER = IreeProvider
