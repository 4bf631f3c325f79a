"""What the tables of CUDA mutants consist of: how a kernel is compiled and launched, and on which
operations it runs."""

from __future__ import annotations

from dataclasses import dataclass

from gemmetry.domain.record import Trait
from gemmetry.providers.mutant_provider.mutant import Carrier, Mutant

_TILE = (64, 64, 16)
_HOPPER_TILE = (128, 64, 64)
_ALIGNED = "matmul_256x192x160_f32t_f32t_f32t"
"""Tiles divide it, so that bugs in tails show only at other shapes."""
UNEVEN = "matmul_321x200x177_f32t_f32t_f32t"
BF16 = "matmul_256x192x160_bf16t_bf16t_bf16t"
LONG = "matmul_2048x2048x2048_f32t_f32t_f32t"
"""About two milliseconds for a kernel of these tiles."""
S8 = "matmul_256x192x160_s8t_s8t_s32t"
E4M3 = "matmul_256x192x160_e4m3t_e4m3t_f32t"
_HOPPER = "matmul_640x448x584_bf16t_bf16n_f32t"
"""An odd number of tile rows, more tiles along K than stages, and tails along all axes."""
HOPPER_LARGE = "matmul_1024x1024x1032_bf16t_bf16n_f32t"
HOPPER_SHALLOW = "matmul_2048x2048x64_bf16t_bf16n_f32t"
"""Several tiles for each block and few products, so that results follow each other quickly."""

HOPPER_SOURCE = "hopper_matmul"
SPLIT_SOURCE = "split_k_matmul"


@dataclass(frozen=True, slots=True)
class CudaRecipe:
    """How a mutant is compiled and launched."""

    source: str = "tiled_matmul"
    blocks: int = 0
    """Blocks (or clusters) among which all tiles are divided; 0: one for each tile."""
    serial: bool = False
    """Split-K: slices are added in turn, not by atomics."""
    cluster: int = 1
    chunk: int = 16
    """Columns of the result that one bulk store takes."""
    extra_bytes: int = 0
    """Dynamic shared memory in addition to what the source needs."""
    in_launch: bool = False
    """The bug is in how the kernel is launched, not in the kernel."""
    code: int = 0
    """The value of the macro MUTANT where another kernel has the bug's number; 0: that number."""


TILED = CudaRecipe()
AT_LAUNCH = CudaRecipe(in_launch=True)
RING = CudaRecipe(HOPPER_SOURCE, blocks=64)
PAIRS = CudaRecipe(HOPPER_SOURCE, blocks=64, cluster=2)
ATOMIC = CudaRecipe(SPLIT_SOURCE)
IN_TURN = CudaRecipe(SPLIT_SOURCE, serial=True)


def bug(
    number: int,
    slug: str,
    text: str,
    *killed_by: str,
    operation: str | None = None,
    declared: tuple[Trait, ...] = (),
    recipe: CudaRecipe = TILED,
) -> Mutant:
    """A row of the table of bugs; without `operation`, it runs on the usual one of its source,
    which tiles divide if only another shape is meant to reveal the bug."""
    usual = _ALIGNED if killed_by == ("tail_shapes",) else _usual_operation(recipe)
    return Mutant(
        number, slug, text, Carrier.CUDA, operation or usual,
        killed_by=killed_by, declared=declared, tile=_tile_of(recipe), recipe=recipe,
    )  # fmt: skip


def right(
    number: int,
    slug: str,
    text: str,
    *declared: Trait,
    operation: str | None = None,
    recipe: CudaRecipe = TILED,
) -> Mutant:
    """A row of the table of correct kernels that are easy to mistake for wrong."""
    return Mutant(
        number, slug, text, Carrier.CUDA, operation or _usual_operation(recipe),
        is_bug=False, declared=declared, tile=_tile_of(recipe), recipe=recipe,
    )  # fmt: skip


def _usual_operation(recipe: CudaRecipe) -> str:
    return _HOPPER if recipe.source == HOPPER_SOURCE else UNEVEN


def _tile_of(recipe: CudaRecipe) -> tuple[int, int, int]:
    return _HOPPER_TILE if recipe.source == HOPPER_SOURCE else _TILE
