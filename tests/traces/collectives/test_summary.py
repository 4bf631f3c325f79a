from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.traces.collectives.summary import collectives_of, operation_name

SAMPLES = Path(__file__).parents[2] / "data" / "collectives"


@pytest.mark.parametrize(
    ("written", "op"),
    [
        ("_allgather_base", "all_gather"), ("allgather_into_tensor_coalesced", "all_gather"),
        ("nccl:_reduce_scatter_base", "reduce_scatter"), ("allreduce", "all_reduce"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"), ("barrier", "all_reduce"),
        ("all_to_allv", "all_to_all"), ("c10d::alltoall_base_", "all_to_all"),
        ("_broadcast_oop", "broadcast"), ("_reduce_oop", "reduce"), ("gather", "gather"),
        ("c10d::scatter_", "scatter"), ("nccl:send 0->1", "send"), ("nccl:recv 0<-1", "recv"),
        ("wait", None), ("", None), (None, None),
    ],
)  # fmt: skip
def test_operations_in_the_words_of_nccl_tests(written, op):
    assert operation_name(written) == op


@pytest.mark.parametrize(
    ("kernel", "algorithm"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", None),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", None),
        ("ncclDevKernel_AllReduce_Sum_f32_TREE_LL(ncclDevKernelArgsStorage<4096ul>)", "tree"),
        ("ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ring"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "ring"),
        ("ncclKernel_AllReduce_TREE_LL_Sum_float(ncclWorkElem)", "tree"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", None),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(int)", "one_shot"),
    ],
)
def test_algorithm_and_no_protocol_where_the_name_is_sure(recording, kernel, algorithm):
    made = recording()
    made.kernel(kernel, 0, 5)
    (one,) = collectives_of(made.trace())
    assert (one.algorithm, one.protocol) == (algorithm, None)


def test_a_real_job_without_metadata_on_kernels(read_real):
    # Recorded only by nccl:* and c10d::* operators of PyTorch 1.13; the kernels' names contain
    # SendRecv.
    ones = collectives_of(read_real(SAMPLES / "hta_2of128/rank-0.json.gz"))
    assert [(one.op, one.dtype, one.elements) for one in ones[:5]] == [
        ("all_to_all", "Long", 384),
        ("all_to_all", "Byte", 419430400),
        ("all_reduce", "Float", 19618307),
        ("all_reduce", "Float", 26955536),
        ("all_gather", "Char", 1073741824),
    ]
    assert {one.source for one in ones} == {"operator"}
