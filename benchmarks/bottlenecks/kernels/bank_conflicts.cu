// Bank conflicts: the 32 lanes of a warp read the same column of a table in shared memory. A word
// lies in bank (address / 4) % 32, so with rows of 32 words all lanes hit one bank (32 wavefronts a
// request), with rows of 34 words two lanes do (2 wavefronts); 33 would be free of conflicts.
//
// Arithmetic for the severe variant: 64 warps on a multiprocessor, 128 steps, 32 wavefronts each are
// 262144 cycles of the data pipe, which takes one wavefront per cycle; 31 of 32 wavefronts are
// conflicts. A read takes 2048 cycles then, so that its latency of about 30 cycles is nothing.
#include "common.cuh"

template <int PITCH>
__device__ void walk(const unsigned* in, unsigned* out, int steps) {
  __shared__ unsigned table[32 * PITCH];
  for (int i = threadIdx.x; i < 32 * PITCH; i += blockDim.x) table[i] = in[i % PITCH];
  __syncthreads();
  const unsigned* row = table + lane() * PITCH;
  unsigned column = threadIdx.x / 32, sum = 0;
  for (int step = 0; step < steps; ++step) {
    column = row[column];
    sum += column;
  }
  out[thread_of_grid()] = sum;
}

extern "C" __global__ void bank_conflicts_mild(
    const unsigned* in, unsigned* out, int steps, int size) {
  walk<34>(in, out, steps);
}

extern "C" __global__ void bank_conflicts_severe(
    const unsigned* in, unsigned* out, int steps, int size) {
  walk<32>(in, out, steps);
}
