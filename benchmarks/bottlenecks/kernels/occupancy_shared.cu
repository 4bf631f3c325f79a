// Occupancy limited by shared memory: the walk through L2 of occupancy_registers.cu in blocks that
// request much dynamic shared memory. `in`: `size` rows of 32 words, each the number of the next row.
//
// Arithmetic for the severe variant: 200 KiB a block of 227 KiB: 1 block, 4 warps of 64 (6.25 %), one
// on each scheduler, which waits 300 cycles for each load. Mild: 52 KiB, 4 blocks, 16 warps (25 %).
#include "common.cuh"

extern __shared__ unsigned pool[];

__device__ void walk(const unsigned* in, unsigned* out, int steps, int size) {
  unsigned bytes;
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
  const unsigned words = 1u << (31 - __clz(bytes / 4));  // the part in use, a power of two
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) pool[i] = i;
  __syncthreads();
  unsigned row = thread_of_grid() / 32 * 37 % size, sum = 0;
  for (int step = 0; step < steps; ++step) {
    row = __ldcg(in + row * 32 + lane());
    sum += pool[(row * blockDim.x + threadIdx.x) & (words - 1)];
  }
  out[thread_of_grid()] = sum;
}

extern "C" __global__ void occupancy_shared_mild(
    const unsigned* in, unsigned* out, int steps, int size) {
  walk(in, out, steps, size);
}

extern "C" __global__ void occupancy_shared_severe(
    const unsigned* in, unsigned* out, int steps, int size) {
  walk(in, out, steps, size);
}
