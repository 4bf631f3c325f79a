// Divergence: the lanes of a warp take one of WAYS branches, one after the other.
//
// Arithmetic for the severe variant (32): every instruction of the branches has 1 active lane of 32.
// 16 warps on a scheduler × 2 passes × 32 branches × 32 steps × 6.4 instructions = 210000 cycles of
// issue; FP32 and integers are each at two thirds of what their pipes take (common.cuh), so that
// issuing is the limit and 31 of 32 lanes are wasted. Mild (2): half of them.
#include "common.cuh"

template <int WAYS>
__device__ void work(const unsigned* in, unsigned* out, int steps) {
  const float one = ((const float*)in)[0];
  Mixed mixed(threadIdx.x);
  const int way = lane() % WAYS;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
#pragma unroll 1
    for (int turn = 0; turn < WAYS; ++turn) {
      if (way == turn) {
#pragma unroll 1
        for (int i = 0; i < 2; ++i) {
#pragma unroll
          for (int j = 0; j < 16; ++j) mixed.step(one, one);
        }
      }
    }
  }
  out[thread_of_grid()] = mixed.result();
}

extern "C" __global__ void divergence_mild(
    const unsigned* in, unsigned* out, int steps, int size) {
  work<2>(in, out, steps);
}

extern "C" __global__ void divergence_severe(
    const unsigned* in, unsigned* out, int steps, int size) {
  work<32>(in, out, steps);
}
