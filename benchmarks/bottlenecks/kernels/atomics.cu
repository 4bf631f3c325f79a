// Atomics: a histogram. In the severe variant all values are equal, so that all additions are to one
// word; in the mild one they spread over 4096 words. `size`: values, a power of two.
//
// Arithmetic for the severe variant: 2^22 additions in 2^17 requests. One slice of L2 (of 94) has the
// word; if it adds up the 32 lanes of a request at once, that is 131072 cycles, and at one addition
// per cycle 32 times as many. Reading the values takes 16 MiB, next to nothing.
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
