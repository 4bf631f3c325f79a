"""Operations of gemmetry's Triton kernel, decided from the operation and the target alone.

All tiles of the Triton kernel that a search may try: many more than :mod:`.tiles` lists.

The provider: supported operations, configurations, compiling ahead and building.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gemmetry.domain.contracts import Compiled, Executable, Workspace
from gemmetry.domain.dispatch import (
    DEFAULT_CONFIGURATION,
    Configuration,
    Dispatch,
    Target,
    TargetKind,
)
from gemmetry.domain.errors import CompileError, UnsupportedError
from gemmetry.domain.operation import (
    BF16,
    F16,
    F32,
    S8,
    S32,
    TF32,
    Operation,
    OperationKind,
    Signature,
    default_accumulator,
)
from gemmetry.domain.record import BuildFacts
from gemmetry.providers.base import GpuProvider, Requirement, output_folder, write_atomically
from gemmetry.providers.triton_provider import block_scaled, tiles
from gemmetry.providers.triton_provider import tiles as descriptors
from gemmetry.providers.triton_provider.block_scaled import (
    Architecture,
    architecture_of,
    cross_targets,
)
from gemmetry.providers.triton_provider.plan import kernel_source, make_plan
from gemmetry.providers.triton_provider.tiles import TritonTile

if TYPE_CHECKING:
    from gemmetry.providers.triton_provider.compiling import Built


_RESULTS = (F32, F16, BF16)
_INTERPRETED = {F32, F16, S8, S32}
"""Triton 3.9's interpreter multiplies the bits of bf16 as integers and rejects fp8."""
_LARGEST_STRIDE = 2**22
"""Elements between two rows or columns: offsets within a tile (up to 256 of them) are 32-bit."""
_LARGEST_GRID = 2**31 - 1
"""Blocks along x: CUDA C++ Programming Guide, technical specifications."""
_SMALLEST_TILE = 16


def reason_against(operation: Operation, target: Target, *, interprets: bool) -> str | None:
    """None if the kernel computes `operation` on `target`, else the reason."""
    s = operation.signature
    architecture = architecture_of(target)
    if interprets:
        if target.kind is not TargetKind.CPU:
            return "the interpreter runs on the CPU only"
    elif architecture is None:
        return f"the Triton kernel runs on NVIDIA from sm_80 and AMD CDNA 2 to 4, not on {target}"
    if s.kind not in (OperationKind.MATMUL, OperationKind.BATCH_MATMUL):
        return f"the Triton kernel does matmul and batch_matmul, not {s.kind}"
    if s.blocks is not None:
        if interprets and s.result not in _INTERPRETED:
            return f"Triton's interpreter stores f32 and f16 correctly, not {s.result}"
        return block_scaled.reason_against(operation, architecture) or _size_reason(operation)
    if interprets and not {s.lhs, s.result} <= _INTERPRETED:
        return f"Triton's interpreter multiplies f32, f16, s8 correctly, not {s.lhs} to {s.result}"
    return (
        _type_reason(s, architecture)
        or _accumulator_reason(s, architecture)
        or _size_reason(operation)
    )


def _type_reason(s: Signature, architecture: Architecture | None) -> str | None:
    if s.lhs.is_fp8 and s.rhs.is_fp8:
        formats = architecture.fp8 if architecture else (s.lhs, s.rhs)
        if s.lhs not in formats or s.rhs not in formats:
            own = " and ".join(str(dtype) for dtype in formats) or "no fp8"
            name = architecture.name if architecture else "cpu"
            return f"{name} multiplies {own}, not {s.lhs} with {s.rhs}"
    elif s.lhs is not s.rhs or s.lhs not in (F32, TF32, F16, BF16, S8):
        return f"the Triton kernel has no product of {s.lhs} and {s.rhs}"
    if s.lhs is TF32 and not (architecture and architecture.tf32):
        return "tf32 needs NVIDIA tensor cores"
    results = (S32,) if s.lhs is S8 else (F32,) if s.lhs in (F32, TF32) else _RESULTS
    if s.result not in results:
        return f"the Triton kernel stores {', '.join(map(str, results))}, not {s.result}"
    return None


def _accumulator_reason(s: Signature, architecture: Architecture | None) -> str | None:
    if s.accumulator is default_accumulator(s.lhs, s.rhs, s.result):
        return None
    if s.accumulator is not F16 or s.lhs is not F16:
        return f"no matrix instruction accumulates {s.lhs} in {s.accumulator}"
    if architecture is None or architecture.is_amd:
        return "f16 accumulators need NVIDIA tensor cores (AMD's mfma accumulates in f32)"
    return None


def _size_reason(operation: Operation) -> str | None:
    m, n, k, batch = operation.matmul_shape
    if max(m, n, k) > _LARGEST_STRIDE:
        return f"sizes above {_LARGEST_STRIDE} overflow the kernel's 32-bit offsets"
    if -(-m // _SMALLEST_TILE) * -(-n // _SMALLEST_TILE) * batch > _LARGEST_GRID:
        return f"more than {_LARGEST_GRID} tiles do not fit one launch"
    return None


def require_interpreter() -> None:
    """Have Triton interpret its functions, which it determines when it is imported. Like compiled
    code, they do not look for overflows of 32-bit integers, which takes almost half the time.

    Raises:
        UnsupportedError: it is already imported as a compiler.
    """
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise UnsupportedError(
            "triton is already imported as a compiler in this process",
            hint="Set TRITON_INTERPRET=1 before starting.",
        )
    os.environ["TRITON_INTERPRET"] = "1"
    builder: Any = getattr(import_module("triton.runtime.interpreter"), "interpreter_builder", None)
    if getattr(getattr(builder, "options", None), "sanitize_overflow", False):
        builder.options = replace(builder.options, sanitize_overflow=False)


_ROWS = (16, 32, 64, 128, 256)
_COLUMNS = (32, 64, 128, 256)
_STEPS_BYTES = (64, 128, 256)
"""Bytes along K of one step of a row of A: in bf16 32 to 128 elements."""
_WARPS = (4, 8)
_STAGES = (3, 4)
_WHOLE = 128
"""Columns up to which persistent programs store a tile in one part; a wider one takes too much
shared memory from the ring."""
_MOST_ACCUMULATORS = 128
_FEWEST_ACCUMULATORS = 8
"""Sums in f32 that a thread keeps: more spill (:mod:`.tiles`), fewer leave warps without work."""
_LARGEST_SLIVER = 8
"""Tiles whose sides differ by more than this factor read more than they multiply."""


def search_space(
    operation: Operation, architecture: Architecture | None
) -> Iterator[Configuration]:
    """The listed tiles first, then every other tile that is valid for `operation`, fits its size
    and keeps its warps busy. For Triton's interpreter (architecture None) and AMD's GPUs the listed
    ones are all there are."""
    found = dict.fromkeys(tiles.valid_tiles(operation, architecture))
    if architecture is not None and not architecture.is_amd:
        m, n, _, _ = operation.matmul_shape
        found |= dict.fromkeys(
            tile
            for tile in _all(operation, architecture)
            if _suits(tile, m, n, architecture)
            and tiles.why_invalid(tile, operation, architecture) is None
        )
    return (tile.configuration for tile in found)


def _all(operation: Operation, architecture: Architecture) -> Iterator[TritonTile]:
    s = operation.signature
    steps = [size * 8 // s.lhs.storage_bits for size in _STEPS_BYTES]
    sizes = product(_ROWS, _COLUMNS, steps, _WARPS, _STAGES)
    if s.blocks is not None:
        for (m, n, k, warps, stages), name in product(sizes, block_scaled.methods(s, architecture)):
            yield TritonTile(m, n, block_scaled.step(s.blocks, name, k), warps, stages, method=name)
        return
    for row in sizes:
        tile = TritonTile(*row)
        yield tile
        yield replace(tile, method=descriptors.PERSISTENT, parts=1 if tile.block_n <= _WHOLE else 2)


def _suits(tile: TritonTile, m: int, n: int, architecture: Architecture) -> bool:
    smaller, larger = sorted((tile.block_m, tile.block_n))
    sums = tile.block_m * tile.block_n / (tile.warps * architecture.warp_size)
    return (
        larger <= _LARGEST_SLIVER * smaller
        and _FEWEST_ACCUMULATORS <= sums <= _MOST_ACCUMULATORS
        and all(block < 2 * max(size, 16) for block, size in ((tile.block_m, m), (tile.block_n, n)))
    )


_INTERPRETED_STEP_S = 1e-3
"""Approximate time of one tile step in Triton's interpreter, which is numpy with overhead."""


class TritonProvider(GpuProvider):
    """Options: ``interpret`` (true: run in Triton's interpreter, on the CPU, for checking)."""

    name: ClassVar[str] = "triton"
    description: ClassVar[str] = "this project's own Triton kernel with tile configurations"

    requires: ClassVar[Sequence[Requirement]] = (("triton",) * 3, ("torch",) * 3)

    @property
    def interprets(self) -> bool:
        return bool(self.options.get("interpret", False))

    def targets(self) -> Sequence[Target]:
        if self.interprets:
            return [Target(TargetKind.CPU)]
        return [*self.gpus(), *cross_targets()]

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

    def generate(self, dispatches: Sequence[Dispatch], workspace: Workspace) -> Sequence[Path]:
        """Write the kernel's source, and the compile parameters of each dispatch as JSON."""
        written: dict[Path, bytes] = {}
        for dispatch in dispatches:
            folder = output_folder(workspace.generated, dispatch)
            tile = self._tile(dispatch)
            text = json.dumps(make_plan(dispatch.operation, tile).document(), indent=2) + "\n"
            modules = ["triton_matmul"]
            modules += ["triton_block_scaled"] * (dispatch.operation.signature.blocks is not None)
            modules += ["triton_descriptors"] * tile.describes
            written |= {folder / f"{name}.py": kernel_source(name) for name in modules}
            architecture = dispatch.target.architecture or str(dispatch.target.kind)
            written[folder / f"{dispatch.configuration.name}.{architecture}.json"] = text.encode()
        return [write_atomically(path, data) for path, data in written.items()]

    def compile(self, dispatches: Sequence[Dispatch], workspace: Workspace) -> Iterable[Compiled]:
        if self.interprets:
            return [Compiled(dispatch=dispatch) for dispatch in dispatches]
        self.generate(dispatches, workspace)
        return super().compile(dispatches, workspace)

    def compile_one(self, dispatch: Dispatch, workspace: Workspace) -> BuildFacts:
        return self._compile(dispatch, workspace).facts

    def prepare(self, target: Target) -> None:
        import_module("gemmetry.providers.triton_provider.compiling")
        super().prepare(target)

    def build(self, dispatch: Dispatch, workspace: Workspace) -> Executable:
        self.require(dispatch)
        if self.interprets:
            return self._build_interpreted(dispatch)
        from gemmetry.hardware.torch_device import open_device
        from gemmetry.providers.triton_provider.compiling import load

        device = open_device(dispatch.target)
        built = self._compile(dispatch, replace(workspace, force=False))
        return load(dispatch, make_plan(dispatch.operation, self._tile(dispatch)), built, device)

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
        built = compile_kernel(dispatch, plan, architecture, workspace)
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
        from gemmetry.hardware.torch_device import open_device
        from gemmetry.providers.triton_provider.compiling import interpreted

        tile = self._tile(dispatch)
        if reason := tiles.wrong_method(tile, dispatch.operation, None):
            raise UnsupportedError(reason)
        plan = make_plan(dispatch.operation, tile, interprets=True)
        return interpreted(dispatch, plan, open_device(dispatch.target))


PROVIDER = TritonProvider
