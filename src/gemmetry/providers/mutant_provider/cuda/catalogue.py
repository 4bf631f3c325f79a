"""What the tables of CUDA mutants consist of: how a kernel is compiled and launched, and on which
operations it runs.

CUDA mutants with a bug in how blocks and threads work together: slices of K that share a tile,
and a ring of bulk copies.

CUDA mutants with a bug in how the kernel is launched (``torch_callers.py``).

CUDA mutants with a bug in the tiled kernel: in tiles, tails, formats, values, or in how it uses
the previous contents of the output.

All CUDA mutants.

Three sources contain them (``kernels/mutants/*.cu``): ``tiled_matmul`` computes one tile per block
through shared memory; in ``split_k_matmul`` blocks share a tile of the result; in ``hopper_matmul``
a ring of bulk copies feeds Hopper's matrix instructions.

Two bugs of the list are not here, because they leave no trace on an H200 (CUDA 13.0, driver 580).
21, a block that exits before its bulk stores have read its memory, was right in 480 of 480
launches, even if the next block's copies went to the same memory. 22, results of matrix
instructions that are read before the wait, is repaired by ptxas, which inserts the wait (warning
C7518).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

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


_ring = partial(bug, recipe=RING)

SPLIT_BUGS = (
    bug(
        32,
        "atomics_without_zeros",
        "adds the sums of slices to an output that was never cleared",
        "values",
        declared=(Trait.NONDETERMINISTIC,),
        recipe=replace(ATOMIC, in_launch=True),
    ),
    bug(
        33,
        "semaphore_not_reset",
        "does not reset its semaphores after a launch",
        "second_launch",
        "launch_error",
        recipe=IN_TURN,
    ),
    bug(
        34,
        "uneven_slice_dropped",
        "leaves out the remainder of K after equal slices",
        "tail_shapes",
        recipe=ATOMIC,
    ),
    bug(
        35,
        "no_wait_for_peer",
        "adds the sums of slices without waiting for their turn",
        "values",
        recipe=IN_TURN,
    ),
)


HOPPER_BUGS = (
    _ring(
        9,
        "stage_counted_twice",
        "adds the first stage twice when the ring of buffers wraps around",
        "values",
    ),
    _ring(
        15, "wrong_phase", "waits for the phase before the one it needs", "launch_error", "values"
    ),
    _ring(
        16,
        "expects_too_few_bytes",
        "expects too few bytes, so the barrier opens before all of B has arrived",
        "launch_error",
        "values",
        operation=HOPPER_LARGE,
    ),
    _ring(
        17,
        "expects_too_many_bytes",
        "expects too many bytes, so the barrier waits forever",
        "timeout",
    ),
    _ring(
        18,
        "too_few_arrivals",
        "refills a stage when only half of its readers are done",
        "launch_error",
        "values",
        operation=HOPPER_LARGE,
    ),
    bug(
        19,
        "no_proxy_fence",
        "has no fence between ordinary stores to staging memory and the bulk store that reads it",
        "values",
        operation=HOPPER_SHALLOW,
        recipe=CudaRecipe(HOPPER_SOURCE, blocks=264, chunk=64),
    ),
    _ring(
        20,
        "staging_reused",
        "overwrites staging memory while a bulk store still reads it",
        "values",
        operation=HOPPER_SHALLOW,
    ),
    _ring(23, "wrong_descriptor", "has half of the row stride in its matrix descriptor", "values"),
    _ring(24, "rows_swapped", "swaps the upper and lower eight rows of a fragment", "values"),
    bug(
        26,
        "stale_tensor_map",
        "caches tensor maps by shape, with the addresses of the first launch",
        "second_launch",
        recipe=replace(RING, in_launch=True),
    ),
    bug(
        27,
        "multicast_of_rank_0",
        "gives both blocks of a cluster the rows of the first",
        "values",
        recipe=PAIRS,
    ),
    bug(
        28,
        "odd_tile_row_skipped",
        "leaves out an odd last row of tiles with clusters of two",
        "written",
        recipe=PAIRS,
    ),
    _ring(
        29,
        "last_wave_skipped",
        "leaves out a last wave that consists of a single tile",
        "written",
        operation="matmul_128x4160x128_bf16t_bf16n_f32t",
    ),
)


_bug = partial(bug, recipe=AT_LAUNCH)

LAUNCH_BUGS = (
    _bug(
        49,
        "cache_by_version",
        "returns a cached result if the addresses and versions of the inputs are the same",
        "follows_changes",
    ),
    _bug(
        49,
        "cache_by_both_sums",
        "returns a cached result if the sums of all rows and columns are the same",
        "follows_changes",
    ),
    _bug(
        49, "last_answer_by_a", "returns its last result again if A is the same", "follows_changes"
    ),
    _bug(
        49, "packs_by_version", "packs B again only if its version has changed", "follows_changes"
    ),
    _bug(
        49,
        "copies_in_graphs",
        "copies its last result when it is captured into a graph",
        "after_timing",
    ),
    _bug(
        50,
        "default_stream",
        "launches on the default stream instead of the current one",
        "unordered_work",
    ),
    _bug(
        50,
        "fork_not_joined",
        "launches on a second stream that the current one does not wait for",
        "unordered_work",
        "follows_changes",
        operation=LONG,
    ),
    _bug(
        50,
        "fork_not_joined_short",
        "launches on a second stream that the current one does not wait for (short launch)",
        "unordered_work",
        "follows_changes",
    ),
    _bug(
        75,
        "wrong_once_in_300",
        "negates one element of the result in every 300th launch",
        "rare_launches",
    ),
    _bug(
        66,
        "two_result_buffers",
        "returns results in two buffers of its own in turn",
        "follows_changes",
    ),
    _bug(
        66,
        "three_result_buffers",
        "returns results in three buffers of its own in turn",
        "follows_changes",
    ),
)


TILED_BUGS = (
    bug(1, "zeros", "stores zeros", "values"),
    bug(2, "never_writes", "stores nothing", "written"),
    bug(3, "m_tail_skipped", "does not store a partial tile of rows", "tail_shapes"),
    bug(4, "n_tail_skipped", "does not store a partial tile of columns", "tail_shapes"),
    bug(5, "k_tail_dropped", "leaves out a partial step along K", "tail_shapes"),
    bug(6, "k_tail_unmasked", "reads past K instead of masking with zeros", "tail_shapes"),
    bug(7, "row_past_m", "stores one row past M", "tail_shapes"),
    bug(8, "k_off_by_one", "ends the loop over K one product early", "values"),
    bug(
        10,
        "no_barrier_after_fill",
        "has no barrier between filling shared memory and reading it",
        "values",
    ),
    bug(11, "barrier_in_branch", "has a barrier that only half of the threads reach", "values"),
    bug(
        12, "aliased_tiles", "has tiles of A and B that overlap by half in shared memory", "values"
    ),
    bug(
        13,
        "unchecked_launch",
        "requests too much shared memory and ignores the launch error",
        "written",
        recipe=AT_LAUNCH,
    ),
    bug(14, "shared_warp_slice", "stages the results of two warps in the same memory", "values"),
    bug(
        25,
        "tail_rows_swapped",
        "swaps the halves of a last group of fewer than 16 rows",
        "tail_shapes",
    ),
    bug(
        30,
        "raster_not_bijective",
        "treats the last group of tile rows as if it were full",
        "written",
    ),
    bug(
        31,
        "narrow_row_index",
        "counts rows of A in 16 bits",
        "values",
        operation="matmul_65600x16x32_f32t_f32t_f32t",
    ),
    bug(
        39,
        "f16_inputs",
        "converts bf16 inputs to f16, which has a smaller range",
        "selects_lhs",
        operation=BF16,
    ),
    bug(40, "truncating_cast", "truncates the result to bf16", "integers", operation=BF16),
    bug(45, "beta_zero_reads_output", "adds 0 · C, which is NaN where C is NaN", "values"),
    bug(46, "adds_to_output", "adds to the previous contents of the output", "values"),
    bug(
        47,
        "rhs_transposed",
        "reads the row-major B as column-major",
        "values",
        operation="matmul_192x160x160_f32t_f32t_f32t",
    ),
    bug(48, "counts_in_input", "counts finished blocks in the input A", "inputs_unchanged"),
    bug(
        49,
        "cache_by_pointer",
        "returns a cached result if the addresses of the inputs are the same",
        "in_place_change",
        recipe=AT_LAUNCH,
    ),
    bug(50, "side_stream", "launches on a stream of its own", "unordered_work", recipe=AT_LAUNCH),
    bug(51, "skips_calls", "does nothing at every eighth call", "every_call", recipe=AT_LAUNCH),
    bug(
        55,
        "shared_memory_taken_for_zero",
        "pads a partial step of A with the contents of shared memory",
        "spoiled_scratch",
        recipe=CudaRecipe(extra_bytes=4 * 64 * 16),
    ),
    bug(
        57,
        "s8_sums_in_f32",
        "accumulates s8 products in f32",
        "integers",
        operation="matmul_128x64x1152_s8t_s8t_s32t",
    ),
    bug(59, "size_in_s8", "computes the magnitude of -128 in 8 bits", "integers", operation=S8),
    bug(
        60,
        "e4m3_top_reserved",
        "reads e4m3 numbers from 256 on as infinity and NaN",
        "selects_lhs",
        operation=E4M3,
    ),
    bug(
        61,
        "zeros_not_stored",
        "does not store zeros, as if the output were zero already",
        "selects_lhs",
    ),
    bug(
        62,
        "minimum_with_output",
        "stores the minimum of the result and the old output",
        "selects_lhs",
    ),
    bug(
        63,
        "vectors_past_k",
        "reads past K in vectors of eight if the remainder of K is four",
        "tail_shapes",
    ),
    bug(
        51,
        "numbers_left",
        "stores only where the output holds NaN or a huge number",
        "every_call",
        recipe=CudaRecipe(code=151),
    ),
    bug(
        51,
        "parts_left",
        "skips parts of tiles whose first element in the output is an ordinary number",
        "every_call",
        recipe=CudaRecipe(code=251),
    ),
    bug(
        67,
        "block_exponents",
        "shares one exponent among the numbers of a row of A and step along K",
        "scaled_along_k",
    ),
    bug(
        67,
        "ends_at_epsilon",
        "treats inputs below 1e-12 as zero",
        "scaled_along_k",
        recipe=CudaRecipe(code=167),
    ),
    bug(69, "infinity_without_sign", "loses the sign of infinity", "inf_spreads"),
    bug(
        78,
        "relu_by_half_sum",
        "returns NaN for relu of minus infinity",
        "inf_spreads",
        operation=UNEVEN + "_relu",
    ),
    bug(70, "k_past_1024_dropped", "adds at most 1024 products", "tail_shapes"),
    bug(
        70,
        "n_past_512_dropped",
        "does not store columns from 512 on",
        "tail_shapes",
        recipe=CudaRecipe(code=170),
    ),
)


_RIGHT = (
    right(1, "serial_split_k", "adds the sums of slices of K in turn", recipe=IN_TURN),
    right(
        2,
        "atomic_split_k",
        "adds the sums of slices of K in any order",
        Trait.NONDETERMINISTIC,
        recipe=ATOMIC,
    ),
    right(
        5,
        "tensor_core_sums",
        "truncates long sums of one sign, as matrix instructions do",
        operation="matmul_128x64x65536_bf16t_bf16n_f32t",
        recipe=RING,
    ),
    right(
        16,
        "few_blocks",
        "runs as a persistent kernel on 24 multiprocessors",
        recipe=CudaRecipe(blocks=24),
    ),
    right(
        16,
        "pipelined_ring",
        "uses persistent, warp-specialised blocks and bulk stores",
        recipe=RING,
    ),
    right(16, "cluster_pairs", "shares B between pairs of blocks by multicast", recipe=PAIRS),
    right(18, "fused_multiply_add", "uses fused multiply-adds in the order of the tiles"),
    right(21, "s8_sums", "accumulates s8 products in s32", operation=S8),
    right(23, "fp8_by_bits", "converts e4m3 to f16 by shifting bits", operation=E4M3),
    right(29, "new_result_buffer", "returns each result in newly allocated memory"),
    right(28, "fork_joined", "launches on a second stream that the current one waits for"),
)

MUTANTS: tuple[Mutant, ...] = (*TILED_BUGS, *LAUNCH_BUGS, *SPLIT_BUGS, *HOPPER_BUGS, *_RIGHT)
