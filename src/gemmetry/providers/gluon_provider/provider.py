"""What the Gluon kernel computes, and with which tiles; their names are those of the Triton
provider.

The provider: supported operations, configurations, compiling ahead and building.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING, ClassVar

from gemmetry.domain.contracts import Compiled, Executable, Workspace
from gemmetry.domain.dispatch import (
    DEFAULT_CONFIGURATION,
    Configuration,
    Dispatch,
    Target,
    TargetKind,
)
from gemmetry.domain.errors import CompileError, DispatchError, UnsupportedError
from gemmetry.domain.operation import BF16, F16, F32, Layout, Operation, OperationKind, Scaling
from gemmetry.providers.base import BaseProvider
from gemmetry.providers.triton_provider.block_scaled import Architecture, architecture_of
from gemmetry.providers.triton_provider.tiles import TritonTile, parse_tile, why_invalid

if TYPE_CHECKING:
    from gemmetry.providers.triton_provider.compiling import Built


ARCHITECTURE = "sm_90"
_OLDEST_TRITON = (3, 6)
"""The first version with everything that the kernel uses; 3.9 was tried too."""
_ROW_BYTES = 16
"""Rows must be multiples of it (cuTensorMapEncodeTiled, globalStrides)."""
_LARGEST_BOX = 256
"""Elements of a tile that is copied, along each axis (cuTensorMapEncodeTiled, boxDim)."""
_FEWEST_PROGRAMS = 100
"""``default`` takes the first tile with so many programs: about one per multiprocessor."""

_TILES = tuple(
    TritonTile(*row)
    for row in (
        (128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (256, 128, 64, 8, 3), (256, 128, 64, 8, 4),
        (128, 128, 64, 8, 4), (128, 128, 64, 4, 4), (128, 128, 128, 8, 3), (64, 256, 64, 4, 4),
        (64, 128, 64, 4, 4), (64, 64, 64, 4, 4),
    )
)  # fmt: skip


def missing_triton() -> str | None:
    """Why the kernel cannot be compiled here, judged by versions alone; None if it can."""
    try:
        version = metadata.version("triton")
        metadata.version("torch")
    except metadata.PackageNotFoundError as error:
        return f"{error.name} not installed; pip install 'gemmetry[{error.name}]'"
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST_TRITON:
        return f"Gluon needs triton 3.6 or later, not {version}"
    return None


def reason_against(operation: Operation, target: Target) -> str | None:
    """None if the kernel computes `operation` on `target`, else the reason."""
    s = operation.signature
    if target.kind is not TargetKind.CUDA or _architecture(target) is None:
        return f"the Gluon kernel is for NVIDIA Hopper (cuda-{ARCHITECTURE}), not {target}"
    if s.kind is not OperationKind.MATMUL:
        return f"the Gluon kernel does matmul, not {s.kind}"
    if s.lhs is not s.rhs or s.lhs not in (BF16, F16) or s.result not in (s.lhs, F32):
        return f"the Gluon kernel multiplies bf16 and f16, not {s.lhs} with {s.rhs} to {s.result}"
    if s.accumulator is not F32:
        return f"the Gluon kernel accumulates in f32, not {s.accumulator}"
    if s.alpha != 1 or s.beta != 0 or s.epilogue or s.scaling is not Scaling.NONE:
        return "the Gluon kernel computes A @ B alone, without alpha, beta, scaling or an epilogue"
    if s.lhs_layout is not Layout.ROW or s.result_layout is not Layout.ROW:
        return "the Gluon kernel needs a row-major A and C (layouts t, any, t)"
    for spec in (*operation.inputs, operation.output):
        size = spec.storage_shape[-1] * spec.dtype.itemsize
        if size % _ROW_BYTES:
            return f"bulk copies need rows of a multiple of {_ROW_BYTES} bytes; {spec.role}: {size}"
        if spec.elements >= 2**31:
            return f"{spec.role} has more than 2^31 - 1 elements"
    return None


def why_unsuitable(tile: TritonTile, operation: Operation) -> str | None:
    """Why the kernel cannot have this tile, or None."""
    architecture = _architecture(Target(TargetKind.CUDA, ARCHITECTURE, None))
    assert architecture is not None
    if tile.warps % 4 or tile.block_m % (16 * tile.warps):
        return f"{tile.name}: groups of 4 warps multiply 64 rows each"
    if max(tile.block_m, tile.block_n) > _LARGEST_BOX or tile.stages < 2:
        return f"{tile.name}: tiles have at most 256 rows and columns, and 2 stages or more"
    return why_invalid(tile, operation, architecture)


def configurations(operation: Operation) -> Iterator[Configuration]:
    """``default`` with its actual parameters, then every tile that suits."""
    yield Configuration(DEFAULT_CONFIGURATION, choose(operation).parameters)
    yield from (tile.configuration for tile in _suitable(operation))


def choose(operation: Operation) -> TritonTile:
    """The tile of ``default``: the first one that gives every multiprocessor a program, else the
    one with the most."""
    tiles = _suitable(operation)
    enough = (tile for tile in tiles if tile.tiles(operation) >= _FEWEST_PROGRAMS)
    return next(enough, max(tiles, key=lambda tile: tile.tiles(operation)))


def tile_of(name: str, operation: Operation) -> TritonTile | None:
    """The tile of a configuration, listed or not; None for other names."""
    return choose(operation) if name == DEFAULT_CONFIGURATION else parse_tile(name)


def _suitable(operation: Operation) -> list[TritonTile]:
    return [tile for tile in _TILES if why_unsuitable(tile, operation) is None]


def _architecture(target: Target) -> Architecture | None:
    found = architecture_of(target)
    return found if found is not None and found.name == ARCHITECTURE else None


class GluonProvider(BaseProvider):
    """Takes no options."""

    name: ClassVar[str] = "gluon"
    description: ClassVar[str] = "a GEMM for Hopper in Triton's Gluon, to compare with CUDA C++"

    def available(self) -> str | None:
        return missing_triton()

    def targets(self) -> Sequence[Target]:
        cross = Target(TargetKind.CUDA, ARCHITECTURE, None)
        if self.available() is not None:
            return [cross]
        from gemmetry.hardware.torch_device import gpu_targets

        hopper = [t for t in gpu_targets() if t.name == cross.name]
        return [*hopper, cross]

    def supports(self, operation: Operation, target: Target) -> str | None:
        return reason_against(operation, target)

    def configurations(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        return configurations(operation)

    def parse_configuration(
        self, name: str, operation: Operation, target: Target
    ) -> Configuration | None:
        if name == DEFAULT_CONFIGURATION:
            return next(iter(self.configurations(operation, target)))
        tile = parse_tile(name)
        return tile.configuration if tile and not tile.method else None

    def why_not(self, name: str, operation: Operation, target: Target) -> str | None:
        tile = parse_tile(name)
        return None if tile is None else why_unsuitable(tile, operation)

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
        from gemmetry.hardware.torch_device import open_device

        open_device(target)

    def build(self, dispatch: Dispatch, workspace: Workspace) -> Executable:
        if reason := self.supports(dispatch.operation, dispatch.target):
            raise UnsupportedError(f"{dispatch}: {reason}")
        if dispatch.target.index is None:
            raise UnsupportedError(
                f"no {dispatch.target} device is here, so {dispatch.name} can only be compiled"
            )
        from gemmetry.hardware.torch_device import open_device
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
        tile = tile_of(name, dispatch.operation)
        architecture = architecture_of(dispatch.target)
        assert tile is not None and architecture is not None
        if reason := why_unsuitable(tile, dispatch.operation):
            raise CompileError(reason, hint="List valid ones with `gemmetry list configurations`.")
        built = compile_tile(
            dispatch, tile, architecture, workspace.generated, force=workspace.force
        )
        if name == DEFAULT_CONFIGURATION:
            facts = replace(built.facts, default_configuration=tile.name)
            built = built._replace(facts=facts)
        return tile, built


PROVIDER = GluonProvider
