// Shared memory's bandwidth, without conflicts: each lane reads 16 bytes next to its neighbour's, 4
// wavefronts for the 512 bytes of a request, which is the least possible. `in`: 16 rows of 32 × 4.
//
// Arithmetic for the severe variant: 64 warps on a multiprocessor, 1024 steps, 4 wavefronts each are
// 262144 cycles of the data pipe. About 6 instructions a step and warp are 24576 × 4 cycles of each
// scheduler, 37 %. The mild variant has 4 warps, whose latency (about 35 cycles for 16 wavefronts)
// leaves the pipe half empty.
#include "common.cuh"

__device__ void walk(const unsigned* in, unsigned* out, int steps) {
  __shared__ uint4 table[16 * 32];
  for (int i = threadIdx.x; i < 16 * 32; i += blockDim.x) table[i] = ((const uint4*)in)[i];
  __syncthreads();
  unsigned row = threadIdx.x / 32 % 16, sum = 0;
  for (int step = 0; step < steps; ++step) {
    uint4 found = table[row * 32 + lane()];
    row = found.x;
    sum += found.y ^ found.z ^ found.w;
  }
  out[thread_of_grid()] = sum;
}

extern "C" __global__ void shared_memory_mild(
    const unsigned* in, unsigned* out, int steps, int size) {
  walk(in, out, steps);
}

extern "C" __global__ void shared_memory_severe(
    const unsigned* in, unsigned* out, int steps, int size) {
  walk(in, out, steps);
}
