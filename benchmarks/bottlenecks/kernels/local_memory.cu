// Spills: a thread keeps VALUES sums, and the launch bounds leave it 32 registers, so that the
// compiler moves sums to local memory and back in each step.
//
// Arithmetic for the severe variant: about 24 of 48 values are spilled: 24 loads and 24 stores for 48
// multiply-adds. 24 × 4 bytes × 2048 threads = 192 KiB, about the size of L1. 64 warps × 48 requests
// are 3072 cycles of the load/store pipe a step, which takes one a cycle, next to 64 × 100 / 4 = 1600
// cycles of issue. Global memory is touched only at the start and the end. Mild: few spills.
#include "common.cuh"

template <int VALUES>
__device__ void work(const unsigned* in, unsigned* out, int steps) {
  unsigned kept[VALUES];
  const unsigned factor = in[0];
#pragma unroll
  for (int value = 0; value < VALUES; ++value) kept[value] = in[value] + threadIdx.x;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int value = 0; value < VALUES; ++value) kept[value] = kept[value] * factor + step;
  }
  unsigned sum = 0;
#pragma unroll
  for (int value = 0; value < VALUES; ++value) sum = sum * 5 + kept[value];
  out[thread_of_grid()] = sum;
}

extern "C" __global__ void __launch_bounds__(1024) local_memory_mild(
    const unsigned* in, unsigned* out, int steps, int size) {
  work<64>(in, out, steps);
}

extern "C" __global__ void __launch_bounds__(1024) local_memory_severe(
    const unsigned* in, unsigned* out, int steps, int size) {
  work<76>(in, out, steps);
}
