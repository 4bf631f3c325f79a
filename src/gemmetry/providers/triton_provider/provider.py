"""The provider: supported operations, configurations, compiling ahead and building."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from gemmetry.domain.contracts import Compiled, Executable, Workspace
from gemmetry.domain.dispatch import DEFAULT_CONFIGURATION, Configuration, Dispatch
from gemmetry.domain.errors import CompileError, DispatchError, UnsupportedError
from gemmetry.domain.operation import Operation
from gemmetry.domain.target import Target, TargetKind
from gemmetry.providers.base import BaseProvider
from gemmetry.providers.files import output_folder, write_atomically
from gemmetry.providers.triton_provider import block_scaled, tiles
from gemmetry.providers.triton_provider.architectures import architecture_of, cross_targets
from gemmetry.providers.triton_provider.files import kernel_source
from gemmetry.providers.triton_provider.plan import make_plan
from gemmetry.providers.triton_provider.search_space import search_space
from gemmetry.providers.triton_provider.support import reason_against, require_interpreter

if TYPE_CHECKING:
    from gemmetry.providers.triton_provider.compiling import Built

_INTERPRETED_STEP_S = 1e-3
"""Approximate time of one tile step in Triton's interpreter, which is numpy with overhead."""


class TritonProvider(BaseProvider):
    """Options: ``interpret`` (true: run in Triton's interpreter, on the CPU, for checking)."""

    name: ClassVar[str] = "triton"
    description: ClassVar[str] = "this project's own Triton kernel with tile configurations"

    @property
    def interprets(self) -> bool:
        return bool(self.options.get("interpret", False))

    def available(self) -> str | None:
        missing = [name for name in ("triton", "torch") if importlib.util.find_spec(name) is None]
        if missing:
            extras = ",".join(sorted(missing, reverse=True))
            return f"{' and '.join(missing)} not installed; pip install 'gemmetry[{extras}]'"
        return None

    def targets(self) -> Sequence[Target]:
        if self.interprets:
            return [Target(TargetKind.CPU)]
        if self.available() is not None:
            return cross_targets()
        from gemmetry.devices.torch import gpu_targets

        return [*gpu_targets(), *cross_targets()]

    def supports(self, operation: Operation, target: Target) -> str | None:
        return reason_against(operation, target, interprets=self.interprets)

    def configurations(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        return tiles.configurations(operation, architecture_of(target))

    def search_space(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        return search_space(operation, architecture_of(target))

    def parse_configuration(
        self, name: str, operation: Operation, target: Target
    ) -> Configuration | None:
        if name == DEFAULT_CONFIGURATION:
            return next(iter(self.configurations(operation, target)))
        tile = tiles.parse_tile(name)
        return tile.configuration if tile else None

    def why_not(self, name: str, operation: Operation, target: Target) -> str | None:
        tile, architecture = tiles.parse_tile(name), architecture_of(target)
        if tile is None:
            return None
        if architecture is None:
            return tiles.wrong_method(tile, operation, None)
        return tiles.why_invalid(tile, operation, architecture)

    def compiles_ahead(self, target: Target) -> bool:
        return target.is_gpu

    def generate(self, dispatches: Sequence[Dispatch], workspace: Workspace) -> Sequence[Path]:
        """Write the kernel's source, and the compile parameters of each dispatch as JSON."""
        written: dict[Path, bytes] = {}
        for dispatch in dispatches:
            folder = output_folder(workspace.generated, dispatch)
            tile = self._tile(dispatch)
            plan = make_plan(dispatch.operation, tile)
            text = json.dumps(plan.document(), indent=2) + "\n"
            modules = ["triton_matmul"]
            modules += ["triton_block_scaled"] * (dispatch.operation.signature.blocks is not None)
            modules += ["triton_descriptors"] * tile.describes
            written |= {folder / f"{name}.py": kernel_source(name) for name in modules}
            stem = f"{dispatch.configuration.name}.{_architecture_name(dispatch)}"
            written[folder / f"{stem}.json"] = text.encode()
        return [write_atomically(path, data) for path, data in written.items()]

    def compile(self, dispatches: Sequence[Dispatch], workspace: Workspace) -> Iterable[Compiled]:
        if self.interprets:
            return [Compiled(dispatch=dispatch) for dispatch in dispatches]
        self.generate(dispatches, workspace)

        def one(dispatch: Dispatch) -> Compiled:
            try:
                return Compiled(dispatch=dispatch, facts=self._compile(dispatch, workspace).facts)
            except DispatchError as error:
                return Compiled(dispatch=dispatch, error=error)

        with ThreadPoolExecutor(max(workspace.jobs, 1)) as pool:
            return list(pool.map(one, dispatches))

    def prepare(self, target: Target) -> None:
        from gemmetry.devices.torch import open_device

        import_module("gemmetry.providers.triton_provider.executable")
        import_module("gemmetry.providers.triton_provider.compiling")
        open_device(target)

    def build(self, dispatch: Dispatch, workspace: Workspace) -> Executable:
        if reason := self.supports(dispatch.operation, dispatch.target):
            raise UnsupportedError(reason)
        if self.interprets:
            return self._build_interpreted(dispatch)
        if dispatch.target.index is None:
            raise UnsupportedError(
                f"no {dispatch.target} device is here, so {dispatch.name} can only be compiled"
            )
        from gemmetry.devices.torch import open_device
        from gemmetry.providers.triton_provider.executable import load

        device = open_device(dispatch.target)
        built = self._compile(dispatch, replace(workspace, force=False))
        plan = make_plan(dispatch.operation, self._tile(dispatch))
        return load(dispatch, plan, built, device)

    def seconds_per_launch(self, dispatch: Dispatch) -> float | None:
        if not self.interprets:
            return None
        tile = self._tile(dispatch)
        steps = -(-dispatch.operation.matmul_shape.k // tile.block_k)
        return tile.tiles(dispatch.operation) * (steps + 1) * _INTERPRETED_STEP_S

    def versions(self) -> Mapping[str, str]:
        if self.available() is not None:
            return {}
        import torch
        import triton

        return {"triton": triton.__version__, "torch": torch.__version__}

    def _tile(self, dispatch: Dispatch) -> tiles.TritonTile:
        architecture = architecture_of(dispatch.target)
        return tiles.tile_of(dispatch.configuration, dispatch.operation, architecture)

    def _compile(self, dispatch: Dispatch, workspace: Workspace) -> Built:
        from gemmetry.providers.triton_provider.compiling import compile_kernel

        architecture = architecture_of(dispatch.target)
        if reason := self.supports(dispatch.operation, dispatch.target):
            raise UnsupportedError(reason)
        assert architecture is not None
        tile = self._tile(dispatch)
        if reason := tiles.wrong_method(tile, dispatch.operation, architecture):
            raise UnsupportedError(reason)
        if reason := tiles.why_invalid(tile, dispatch.operation, architecture):
            raise CompileError(reason, hint="List valid ones with `gemmetry list configurations`.")
        plan = make_plan(dispatch.operation, tile)
        built = compile_kernel(
            dispatch, plan, architecture, workspace.generated, force=workspace.force
        )
        facts = built.facts
        signature = dispatch.operation.signature
        if signature.blocks is not None:
            how = block_scaled.note(signature, tile.method, architecture)
            facts = replace(facts, notes=(*facts.notes, how))
        if dispatch.configuration.name == DEFAULT_CONFIGURATION:
            facts = replace(facts, default_configuration=tile.name)
        return built._replace(facts=facts)

    def _build_interpreted(self, dispatch: Dispatch) -> Executable:
        require_interpreter()
        from gemmetry.devices.torch import open_device
        from gemmetry.providers.triton_provider.executable import interpreted

        tile = self._tile(dispatch)
        if reason := tiles.wrong_method(tile, dispatch.operation, None):
            raise UnsupportedError(reason)
        plan = make_plan(dispatch.operation, tile, interprets=True)
        return interpreted(dispatch, plan, open_device(dispatch.target))


def _architecture_name(dispatch: Dispatch) -> str:
    return dispatch.target.architecture or str(dispatch.target.kind)


PROVIDER = TritonProvider
