from __future__ import annotations

from random import Random

import pytest

from gemmetry.traces.gemms import link_gemms

GEMM = "nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_NNN"
OTHER = "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NTT"
SPLIT = "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float>(float*)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)"
A_FIRST = [[64, 32], [32, 16]]
A_SECOND = [[64, 128], [128, 16]]


def product(made, number, at, shapes, *, name="aten::mm", kernels=(GEMM,), **args):
    """An operator with a launch of each of `kernels`, which run 1000 ns later."""
    made.operator(name, at, 100, shapes=shapes, dtypes=["float"] * len(shapes))
    for index, kernel in enumerate(kernels):
        made.call(10 * number + index, at + 10 + index)
        made.kernel(kernel, at + 1000 + 50 * index, 20, correlation=10 * number + index, **args)


def found(trace):
    """(m, n, k) or None, and whether it is inferred, in order of time."""
    links = link_gemms(trace)
    start = trace.rows.gpu.start_ns[links.row]
    return [
        (links.shapes[links.shape[i]][:3] if links.shape[i] >= 0 else None, bool(links.inferred[i]))
        for i in start.argsort()
    ]


def test_a_kernel_has_the_shape_of_its_operator(recording):
    made = recording()
    product(made, 1, 0, A_FIRST)
    product(made, 2, 5000, A_SECOND)
    assert found(made.trace()) == [((64, 16, 32), False), ((64, 16, 128), False)]


def test_the_shape_may_stand_further_out(recording):
    made = recording()
    made.operator("lib::my_linear", 0, 900, shapes=[[64, 32], [16, 32]])
    made.operator("aten::empty", 100, 50)
    made.operator("Inner", 200, 500, shapes=[[64, 32]])
    made.launch(GEMM, 1, at=400, lasts=5)
    assert found(made.trace()) == [((64, 16, 32), False)]


def test_fills_copies_and_other_kernels_are_never_an_operators_gemm(recording):
    made = recording()
    made.operator("aten::mm", 0, 900, shapes=A_FIRST)
    made.call(1, 10)
    made.memset(500, 5, correlation=1)
    made.call(2, 20)
    made.memcpy(600, 5, correlation=2)
    made.launch(ADD, 3, at=700, lasts=5)
    made.launch(GEMM, 4, at=800, lasts=5)
    trace = made.trace()
    links = link_gemms(trace)
    assert trace.rows.names[trace.rows.gpu.name[links.row[0]]] == GEMM
    assert len(links.row) == 1
    assert links.is_alone.tolist() == [True]


def test_helper_passes_share_the_shape_and_not_the_flops(recording):
    made = recording()
    product(made, 1, 0, A_FIRST, kernels=(GEMM, SPLIT))
    links = link_gemms(made.trace())
    assert (links.shape == 0).all()
    assert sorted(links.is_alone.tolist()) == [False, True]


def test_two_multiplications_of_one_operator_share_its_flops(recording):
    made = recording()
    product(made, 1, 0, A_FIRST, kernels=(GEMM, OTHER))
    links = link_gemms(made.trace())
    assert (links.shape == 0).all()
    assert links.is_alone.tolist() == [False, False]


def test_kernels_of_a_convolution_are_left_out(recording):
    made = recording()
    product(made, 1, 0, [[8, 3, 32, 32], [16, 3, 3, 3]], name="aten::cudnn_convolution")
    product(made, 2, 5000, A_FIRST)
    assert found(made.trace()) == [((64, 16, 32), False)]


def test_lost_launches_get_the_shape_of_others_like_them(recording):
    made = recording()
    made.kernel(GEMM, 500, 20, correlation=999)
    made.kernel(GEMM, 600, 20, correlation=998, grid=[9, 9, 1])
    made.kernel(OTHER, 700, 20, correlation=997)
    product(made, 1, 10_000, A_FIRST)
    assert found(made.trace()) == [
        ((64, 16, 32), True), (None, False), (None, False), ((64, 16, 32), False),
    ]  # fmt: skip


@pytest.mark.parametrize("graph", ["cudaGraphLaunch", "hipGraphLaunch"])
def test_kernels_of_a_graph_ignore_the_operators_around_its_launch(recording, graph):
    made = recording()
    made.operator("aten::mm", 50_000, 1000, shapes=A_SECOND)
    made.call(500, 50_100, name=graph)
    made.kernel(GEMM, 60_000, 20, correlation=500)
    product(made, 1, 0, A_FIRST)
    assert found(made.trace()) == [((64, 16, 32), False), ((64, 16, 32), True)]


def test_nothing_is_inferred_where_operators_with_the_same_kernel_and_grid_disagree(recording):
    made = recording()
    # A layer runs three products; GEMM does two of them with one grid.
    layer = [(GEMM, A_FIRST), (OTHER, [[1, 2], [2, 3]]), (GEMM, A_SECOND)]
    at = 0
    for kernel, _ in layer * 2:
        made.kernel(kernel, at + 1000, 20, correlation=5000 + at)
        at += 1000
    for number, (kernel, shapes) in enumerate(layer * 3, 1):
        product(made, number, at, shapes, kernels=(kernel,))
        at += 1000
    shapes = [shape for shape, _ in found(made.trace())]
    layer_shapes = [(64, 16, 32), (1, 3, 2), (64, 16, 128)]
    assert shapes == [None, (1, 3, 2), None] * 2 + layer_shapes * 3


def test_nothing_is_inferred_where_a_convolution_ran_the_same_kernel(recording):
    made = recording()
    made.kernel(GEMM, 500, 20, correlation=999)
    product(made, 1, 10_000, A_FIRST)
    product(made, 2, 20_000, [[8, 3, 32, 32], [16, 3, 1, 1]], name="aten::cudnn_convolution")
    assert found(made.trace()) == [(None, False), ((64, 16, 32), False)]


@pytest.mark.parametrize(
    ("shapes", "expected"), [(A_FIRST, (64, 16, 32)), (A_SECOND, None)], ids=["agrees", "differs"]
)
def test_an_operator_without_a_kernel_speaks_against_other_shapes(recording, shapes, expected):
    made = recording()
    product(made, 1, 0, A_FIRST)
    made.operator("aten::linear", 5000, 120, shapes=[[9, 9], [9, 9]])
    made.operator("aten::mm", 5010, 100, shapes=shapes, dtypes=["float"] * 2)
    made.kernel(GEMM, 6000, 20, correlation=999)
    product(made, 3, 10_000, A_FIRST)
    # Launched after both, so that neither can be its kernel.
    product(made, 4, 20_000, A_SECOND, kernels=())
    assert [shape for shape, _ in found(made.trace())] == [(64, 16, 32), expected, (64, 16, 32)]


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


def test_without_a_grid_the_name_has_to_do(recording):
    made = recording()
    made.kernel(GEMM, 500, 20, correlation=999, grid=[0, 0, 0], block=[0, 0, 0])
    product(made, 1, 10_000, A_FIRST)
    product(made, 2, 20_000, A_FIRST, grid=[3, 3, 3])
    assert found(made.trace())[0] == ((64, 16, 32), True)


def backward(made, sequence, at, kernels):
    made.operator("MulBackward0", at, 500, thread=2, sequence=sequence, forward_thread=1)
    for index in range(kernels):
        number = 7000 + sequence * 10 + index
        made.call(number, at + 10 + index, thread=2)
        made.kernel(GEMM, at + 1000 + 50 * index, 20, correlation=number)


def test_backward_operators_without_shapes_ask_their_forward_ones(recording):
    made = recording()
    shapes = {"shapes": A_FIRST, "dtypes": ["float", "float"]}
    made.operator("aten::mm", 0, 100, sequence=4, forward_thread=0, **shapes)
    made.operator("aten::mm", 200, 100, sequence=5, forward_thread=0, **shapes)
    backward(made, 4, 10_000, kernels=2)
    backward(made, 5, 20_000, kernels=1)
    backward(made, 6, 30_000, kernels=2)
    # The gradients of (64, 32) x (32, 16), then one of unknown side, then of unknown forward.
    assert found(made.trace()) == [
        ((64, 32, 16), True), ((32, 16, 64), True), (None, False), (None, False), (None, False),
    ]  # fmt: skip


def test_a_trace_without_gemms_has_no_links(recording):
    made = recording()
    made.launch(ADD, 3, at=700, lasts=5)
    links = link_gemms(made.trace())
    assert len(links.row) == len(links.shape) == len(links.shapes) == 0
    assert len(link_gemms(recording().trace()).row) == 0
