"""Planted kernels in CUDA C++.

Three sources carry them (``kernels/mutants/*.cu``): ``tiled_matmul``, a tile per block through
shared memory; ``split_k_matmul``, where blocks share a tile of the result; ``hopper_matmul``, a
ring of bulk copies that feeds Hopper's matrix instructions.

Two bugs of the list are not planted here, because on an H200 they leave no trace (CUDA 13.0,
driver 580): 21, a block that ends before its bulk stores have read its memory, was right in 480 of
480 launches, also where the next block's copies went to the same memory; 22, results of matrix
instructions read before the wait, is repaired by ptxas, which puts the wait in (warning C7518).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gemmetry.domain.traits import Trait
from gemmetry.providers.mutant_provider.mutant import Carrier, Mutant

_TILE = (64, 64, 16)
_HOPPER_TILE = (128, 64, 64)
_ALIGNED = "matmul_256x192x160_f32t_f32t_f32t"
"""Tiles divide it: only another shape shows what is wrong with tails."""
_UNEVEN = "matmul_321x200x177_f32t_f32t_f32t"
_BF16 = "matmul_256x192x160_bf16t_bf16t_bf16t"
_LONG = "matmul_2048x2048x2048_f32t_f32t_f32t"
"""About two milliseconds for a kernel of these tiles."""
_S8 = "matmul_256x192x160_s8t_s8t_s32t"
_E4M3 = "matmul_256x192x160_e4m3t_e4m3t_f32t"
_HOPPER = "matmul_640x448x584_bf16t_bf16n_f32t"
"""An odd number of tile rows, more tiles along K than stages, tails along all axes."""
_HOPPER_LARGE = "matmul_1024x1024x1032_bf16t_bf16n_f32t"
_HOPPER_SHALLOW = "matmul_2048x2048x64_bf16t_bf16n_f32t"
"""Several tiles for each block, little to multiply: one result leaves right after the other."""


@dataclass(frozen=True, slots=True)
class CudaRecipe:
    """How a planted kernel is compiled and launched."""

    source: str = "tiled_matmul"
    blocks: int = 0
    """Blocks (or clusters) that share all tiles; 0: one for each tile."""
    serial: bool = False
    """Split-K: slices add in turn, not by atomics."""
    cluster: int = 1
    chunk: int = 16
    """Columns of the result that one bulk store takes."""
    extra_bytes: int = 0
    """Of dynamic shared memory, beside what the source needs."""
    in_launch: bool = False
    """The bug is in how the kernel is launched, not in the kernel."""
    code: int = 0
    """What the macro MUTANT is, where the bug's number stands for another kernel; 0: that."""


HOPPER_SOURCE = "hopper_matmul"
SPLIT_SOURCE = "split_k_matmul"
_TILED = CudaRecipe()
_AT_LAUNCH = CudaRecipe(in_launch=True)
_RING = CudaRecipe(HOPPER_SOURCE, blocks=64)
_PAIRS = CudaRecipe(HOPPER_SOURCE, blocks=64, cluster=2)
_ATOMIC = CudaRecipe(SPLIT_SOURCE)
_IN_TURN = CudaRecipe(SPLIT_SOURCE, serial=True)


def _tiled(
    number: int,
    slug: str,
    bug: str,
    killed_by: tuple[str, ...],
    operation: str,
    recipe: CudaRecipe = _TILED,
    declared: tuple[Trait, ...] = (),
) -> Mutant:
    return Mutant(
        number, slug, bug, Carrier.CUDA, operation,
        killed_by=killed_by, declared=declared, tile=_TILE, recipe=recipe,
    )  # fmt: skip


def _hopper(
    number: int,
    slug: str,
    bug: str,
    killed_by: tuple[str, ...],
    operation: str = _HOPPER,
    recipe: CudaRecipe = _RING,
) -> Mutant:
    return Mutant(
        number, slug, bug, Carrier.CUDA, operation,
        killed_by=killed_by, tile=_HOPPER_TILE, recipe=recipe,
    )  # fmt: skip


def _right(
    number: int,
    slug: str,
    why: str,
    operation: str,
    *declared: Trait,
    tile: tuple[int, int, int] = _TILE,
    recipe: CudaRecipe = _TILED,
) -> Mutant:
    return Mutant(
        number, slug, why, Carrier.CUDA, operation,
        is_bug=False, declared=declared, tile=tile, recipe=recipe,
    )  # fmt: skip


_TILED_BUGS = (
    _tiled(1, "zeros", "stores zero for every element", ("values",), _UNEVEN),
    _tiled(2, "never_writes", "no thread ever stores", ("written",), _UNEVEN),
    _tiled(3, "m_tail_skipped", "a partial tile of rows is not stored", ("tail_shapes",), _ALIGNED),
    _tiled(
        4, "n_tail_skipped", "a partial tile of columns is not stored", ("tail_shapes",), _ALIGNED
    ),
    _tiled(5, "k_tail_dropped", "a partial tile along K is left out", ("tail_shapes",), _ALIGNED),
    _tiled(6, "k_tail_unmasked", "reads on past K instead of zeros", ("tail_shapes",), _ALIGNED),
    _tiled(7, "row_past_m", "stores one row past M", ("tail_shapes",), _ALIGNED),
    _tiled(8, "k_off_by_one", "the loop over K ends one early", ("values",), _UNEVEN),
    _tiled(
        10,
        "no_barrier_after_fill",
        "no barrier between filling shared memory and reading it",
        ("values",),
        _UNEVEN,
    ),
    _tiled(
        11,
        "barrier_in_branch",
        "half of the threads pass a barrier that the others do not have",
        ("values",),
        _UNEVEN,
    ),
    _tiled(12, "aliased_tiles", "the tiles of A and B overlap by half", ("values",), _UNEVEN),
    _tiled(
        13,
        "unchecked_launch",
        "asks for more shared memory than it was allowed, and nobody looks at the error",
        ("written",),
        _UNEVEN,
        recipe=_AT_LAUNCH,
    ),
    _tiled(14, "shared_warp_slice", "two warps stage through one slice", ("values",), _UNEVEN),
    _tiled(
        25,
        "tail_rows_swapped",
        "swaps halves of a last group of fewer than 16 rows",
        ("tail_shapes",),
        _ALIGNED,
    ),
    _tiled(
        30,
        "raster_not_bijective",
        "the last group of tile rows is walked as if it were full",
        ("written",),
        _UNEVEN,
    ),
    _tiled(
        31,
        "narrow_row_index",
        "the row of A is counted in 16 bits",
        ("values",),
        "matmul_65600x16x32_f32t_f32t_f32t",
    ),
    _tiled(
        39,
        "f16_inputs",
        "converts bf16 inputs to f16, whose range is smaller",
        ("selects_lhs",),
        _BF16,
    ),
    _tiled(40, "truncating_cast", "the result is cut to bf16, not rounded", ("integers",), _BF16),
    _tiled(
        45, "beta_zero_reads_output", "adds 0 · C, which is NaN where C is", ("values",), _UNEVEN
    ),
    _tiled(46, "adds_to_output", "adds to what the output held", ("values",), _UNEVEN),
    _tiled(
        47,
        "rhs_transposed",
        "reads B as if it were stored by columns",
        ("values",),
        "matmul_192x160x160_f32t_f32t_f32t",
    ),
    _tiled(48, "counts_in_input", "counts finished blocks in A", ("inputs_unchanged",), _UNEVEN),
    _tiled(
        49,
        "cache_by_pointer",
        "answers from a cache by the inputs' addresses",
        ("in_place_change",),
        _UNEVEN,
        recipe=_AT_LAUNCH,
    ),
    _tiled(
        50,
        "side_stream",
        "launches on a stream of its own",
        ("unordered_work",),
        _UNEVEN,
        recipe=_AT_LAUNCH,
    ),
    _tiled(
        51,
        "skips_calls",
        "every eighth call does nothing",
        ("every_call",),
        _UNEVEN,
        recipe=_AT_LAUNCH,
    ),
    _tiled(
        55,
        "shared_memory_taken_for_zero",
        "a partial step of A is padded with what shared memory holds",
        ("spoiled_scratch",),
        _UNEVEN,
        recipe=CudaRecipe(extra_bytes=4 * 64 * 16),
    ),
    _tiled(
        57,
        "s8_sums_in_f32",
        "sums s8 products in f32",
        ("integers",),
        "matmul_128x64x1152_s8t_s8t_s32t",
    ),
    _tiled(59, "size_in_s8", "takes the size of -128 in 8 bits", ("integers",), _S8),
    _tiled(
        60,
        "e4m3_top_reserved",
        "takes e4m3 numbers from 256 on for infinity and NaN",
        ("selects_lhs",),
        _E4M3,
    ),
    _tiled(
        61, "zeros_not_stored", "takes the output to be zero already", ("selects_lhs",), _UNEVEN
    ),
    _tiled(
        62,
        "minimum_with_output",
        "stores the minimum of the result and the old output",
        ("selects_lhs",),
        _UNEVEN,
    ),
    _tiled(
        63,
        "vectors_past_k",
        "reads vectors of eight where K leaves four",
        ("tail_shapes",),
        _ALIGNED,
    ),
)

_NUMBER_BUGS = (
    _tiled(
        51,
        "numbers_left",
        "replaces what is no number only",
        ("every_call",),
        _UNEVEN,
        recipe=CudaRecipe(code=151),
    ),
    _tiled(
        51,
        "parts_left",
        "leaves parts of tiles that begin with a number",
        ("every_call",),
        _UNEVEN,
        recipe=CudaRecipe(code=251),
    ),
    _tiled(67, "block_exponents", "rows of a step share an exponent", ("scaled_along_k",), _UNEVEN),
    _tiled(
        67,
        "ends_at_epsilon",
        "takes numbers below 1e-12 for zero",
        ("scaled_along_k",),
        _UNEVEN,
        recipe=CudaRecipe(code=167),
    ),
    _tiled(69, "infinity_without_sign", "loses the sign of infinity", ("inf_spreads",), _UNEVEN),
    _tiled(
        78,
        "relu_by_half_sum",
        "relu of minus infinity is NaN",
        ("inf_spreads",),
        _UNEVEN + "_relu",
    ),
    _tiled(
        70, "k_past_1024_dropped", "sums no more than 1024 products", ("tail_shapes",), _ALIGNED
    ),
    _tiled(
        70,
        "n_past_512_dropped",
        "stores no columns from 512 on",
        ("tail_shapes",),
        _ALIGNED,
        recipe=CudaRecipe(code=170),
    ),
)
"""Of scales, of values, of what the output held, and of small shapes."""

_CALLER_BUGS = (
    _tiled(
        49,
        "cache_by_version",
        "answers from a cache by the inputs' addresses and versions",
        ("follows_changes",),
        _UNEVEN,
        recipe=_AT_LAUNCH,
    ),
    _tiled(
        49,
        "cache_by_both_sums",
        "answers from a cache by the sums of rows and columns",
        ("follows_changes",),
        _UNEVEN,
        recipe=_AT_LAUNCH,
    ),
    _tiled(
        49,
        "last_answer_by_a",
        "gives its last answer again where A is the same",
        ("follows_changes",),
        _UNEVEN,
        recipe=_AT_LAUNCH,
    ),
    _tiled(
        49,
        "packs_by_version",
        "keeps B packed by its version",
        ("follows_changes",),
        _UNEVEN,
        recipe=_AT_LAUNCH,
    ),
    _tiled(
        49,
        "copies_in_graphs",
        "captured into a graph, it copies the last result",
        ("after_timing",),
        _UNEVEN,
        recipe=_AT_LAUNCH,
    ),
    _tiled(
        50,
        "default_stream",
        "launches on the default stream",
        ("unordered_work",),
        _UNEVEN,
        recipe=_AT_LAUNCH,
    ),
    _tiled(
        50,
        "fork_not_joined",
        "launches on a stream that waits, and is not waited for",
        ("unordered_work", "follows_changes"),
        _LONG,
        recipe=_AT_LAUNCH,
    ),
    _tiled(
        50,
        "fork_not_joined_short",
        "does so where a launch is short",
        ("unordered_work", "follows_changes"),
        _UNEVEN,
        recipe=_AT_LAUNCH,
    ),
    _tiled(
        66,
        "two_result_buffers",
        "returns results in two buffers in turn",
        ("follows_changes",),
        _UNEVEN,
        recipe=_AT_LAUNCH,
    ),
    _tiled(
        66,
        "three_result_buffers",
        "returns results in three buffers in turn",
        ("follows_changes",),
        _UNEVEN,
        recipe=_AT_LAUNCH,
    ),
)
"""How a launch is made (``torch_callers.py``)."""

_SPLIT_BUGS = (
    _tiled(
        32,
        "atomics_without_zeros",
        "slices add to an output that nobody set to zero",
        ("values",),
        _UNEVEN,
        replace(_ATOMIC, in_launch=True),
        (Trait.NONDETERMINISTIC,),
    ),
    _tiled(
        33,
        "semaphore_not_reset",
        "the second launch finds the semaphores of the first",
        ("second_launch", "launch_error"),
        _UNEVEN,
        recipe=_IN_TURN,
    ),
    _tiled(
        34,
        "uneven_slice_dropped",
        "what K leaves over after equal slices is left out",
        ("tail_shapes",),
        _ALIGNED,
        recipe=_ATOMIC,
    ),
    _tiled(
        35,
        "no_wait_for_peer",
        "slices add without waiting for their turn",
        ("values",),
        _UNEVEN,
        recipe=_IN_TURN,
    ),
)

_HOPPER_BUGS = (
    _hopper(
        9,
        "stage_counted_twice",
        "the first stage counts twice when the ring wraps around",
        ("values",),
    ),
    _hopper(
        15, "wrong_phase", "waits for the phase before the one it needs", ("launch_error", "values")
    ),
    _hopper(
        16,
        "expects_too_few_bytes",
        "the barrier opens before all of B is there",
        ("launch_error", "values"),
        _HOPPER_LARGE,
    ),
    _hopper(
        17, "expects_too_many_bytes", "the barrier waits for bytes that never come", ("timeout",)
    ),
    _hopper(
        18,
        "too_few_arrivals",
        "a stage is refilled when half of its readers are done",
        ("launch_error", "values"),
        _HOPPER_LARGE,
    ),
    _hopper(
        19,
        "no_proxy_fence",
        "bulk stores read staging memory with no fence after the ordinary stores",
        ("values",),
        _HOPPER_SHALLOW,
        recipe=CudaRecipe(HOPPER_SOURCE, blocks=264, chunk=64),
    ),
    _hopper(
        20,
        "staging_reused",
        "staging memory is overwritten while a bulk store still reads it",
        ("values",),
        _HOPPER_SHALLOW,
    ),
    _hopper(
        23, "wrong_descriptor", "the matrix descriptor halves the step between rows", ("values",)
    ),
    _hopper(24, "rows_swapped", "upper and lower eight rows of a fragment swapped", ("values",)),
    _hopper(
        26,
        "stale_tensor_map",
        "tensor maps are cached by shape, with the first launch's addresses",
        ("second_launch",),
        recipe=replace(_RING, in_launch=True),
    ),
    _hopper(
        27,
        "multicast_of_rank_0",
        "both blocks of a cluster get the rows of the first",
        ("values",),
        recipe=_PAIRS,
    ),
    _hopper(
        28,
        "odd_tile_row_skipped",
        "clusters of two leave out an odd last tile row",
        ("written",),
        recipe=_PAIRS,
    ),
    _hopper(
        29,
        "last_wave_skipped",
        "a last wave of a single tile is left out",
        ("written",),
        "matmul_128x4160x128_bf16t_bf16n_f32t",
    ),
)

_RIGHT = (
    _right(1, "serial_split_k", "slices of K add in turn", _UNEVEN, recipe=_IN_TURN),
    _right(
        2,
        "atomic_split_k",
        "slices of K add in any order",
        _UNEVEN,
        Trait.NONDETERMINISTIC,
        recipe=_ATOMIC,
    ),
    _right(
        5,
        "tensor_core_sums",
        "matrix instructions cut off bits of long same-sign sums",
        "matmul_128x64x65536_bf16t_bf16n_f32t",
        tile=_HOPPER_TILE,
        recipe=_RING,
    ),
    _right(
        16,
        "few_blocks",
        "a persistent kernel that uses 24 multiprocessors",
        _UNEVEN,
        recipe=CudaRecipe(blocks=24),
    ),
    _right(
        16,
        "pipelined_ring",
        "persistent warp-specialised blocks, results through bulk stores",
        _HOPPER,
        tile=_HOPPER_TILE,
        recipe=_RING,
    ),
    _right(
        16,
        "cluster_pairs",
        "pairs of blocks share B by multicast",
        _HOPPER,
        tile=_HOPPER_TILE,
        recipe=_PAIRS,
    ),
    _right(18, "fused_multiply_add", "fused multiply-adds in tile order", _UNEVEN),
    _right(21, "s8_sums", "sums s8 products in s32", _S8),
    _right(23, "fp8_by_bits", "makes f16 of e4m3 by moving its bits", _E4M3),
    _right(29, "new_result_buffer", "returns every result in memory of its own", _UNEVEN),
    _right(28, "fork_joined", "launches on a stream that waits, and is waited for", _UNEVEN),
)

PLANTED: tuple[Mutant, ...] = (
    *_TILED_BUGS,
    *_NUMBER_BUGS,
    *_CALLER_BUGS,
    *_SPLIT_BUGS,
    *_HOPPER_BUGS,
    *_RIGHT,
)
