"""All CUDA mutants.

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

from gemmetry.domain.record import Trait
from gemmetry.providers.mutant_provider.cuda.cooperation_bugs import HOPPER_BUGS, SPLIT_BUGS
from gemmetry.providers.mutant_provider.cuda.launch_bugs import LAUNCH_BUGS
from gemmetry.providers.mutant_provider.cuda.recipe import (
    ATOMIC,
    E4M3,
    IN_TURN,
    PAIRS,
    RING,
    S8,
    CudaRecipe,
    right,
)
from gemmetry.providers.mutant_provider.cuda.tiled_bugs import TILED_BUGS
from gemmetry.providers.mutant_provider.mutant import Mutant

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
