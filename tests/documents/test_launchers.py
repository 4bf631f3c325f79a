from __future__ import annotations

import pytest

from gemmetry.documents.operator_tables import find_launchers, operator_category
from gemmetry.traces.joins import NONE


def _by_name(trace):
    found = find_launchers(trace)
    names = [trace.rows.names[index] for index in found.name]
    return found, {name: place for place, name in enumerate(names)}


def test_an_operator_has_its_own_work_and_that_of_called_ones(recording):
    made = recording()
    made.operator("aten::linear", 100, 900)
    made.operator("aten::addmm", 200, 500)
    made.launch("gemm", 1, at=310, lasts=50)
    made.launch("bias", 2, at=330, lasts=100)  # overlaps the first by 30
    made.call(3, 900)
    made.kernel("copy", 1000, 40, correlation=3)
    found, place = _by_name(made.trace())
    rows = [place["aten::addmm"], place["aten::linear"]]
    assert found.direct_ns[rows].tolist() == [120, 40]
    assert found.subtree_ns[rows].tolist() == [120, 160]
    assert found.host_ns[rows].tolist() == [500, 900]


def test_an_operator_may_stand_for_all_within_it(recording):
    made = recording()
    made.operator("outer", 0, 1000)
    made.operator("whole", 10, 900)
    made.operator("whole", 20, 800)
    made.operator("inner", 30, 400)
    made.launch("a", 1, at=100, lasts=50)
    made.call(2, 950)
    made.kernel("b", 2000, 30, correlation=2)
    launchers = find_launchers(made.trace(), whole=lambda name: name == "whole")
    (kept, other) = launchers.of_row.tolist()
    assert launchers.host_ns[[kept, other]].tolist() == [900, 1000]
    assert launchers.direct_ns[[kept, other]].tolist() == [50, 30]
    assert launchers.subtree_ns[other] == 80


def test_without_an_operator_the_call_is_the_launcher(recording):
    made = recording()
    made.launch("k", 1, at=100, lasts=10)
    made.call(2, 200, name="cudaGraphLaunch")
    made.kernel("in_graph", 300, 10, correlation=2)
    made.kernel("lost", 400, 10)
    trace = made.trace()
    found, place = _by_name(trace)
    assert found.categories[found.category[place["cudaLaunchKernel"]]] == "runtime"
    assert found.categories[found.category[place["cudaGraphLaunch"]]] == "graph"
    lost = [trace.rows.names[i] for i in trace.rows.gpu.name].index("lost")
    assert found.of_row[lost] == NONE


def test_communication_is_not_computation_and_its_mark_is_passed_over(recording):
    made = recording()
    made.operator("record_param_comms", 0, 500)
    made.operator("nccl:all_reduce", 100, 300)
    made.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 1, at=210, lasts=50)
    found, place = _by_name(made.trace())
    assert set(place) == {"record_param_comms"}
    assert not found.computes[0]
    assert found.direct_ns[0] == 0
    assert found.subtree_ns[0] == 50


@pytest.mark.parametrize(
    ("operator", "kernel", "category"),
    [
        ("aten::addmm", "", "GEMM"),
        ("aten::convolution_backward", "", "CONV_bwd"),
        ("aten::cudnn_convolution", "", "CONV_fwd"),
        ("aten::miopen_convolution", "", "CONV_fwd"),
        ("aten::native_layer_norm", "", "NORM_fwd"),
        ("aten::cudnn_batch_norm_backward", "", "NORM_bwd"),
        ("aten::_cudnn_attention_forward", "", "SDPA_fwd"),
        ("aten::_flash_attention_backward", "", "SDPA_bwd"),
        ("aten::_foreach_add_", "", "multi_tensor_apply"),
        ("aten::copy_", "Memcpy DtoD", "elementwise"),
        ("aten::sum", "", "reduce"),
        ("triton_poi_fused_add_0", "", "triton"),
        ("record_param_comms", "", "record_param_comms"),
        ("aten::gelu", "void at::native::vectorized_elementwise_kernel<4>", "elementwise"),
        ("aten::all", "void at::native::reduce_kernel<512>", "reduce"),
        ("aten::_softmax", "void cunn_SoftMaxForward<8>", "other"),
        ("mine::op", "void reduce_elementwise", "other"),
    ],
)
def test_categories_are_those_of_tracelens(operator, kernel, category):
    assert operator_category(operator, kernel) == category
