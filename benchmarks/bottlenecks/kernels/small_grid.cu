// A grid that is too small: the severe variant has a single thread, the mild one 16 blocks, on a GPU
// with 132 multiprocessors.
//
// Arithmetic: 65536 dependent multiply-adds of about 4.5 cycles are 295000 cycles. 1 of 132
// multiprocessors is active, with 1 warp of 64, in which 1 lane of 32 is active.
#include "common.cuh"

__device__ void work(const unsigned* in, unsigned* out, int steps) {
  unsigned value = in[threadIdx.x];
#pragma unroll 1
  for (int step = 0; step < steps; step += 16) value = after<16>(value);
  out[thread_of_grid()] = value;
}

extern "C" __global__ void small_grid_mild(
    const unsigned* in, unsigned* out, int steps, int size) {
  work(in, out, steps);
}

extern "C" __global__ void small_grid_severe(
    const unsigned* in, unsigned* out, int steps, int size) {
  work(in, out, steps);
}
