// Atomics: a histogram. In the severe variant all values are equal, so that all additions are to one
// word; in the mild one they spread over 4096 words. `size`: values, a power of two.
//
// Arithmetic for the severe variant: 2^20 additions. One slice of L2 (of 94) has the word; at one
// addition per cycle that is 10^6 cycles, and if it can add up the 32 of a request at once, 32768.
// Reading the values takes 4 MiB, next to nothing.
#include "common.cuh"

__device__ void count(const unsigned* in, unsigned* out, int steps, int size) {
  for (int step = 0; step < steps; ++step) {
    atomicAdd(out + in[(thread_of_grid() + step * gridDim.x * blockDim.x) & (size - 1)], 1u);
  }
}

extern "C" __global__ void atomics_mild(const unsigned* in, unsigned* out, int steps, int size) {
  count(in, out, steps, size);
}

extern "C" __global__ void atomics_severe(const unsigned* in, unsigned* out, int steps, int size) {
  count(in, out, steps, size);
}
