// Tail wave: blocks that keep the FP32 pipe full, one to a multiprocessor (32 sums in registers, 1024
// threads), and a number of blocks that leaves most of the last wave empty.
//
// Arithmetic for the severe variant on an H200: 133 blocks on 132 multiprocessors are 2 waves, of
// which the second holds one block: 133 / 264 = 50 % of the time is used. A wave is 8 warps on a
// scheduler × 32 chains × 512 steps = 131072 cycles. Mild: 3.5 waves, 88 %.
#include "common.cuh"

__device__ void work(const unsigned* in, unsigned* out, int steps) {
  const float one = ((const float*)in)[0];
  float chain[32];
#pragma unroll
  for (int i = 0; i < 32; ++i) chain[i] = threadIdx.x + i;
#pragma unroll 4
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int i = 0; i < 32; ++i) chain[i] = fmaf(chain[i], one, one);
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 32; ++i) sum += chain[i];
  out[thread_of_grid()] = (unsigned)sum;
}

extern "C" __global__ void __launch_bounds__(1024, 1) tail_wave_mild(
    const unsigned* in, unsigned* out, int steps, int size) {
  work(in, out, steps);
}

extern "C" __global__ void __launch_bounds__(1024, 1) tail_wave_severe(
    const unsigned* in, unsigned* out, int steps, int size) {
  work(in, out, steps);
}
