// Load/store requests: a product of matrices without shared memory. A thread computes ROWS elements
// of one column of C; for each multiply-add it requests an element of A (the same for all lanes) and,
// once for ROWS of them, one of B. `in`: A and then B, both `steps` × `steps` floats, row by row.
//
// Arithmetic for the severe variant (ROWS 1) with 1024: 2 requests for each of 1024³ / 32 warp-wide
// multiply-adds are 67 million, 508000 cycles of a load/store pipe that takes one a cycle. The FP32
// pipe is busy for 63000 of them, 12 %. Sixteen of a warp's requests are under way at a time, so that
// those of 64 warps take three times as long as a line of B takes to come from L2. Blocks of 32 × 32 elements share what they read through L1:
// 256 MiB come from L2, about 50 µs of 300. Mild (ROWS 4): 1.25 requests for each multiply-add.
#include "common.cuh"

template <int ROWS>
__device__ void multiply(const unsigned* in, unsigned* out, int side) {
  const float* a = (const float*)in;
  const float* b = a + side * side;
  const int tiles = side / 32;
  const int column = blockIdx.x % tiles * 32 + lane();
  const int row = (blockIdx.x / tiles * 32 + threadIdx.x / 32) * ROWS;
  float sums[ROWS] = {};
#pragma unroll 8
  for (int k = 0; k < side; ++k) {
    const float right = b[k * side + column];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) sums[i] = fmaf(a[(row + i) * side + k], right, sums[i]);
  }
#pragma unroll
  for (int i = 0; i < ROWS; ++i) ((float*)out)[(row + i) * side + column] = sums[i];
}

extern "C" __global__ void naive_gemm_mild(
    const unsigned* in, unsigned* out, int steps, int size) {
  multiply<4>(in, out, steps);
}

extern "C" __global__ void naive_gemm_severe(
    const unsigned* in, unsigned* out, int steps, int size) {
  multiply<1>(in, out, steps);
}
