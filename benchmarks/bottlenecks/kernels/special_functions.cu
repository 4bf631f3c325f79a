// Special functions: chains of powers, 2^-x, on the XU pipe, which takes a warp's instruction in 8
// cycles. The chains end at the number that is its own power, 0.6412. (A chain of reciprocals would
// not do: the assembler removes pairs of them.)
//
// Arithmetic for the severe variant: 16 warps on a scheduler × 4 chains × 512 steps × 8 cycles =
// 262144 cycles. Mild: 2 warps on a scheduler with one chain: 16 cycles of the pipe in the latency of
// one power, somewhat over 20.
#include "common.cuh"

template <int CHAINS>
__device__ void work(const unsigned* in, unsigned* out, int steps) {
  float chain[CHAINS];
#pragma unroll
  for (int i = 0; i < CHAINS; ++i) chain[i] = 1 + (threadIdx.x + i) / 1024.0f;
#pragma unroll 8
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int i = 0; i < CHAINS; ++i) {
      asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(chain[i]) : "f"(-chain[i]));
    }
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < CHAINS; ++i) sum += chain[i];
  ((float*)out)[thread_of_grid()] = sum;
}

extern "C" __global__ void special_functions_mild(
    const unsigned* in, unsigned* out, int steps, int size) {
  work<1>(in, out, steps);
}

extern "C" __global__ void special_functions_severe(
    const unsigned* in, unsigned* out, int steps, int size) {
  work<4>(in, out, steps);
}
