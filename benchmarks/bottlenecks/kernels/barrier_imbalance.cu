// Barrier imbalance: between two barriers, one warp of the block's 32 has HEAVY steps to do and the
// others LIGHT ones; the heavy warp changes with each step.
//
// Arithmetic for the severe variant (8 and 512): the heavy warp's chain of multiply-adds takes about
// 512 × 4.5 = 2300 cycles, in which the other 31 wait, 97 % of warp cycles. 2 of 64 warps issue: the
// multiprocessor issues less than 1 instruction in 2 cycles of 4 × 2. Mild (32 and 128): the light
// steps of 16 warps on a scheduler take 16 × 32 × 2 = 1024 cycles, the rest of the heavy ones 430.
#include "common.cuh"

template <int LIGHT, int HEAVY>
__device__ void work(const unsigned* in, unsigned* out, int steps) {
  unsigned value = in[threadIdx.x];
  for (int step = 0; step < steps; ++step) {
    const int count = threadIdx.x / 32 == step % 32 ? HEAVY / 8 : LIGHT / 8;
#pragma unroll 1
    for (int i = 0; i < count; ++i) value = after<8>(value);
    __syncthreads();
  }
  out[thread_of_grid()] = value;
}

extern "C" __global__ void __launch_bounds__(1024, 2) barrier_imbalance_mild(
    const unsigned* in, unsigned* out, int steps, int size) {
  work<32, 128>(in, out, steps);
}

extern "C" __global__ void __launch_bounds__(1024, 2) barrier_imbalance_severe(
    const unsigned* in, unsigned* out, int steps, int size) {
  work<8, 512>(in, out, steps);
}
