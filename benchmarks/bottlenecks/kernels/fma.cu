// FP32 pipe: chains of multiply-adds in registers and nothing else.
//
// Arithmetic for the severe variant: 16 warps on a scheduler × 8 chains × 2048 steps = 262144 cycles,
// in each of which the pipe takes one multiply-add of a warp. Mild: 3 warps on a scheduler with one
// chain each; a result takes 4 cycles, so the pipe is at 75 %.
#include "common.cuh"

template <int CHAINS>
__device__ void work(const unsigned* in, unsigned* out, int steps) {
  const float one = ((const float*)in)[0];
  float chain[CHAINS];
#pragma unroll
  for (int i = 0; i < CHAINS; ++i) chain[i] = threadIdx.x + i;
#pragma unroll 16
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int i = 0; i < CHAINS; ++i) chain[i] = fmaf(chain[i], one, one);
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < CHAINS; ++i) sum += chain[i];
  out[thread_of_grid()] = (unsigned)sum;
}

extern "C" __global__ void fma_mild(const unsigned* in, unsigned* out, int steps, int size) {
  work<1>(in, out, steps);
}

extern "C" __global__ void fma_severe(const unsigned* in, unsigned* out, int steps, int size) {
  work<8>(in, out, steps);
}
