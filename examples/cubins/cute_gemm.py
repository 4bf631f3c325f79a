"""A GEMM in CuTe DSL, compiled to cute_gemm.cubin without a GPU:

    pip install nvidia-cutlass-dsl==4.8.1
    python cute_gemm.py

Its manifest is cute_gemm.toml.
"""

import os
import tempfile
from pathlib import Path

FOLDER = tempfile.TemporaryDirectory()
os.environ |= {
    "CUTE_DSL_ARCH": "sm_90a", "CUTE_DSL_KEEP": "cubin", "CUTE_DSL_DUMP_DIR": FOLDER.name,
}  # fmt: skip

import cutlass.cute as cute  # noqa: E402, it reads the variables
from cutlass import BFloat16, Float32, Int32  # noqa: E402
from cutlass.cute.runtime import make_ptr  # noqa: E402

TILE_M, TILE_N, STEP = 64, 64, 16
"""A block computes one tile of C, by four warps of the tensor cores' mma instructions."""


@cute.kernel
def gemm(
    a_pointer: cute.Pointer,
    b_pointer: cute.Pointer,
    c_pointer: cute.Pointer,
    m: Int32,
    n: Int32,
    k: Int32,
) -> None:
    """C = A @ B for row-major A and C and column-major B; tiles divide the sizes."""
    thread, _, _ = cute.arch.thread_idx()
    column, row, _ = cute.arch.block_idx()
    a = cute.make_tensor(a_pointer, cute.make_layout((m, k), stride=(k, 1)))
    b = cute.make_tensor(b_pointer, cute.make_layout((n, k), stride=(k, 1)))
    c = cute.make_tensor(c_pointer, cute.make_layout((m, n), stride=(n, 1)))

    instruction = cute.nvgpu.warp.MmaF16BF16Op(BFloat16, Float32, (16, 8, 16))
    mma = cute.make_tiled_mma(instruction, cute.make_layout((2, 2, 1)))
    own = mma.get_slice(thread)
    own_a = own.partition_A(cute.local_tile(a, (TILE_M, STEP), (row, None)))
    own_b = own.partition_B(cute.local_tile(b, (TILE_N, STEP), (column, None)))
    own_c = own.partition_C(cute.local_tile(c, (TILE_M, TILE_N), (row, column)))

    fragment_a = mma.make_fragment_A(own_a[None, None, None, 0])
    fragment_b = mma.make_fragment_B(own_b[None, None, None, 0])
    sums = mma.make_fragment_C(own_c)
    sums.fill(0.0)
    for step in range(k // STEP):
        cute.autovec_copy(own_a[None, None, None, step], fragment_a)
        cute.autovec_copy(own_b[None, None, None, step], fragment_b)
        cute.gemm(mma, sums, fragment_a, fragment_b, sums)

    rounded = cute.make_rmem_tensor_like(sums, BFloat16)
    rounded.store(sums.load().to(BFloat16))
    cute.autovec_copy(rounded, own_c)


@cute.jit
def host(a: cute.Pointer, b: cute.Pointer, c: cute.Pointer, m: Int32, n: Int32, k: Int32) -> None:
    """The launch that makes the compiler generate the kernel; the manifest states its own."""
    grid = (n // TILE_N, m // TILE_M, 1)
    gemm(a, b, c, m, n, k).launch(grid=grid, block=(128, 1, 1))


if __name__ == "__main__":
    pointers = [make_ptr(BFloat16, 0, cute.AddressSpace.gmem, assumed_align=16) for _ in range(3)]
    compiled = cute.compile(host, *pointers, Int32(0), Int32(0), Int32(0))
    Path(__file__).with_suffix(".cubin").write_bytes(compiled.__cubin__)
