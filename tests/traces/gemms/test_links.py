from __future__ import annotations

from random import Random

import pytest

from gemmetry.traces.gemms import link_gemms

GEMM = "nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_NNN"
OTHER = "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NTT"
A_FIRST = [[64, 32], [32, 16]]
A_SECOND = [[64, 128], [128, 16]]


def found(trace):
    """(m, n, k) or None, and whether it is inferred, in order of time."""
    links = link_gemms(trace)
    start = trace.rows.gpu.start_ns[links.row]
    return [
        (links.shapes[links.shape[i]][:3] if links.shape[i] >= 0 else None, bool(links.inferred[i]))
        for i in start.argsort()
    ]


@pytest.mark.parametrize(("share", "least_inferred"), [(0.1, 0), (0.5, 6), (0.9, 2)])
@pytest.mark.parametrize("seed", range(4))
def test_launches_deleted_at_random_give_no_wrong_shape(recording, share, least_inferred, seed):
    """Two products share a kernel and its grid, two have one each; some launches are not in the
    file, though their operators are."""
    random = Random(seed)
    made, truth, lost, at = recording(), [], [], 0
    products = [
        (GEMM, A_FIRST), (GEMM, A_SECOND), (OTHER, [[1, 2], [2, 3]]),
        ("volta_sgemm_64x64_nn", A_FIRST),
    ]  # fmt: skip
    for number in range(1, 61):
        kernel, shapes = random.choice(products)
        is_lost = random.random() < share
        made.operator("aten::mm", at, 100, shapes=shapes, dtypes=["float"] * 2)
        if not is_lost:
            made.call(number, at + 10)
        made.kernel(kernel, at + 1000, 20, correlation=9000 + number if is_lost else number)
        truth.append((*shapes[0][:1], shapes[1][1], shapes[0][1]))
        lost.append(is_lost)
        at += random.choice((200, 1500))
    shapes, inferred = zip(*found(made.trace()), strict=True)
    assert all(shape in (None, real) for shape, real in zip(shapes, truth, strict=True))
    assert all(is_lost or shape for shape, is_lost in zip(shapes, lost, strict=True))
    assert sum(inferred) >= least_inferred
