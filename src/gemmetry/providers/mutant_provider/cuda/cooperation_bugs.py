"""CUDA mutants with a bug in how blocks and threads work together: slices of K that share a tile,
and a ring of bulk copies."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from gemmetry.domain.record import Trait
from gemmetry.providers.mutant_provider.cuda.recipe import (
    ATOMIC,
    HOPPER_LARGE,
    HOPPER_SHALLOW,
    HOPPER_SOURCE,
    IN_TURN,
    PAIRS,
    RING,
    CudaRecipe,
    bug,
)

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
