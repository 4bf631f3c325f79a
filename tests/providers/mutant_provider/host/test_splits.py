from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemmetry.providers.mutant_provider.host.emulator import TiledGemm
from gemmetry.providers.mutant_provider.host.splits import SplitK, SplitKAtomics, StreamK


@pytest.mark.parametrize("kernel", [SplitK, SplitKAtomics, StreamK])
@pytest.mark.parametrize(
    "name",
    [
        "matmul_64x64x256_f32t_f32t_f32t",
        "matmul_33x65x50_bf16t_bf16n_bf16t",
        "matmul_1x1x1_f32t_f32t_f32t",
        "matmul_40x40x40_s8t_s8t_s32t",
        "batch_matmul_3x33x30x70_f16t_f16n_f32t",
        "matmul_splitk_64x64x128_f32t_f32t_f32t_slices2",
    ],
)
def test_shared_sums_are_right(assert_right: Any, kernel: type[TiledGemm], name: str) -> None:
    assert_right(kernel, name, launches=2)


def test_slices_cover_k_once_in_order(plant: Any) -> None:
    kernel = plant("split_k", (64, 64, 32 * 7)).kernel
    assert isinstance(kernel, SplitK)
    steps = [step for i in range(kernel.slices) for step in kernel.slice_steps(i)]
    assert steps == list(range(7))


def test_atomics_give_other_bits_in_other_launches(plant: Any) -> None:
    bench = plant("split_k_atomics")
    # bf16 results hide last bits, sums do not.
    kernel = bench.kernel
    assert isinstance(kernel, SplitKAtomics)
    sums = set()
    for _ in range(20):
        bench.launch()
        sums.add(kernel.workspace[:, 0].tobytes())
    assert len(sums) > 1


def test_stream_k_shares_tiles_between_processors(plant: Any) -> None:
    bench = plant("stream_k")
    kernel = bench.kernel
    assert isinstance(kernel, StreamK)
    assert bench.is_right()
    assert np.abs(kernel.partials).sum(axis=(1, 2)).astype(bool).tolist() == [False, True, True]
