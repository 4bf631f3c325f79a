// Latency of global memory: each load's address is the value of the load before it, in a table far
// larger than L2, with every multiprocessor full of warps. `in`: `size` rows of 32 words, each the
// number of the next row.
//
// Arithmetic for the severe variant: 8448 warps wait for 128 bytes each, about 0.7 µs: 1.5 TB/s, a
// third of what DRAM gives, and the schedulers issue 16 × 4 instructions in 1200 cycles, 5 %. Only
// more loads in flight would help. Mild: 24 multiply-adds after each load, 16 × 24 × 2 = 768 cycles
// of a scheduler in the same time.
#include "common.cuh"

template <int WORK>
__device__ void walk(const unsigned* in, unsigned* out, int steps, int size) {
  unsigned row = thread_of_grid() / 32 * 37 % size, sum = 0;
  for (int step = 0; step < steps; ++step) {
    row = in[row * 32 + lane()];
    sum = after<WORK>(sum + row);
  }
  out[thread_of_grid()] = sum;
}

extern "C" __global__ void pointer_chase_mild(
    const unsigned* in, unsigned* out, int steps, int size) {
  walk<24>(in, out, steps, size);
}

extern "C" __global__ void pointer_chase_severe(
    const unsigned* in, unsigned* out, int steps, int size) {
  walk<0>(in, out, steps, size);
}
