from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.traces.collectives.summary import collectives_of, operation_name
from gemmetry.traces.model import Trace
from gemmetry.traces.reading import read_trace

SAMPLES = Path(__file__).parents[2] / "data" / "collectives"

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)"


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
