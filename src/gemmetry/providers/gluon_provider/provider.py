"""The provider: supported operations, configurations, compiling ahead and building."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING, ClassVar

from gemmetry.domain.contracts import Compiled, Executable, Workspace
from gemmetry.domain.dispatch import DEFAULT_CONFIGURATION, Configuration, Dispatch
from gemmetry.domain.errors import CompileError, DispatchError, UnsupportedError
from gemmetry.domain.operation import Operation
from gemmetry.domain.target import Target, TargetKind
from gemmetry.providers.base import BaseProvider
from gemmetry.providers.gluon_provider import tiles
from gemmetry.providers.triton_provider.architectures import architecture_of
from gemmetry.providers.triton_provider.tiles import TritonTile, parse_tile

if TYPE_CHECKING:
    from gemmetry.providers.triton_provider.compiling import Built


class GluonProvider(BaseProvider):
    """Takes no options."""

    name: ClassVar[str] = "gluon"
    description: ClassVar[str] = "a GEMM for Hopper in Triton's Gluon, to compare with CUDA C++"

    def available(self) -> str | None:
        return tiles.missing_triton()

    def targets(self) -> Sequence[Target]:
        cross = Target(TargetKind.CUDA, tiles.ARCHITECTURE, None)
        if self.available() is not None:
            return [cross]
        from gemmetry.devices.torch import gpu_targets

        hopper = [t for t in gpu_targets() if t.name == cross.name]
        return [*hopper, cross]

    def supports(self, operation: Operation, target: Target) -> str | None:
        return tiles.reason_against(operation, target)

    def configurations(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        return tiles.configurations(operation)

    def parse_configuration(
        self, name: str, operation: Operation, target: Target
    ) -> Configuration | None:
        if name == DEFAULT_CONFIGURATION:
            return next(iter(self.configurations(operation, target)))
        tile = parse_tile(name)
        return tile.configuration if tile and not tile.method else None

    def why_not(self, name: str, operation: Operation, target: Target) -> str | None:
        tile = parse_tile(name)
        return None if tile is None else tiles.why_unsuitable(tile, operation)

    def compiles_ahead(self, target: Target) -> bool:
        return target.is_gpu

    def compile(self, dispatches: Sequence[Dispatch], workspace: Workspace) -> Iterable[Compiled]:
        def one(dispatch: Dispatch) -> Compiled:
            try:
                return Compiled(
                    dispatch=dispatch, facts=self._compile(dispatch, workspace)[1].facts
                )
            except DispatchError as error:
                return Compiled(dispatch=dispatch, error=error)

        with ThreadPoolExecutor(max(workspace.jobs, 1)) as pool:
            return list(pool.map(one, dispatches))

    def prepare(self, target: Target) -> None:
        from gemmetry.devices.torch import open_device

        open_device(target)

    def build(self, dispatch: Dispatch, workspace: Workspace) -> Executable:
        if reason := self.supports(dispatch.operation, dispatch.target):
            raise UnsupportedError(f"{dispatch}: {reason}")
        if dispatch.target.index is None:
            raise UnsupportedError(
                f"no {dispatch.target} device is here, so {dispatch.name} can only be compiled"
            )
        from gemmetry.devices.torch import open_device
        from gemmetry.providers.gluon_provider.kernel import GluonExecutable

        device = open_device(dispatch.target)
        tile, built = self._compile(dispatch, replace(workspace, force=False))
        return GluonExecutable(dispatch, tile, built, device)

    def versions(self) -> Mapping[str, str]:
        if self.available() is not None:
            return {}
        return {name: metadata.version(name) for name in ("triton", "torch")}

    def _compile(self, dispatch: Dispatch, workspace: Workspace) -> tuple[TritonTile, Built]:
        if reason := self.supports(dispatch.operation, dispatch.target):
            raise UnsupportedError(f"{dispatch}: {reason}")
        from gemmetry.providers.gluon_provider.kernel import compile_tile

        name = dispatch.configuration.name
        tile = tiles.tile_of(name, dispatch.operation)
        architecture = architecture_of(dispatch.target)
        assert tile is not None and architecture is not None
        if reason := tiles.why_unsuitable(tile, dispatch.operation):
            raise CompileError(reason, hint="List valid ones with `gemmetry list configurations`.")
        built = compile_tile(
            dispatch, tile, architecture, workspace.generated, force=workspace.force
        )
        if name == DEFAULT_CONFIGURATION:
            facts = replace(built.facts, default_configuration=tile.name)
            built = built._replace(facts=facts)
        return tile, built


PROVIDER = GluonProvider
