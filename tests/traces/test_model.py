from __future__ import annotations

from gemmetry.traces.names import KernelKind

GEMM = "volta_sgemm_64x64_tn"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def test_kernels_are_distinguished_by_their_names(recording):
    made = recording()
    made.kernel(GEMM, 0, 10)
    made.kernel(NCCL, 5, 10)
    made.memset(10, 10)
    # Its name is a GEMM's, but it is a copy.
    made.kernel(GEMM, 20, 10, category="gpu_memcpy")
    made.kernel("something", 30, 10)
    trace = made.trace()
    order = trace.rows.gpu.start_ns.argsort()
    assert trace.is_kernel[order].tolist() == [True, True, False, False, True]
    assert trace.is_gemm[order].tolist() == [True, False, False, False, False]
    assert trace.is_communication[order].tolist() == [False, True, False, False, False]
    kinds = {
        trace.rows.names[index]: recorded.kind for index, recorded in trace.kernel_names.items()
    }
    assert kinds[GEMM] is KernelKind.GEMM
    assert len(kinds) == 3
    assert (trace.communication.start.tolist(), trace.communication.length) == ([5], 10)


def test_the_label_shows_file_rank_and_device(recording):
    made = recording(distributedInfo={"rank": 3, "world_size": 8})
    made.kernel(GEMM, 0, 10)
    assert made.trace("a/b.json").label == "b.json, rank 3 of 8, NVIDIA H200"
    alone = recording(distributedInfo={"rank": 0, "world_size": 1}, deviceProperties=[])
    alone.kernel(GEMM, 0, 10)
    assert alone.trace("a/b.json").label == "b.json"
    assert recording().trace("a/b.json").label == "b.json"
