from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.traces.collectives.summary import Group, collectives_of, operation_name
from gemmetry.traces.model import Trace
from gemmetry.traces.reading import read_trace

SAMPLES = Path(__file__).parents[2] / "data" / "collectives"

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)"
GENERIC = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"

RECORDED = {
    "Collective name": "_allgather_base", "dtype": "BFloat16", "In msg nelems": 64,
    "Out msg nelems": 256, "Group size": 4, "Process Group Name": "0",
    "Process Group Ranks": "[0, 1, 2, 3]", "In split size": "[]", "Out split size": "[]",
}  # fmt: skip


def sample(name: str) -> Trace:
    file = SAMPLES / name
    return Trace(file, read_trace(file, use_cache=False))


@pytest.mark.parametrize(
    ("written", "op"),
    [
        ("_allgather_base", "all_gather"),
        ("allgather_into_tensor_coalesced", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("nccl:_reduce_scatter_base", "reduce_scatter"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("allreduce", "all_reduce"),
        ("allreduce_coalesced", "all_reduce"),
        ("barrier", "all_reduce"),
        ("all_to_allv", "all_to_all"),
        ("c10d::alltoall_base_", "all_to_all"),
        ("_broadcast_oop", "broadcast"),
        ("_reduce_oop", "reduce"),
        ("gather", "gather"),
        ("c10d::scatter_", "scatter"),
        ("nccl:send 0->1", "send"),
        ("nccl:recv 0<-1", "recv"),
        ("wait", None),
        ("coalesced", None),
        ("", None),
        (None, None),
    ],
)
def test_operations_in_the_words_of_nccl_tests(written, op):
    assert operation_name(written) == op


def test_the_kernels_own_arguments(recording):
    made = recording(baseTimeNanoseconds=1_000_000_000)
    made.kernel(ALL_GATHER, 500, 40, stream=24, device=3, **RECORDED)
    (one,) = collectives_of(made.trace())
    assert (one.op, one.dtype, one.elements, one.bytes) == ("all_gather", "BFloat16", 256, 512)
    assert (one.in_elements, one.out_elements, one.source) == (64, 256, "kernel")
    assert one.group == Group("0", (0, 1, 2, 3), 4)
    assert not one.group_inferred
    assert (one.start_ns, one.duration_ns, one.end_ns) == (1_000_000_500, 40, 1_000_000_540)
    assert (one.stream, one.device) == (24, 3)


@pytest.mark.parametrize("dtype", ["Float8_e4m3fn", "Float8_e5m2", "Char", "ComplexFloat"])
def test_element_types_that_others_do_not_know(recording, dtype):
    made = recording()
    made.kernel(GENERIC, 0, 5, **{**RECORDED, "Collective name": "allreduce", "dtype": dtype})
    (one,) = collectives_of(made.trace())
    assert one.dtype == dtype
    assert one.bytes == 256 * (8 if dtype == "ComplexFloat" else 1)


def test_the_metadata_of_the_operator_around_the_launch(recording):
    made = recording()
    made.operator("c10d::allreduce_", 0, 100, external=1)
    made.operator("record_param_comms", 10, 80, external=2,
                  **{**RECORDED, "Collective name": "allreduce", "In msg nelems": 9,
                     "Out msg nelems": 9, "dtype": "Float"})  # fmt: skip
    made.call(7, 20)
    made.kernel(GENERIC, 300, 40, correlation=7)
    (one,) = collectives_of(made.trace())
    assert (one.op, one.dtype, one.elements, one.source) == ("all_reduce", "Float", 9, "operator")
    assert one.group == Group("0", (0, 1, 2, 3), 4)


def test_tensors_of_operators_without_metadata(recording):
    made = recording()
    made.operator("c10d::alltoall_base_", 0, 100, external=1,
                  shapes=[[384], [300], [], []], dtypes=["long", "long", "", ""])  # fmt: skip
    made.operator("record_param_comms", 10, 80, external=2, shapes=[], dtypes=[])
    made.operator("nccl:all_to_all", 15, 70, external=3, shapes=[[300]], dtypes=["long"])
    made.call(7, 20)
    made.kernel(SEND_RECV, 300, 40, correlation=7)
    made.operator("c10d::allreduce_", 200, 100, external=4, shapes=[[]], dtypes=["TensorList"])
    made.operator("nccl:all_reduce", 210, 80, external=5, shapes=[[8, 2]], dtypes=["float"])
    made.call(8, 220)
    made.kernel(GENERIC, 400, 40, correlation=8)
    uneven, reduced = collectives_of(made.trace())
    assert (uneven.op, uneven.dtype) == ("all_to_all", "Long")
    assert (uneven.in_elements, uneven.out_elements, uneven.elements) == (300, 384, 384)
    assert (reduced.op, reduced.dtype, reduced.elements) == ("all_reduce", "Float", 16)
    assert uneven.group is None


def test_an_all_gather_whose_operator_records_output_and_input(recording):
    made = recording()
    made.operator("c10d::_allgather_base_", 0, 100, external=1,
                  shapes=[[64], [16], []], dtypes=["signed char", "signed char", ""])  # fmt: skip
    made.call(7, 20)
    made.kernel(GENERIC, 300, 40, correlation=7)
    (one,) = collectives_of(made.trace())
    assert (one.op, one.dtype, one.elements, one.in_elements) == ("all_gather", "Char", 64, 16)


def test_an_inference_engines_own_all_reduce(recording):
    made = recording()
    made.operator("aten::add", 0, 500, external=9, shapes=[[5]], dtypes=["int"])
    made.operator("_C_custom_ar::all_reduce", 10, 80, external=1,
                  shapes=[[], [128, 64]], dtypes=["Scalar", "c10::BFloat16"])  # fmt: skip
    made.call(7, 20)
    made.kernel("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(int)", 300, 40,
                correlation=7)  # fmt: skip
    (one,) = collectives_of(made.trace())
    assert (one.op, one.dtype, one.elements) == ("all_reduce", "BFloat16", 8192)


def test_an_operator_unrelated_to_communication_is_ignored(recording):
    made = recording()
    made.operator("aten::mm", 0, 100, external=1, shapes=[[2, 2], [2, 2]], dtypes=["float"] * 2)
    made.call(7, 20)
    made.kernel(GENERIC, 300, 40, correlation=7)
    (one,) = collectives_of(made.trace())
    assert (one.op, one.dtype, one.elements, one.bytes, one.source) == (
        None,
        None,
        None,
        None,
        "name",
    )


def test_the_name_shows_operation_and_type_of_what_is_reduced(recording):
    made = recording()
    made.kernel(ALL_REDUCE, 0, 5)
    made.kernel(ALL_GATHER, 10, 5)
    made.kernel(SEND_RECV, 20, 5)
    reduced, gathered, sent = collectives_of(made.trace())
    assert (reduced.op, reduced.dtype, reduced.source) == ("all_reduce", "BFloat16", "name")
    assert (gathered.op, gathered.dtype) == ("all_gather", None)
    assert (sent.op, sent.dtype, sent.elements) == ("send_recv", None, None)


@pytest.mark.parametrize(
    ("kernel", "algorithm", "protocol"),
    [
        (ALL_REDUCE, None, None),
        (ALL_GATHER, None, None),
        ("ncclDevKernel_AllReduce_Sum_f32_TREE_LL(ncclDevKernelArgsStorage<4096ul>)", "tree", None),
        ("ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ring", None),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "ring", None),
        ("ncclKernel_AllReduce_TREE_LL_Sum_float(ncclWorkElem)", "tree", None),
        (SEND_RECV, None, None),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(int)", "one_shot", None),
    ],
)
def test_algorithm_and_protocol_only_where_the_name_is_sure(recording, kernel, algorithm, protocol):
    made = recording()
    made.kernel(kernel, 0, 5)
    (one,) = collectives_of(made.trace())
    assert (one.algorithm, one.protocol) == (algorithm, protocol)


def test_a_kernel_without_a_group_is_of_the_only_one_on_its_stream(recording):
    made = recording()
    made.kernel(ALL_GATHER, 0, 5, stream=24)
    made.kernel(ALL_GATHER, 10, 5, stream=24, **RECORDED)
    made.kernel(ALL_GATHER, 20, 5, stream=28, **{**RECORDED, "Process Group Name": "1"})
    made.kernel(ALL_GATHER, 30, 5, stream=99)
    first, _, _, last = collectives_of(made.trace())
    assert first.group == Group("0", (0, 1, 2, 3), 4)
    assert first.group_inferred
    # Neither its stream nor the trace leaves one group only.
    assert last.group is None


def test_kernels_of_one_operator_share_its_sizes(recording):
    made = recording()
    recorded = {**RECORDED, "External id": 44}
    made.kernel(ALL_GATHER, 0, 5, **recorded)
    made.kernel(ALL_GATHER, 10, 5, **recorded)
    made.kernel(ALL_GATHER, 20, 5, **{**RECORDED, "External id": 45})
    assert [one.is_shared for one in collectives_of(made.trace())] == [True, True, False]


def test_kernels_share_the_sizes_recorded_by_the_operator_around_their_launches(recording):
    made = recording()
    for place, calls in ((0, (7, 8)), (200, (9,))):
        made.operator("record_param_comms", place, 80, external=2 + place,
                      **{**RECORDED, "Collective name": "allreduce"})  # fmt: skip
        for number in calls:
            made.call(number, place + number)
            made.kernel(GENERIC, 1000 + 100 * number, 40, correlation=number)
    assert [one.is_shared for one in collectives_of(made.trace())] == [True, True, False]


def test_sends_and_receives_record_their_peer(recording):
    made = recording()
    send = {**RECORDED, "Collective name": "send", "Dst Rank": 2, "Seq": 5}
    made.kernel(SEND_RECV, 0, 5, **send)
    (one,) = collectives_of(made.trace())
    assert (one.op, one.peer, one.sequence) == ("send", 2, 5)


def test_other_kernels_are_not_collectives(recording):
    made = recording()
    made.kernel("sgemm", 0, 5)
    made.memset(3, 5)
    assert collectives_of(made.trace()) == []


def test_a_real_job_without_metadata_on_kernels():
    # Recorded only by nccl:* and c10d::* operators of PyTorch 1.13; the kernels' names contain
    # SendRecv.
    ones = collectives_of(sample("hta_2of128/rank-0.json.gz"))
    assert [(one.op, one.dtype, one.elements) for one in ones[:5]] == [
        ("all_to_all", "Long", 384),
        ("all_to_all", "Byte", 419430400),
        ("all_reduce", "Float", 19618307),
        ("all_reduce", "Float", 26955536),
        ("all_gather", "Char", 1073741824),
    ]
    assert {one.source for one in ones} == {"operator"}


def test_a_real_job_of_2022_with_and_without_launches():
    ones = collectives_of(sample("v100_ddp_rank1of2.json.gz"))
    assert [one.source for one in ones[:5]] == ["name"] * 4 + ["operator"]
    assert (ones[4].op, ones[4].dtype, ones[4].elements) == (
        "all_to_all",
        "Float",
        2 * 1024 * 34820,
    )
    assert {one.op for one in ones} == {"all_to_all", "all_reduce", "send_recv"}


def test_a_real_job_on_amd_shows_what_its_generic_kernels_do():
    ones = collectives_of(sample("mi300x_ddp_rank0of8.json.gz"))
    assert [one.op for one in ones[:7]] == [None] * 5 + ["broadcast"] * 2
    assert {one.group for one in ones} == {Group("0", tuple(range(8)), 8)}
    assert [one.elements for one in ones if one.op == "all_reduce"] == [2873320, 8816192] * 3


def test_a_real_job_on_h200_with_and_without_metadata():
    ones = collectives_of(sample("h200x4/rank0.pt.trace.json.gz"))
    assert [one.source for one in ones] == ["name"] * 28 + ["kernel"] * 54
    assert {one.group for one in ones} == {Group("0", (0, 1, 2, 3), 4)}
    recorded = [one for one in ones if one.source == "kernel"]
    assert {(one.op, one.dtype, one.elements, one.bytes) for one in recorded} == {
        ("all_gather", "BFloat16", 201363456, 402726912),
        ("reduce_scatter", "Float", 201363456, 805453824),
    }
