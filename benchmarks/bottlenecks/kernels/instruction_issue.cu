// Issue slots: multiply-adds and integer operations that no pipe limits (common.cuh), all lanes
// active.
//
// Arithmetic for the severe variant: 16 warps on a scheduler × 2560 steps × 6.1 instructions = 250000
// cycles, each of which issues one instruction. Mild: 1 warp on a scheduler, which must wait for its
// own results.
#include "common.cuh"

__device__ void work(const unsigned* in, unsigned* out, int steps) {
  const float one = ((const float*)in)[0];
  Mixed mixed(threadIdx.x);
#pragma unroll 16
  for (int step = 0; step < steps; ++step) mixed.step(one, one);
  out[thread_of_grid()] = mixed.result();
}

extern "C" __global__ void instruction_issue_mild(
    const unsigned* in, unsigned* out, int steps, int size) {
  work(in, out, steps);
}

extern "C" __global__ void instruction_issue_severe(
    const unsigned* in, unsigned* out, int steps, int size) {
  work(in, out, steps);
}
