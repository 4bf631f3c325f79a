// Uncoalesced global loads: neighbouring lanes read words 2^BITS words apart. The index is the
// thread's number rotated by BITS within log2(size) bits, so that all threads together still read
// every word once a step. `size`: words of `in`, a power of two.
//
// Arithmetic for the severe variant (BITS 5, 2^22 words = 16 MiB, which L2 holds): a request touches
// 32 lines of 128 bytes and uses 4 of the 32 bytes of each sector; coalesced it would be 4 sectors.
// 8 steps × 2^22 loads × 32 bytes = 1 GiB from L2 where 128 MiB are wanted. Mild (BITS 1): 8 sectors
// a request, half of them wasted.
#include "common.cuh"

template <int BITS>
__device__ void gather(const unsigned* in, unsigned* out, int steps, int size) {
  unsigned thread = thread_of_grid(), top = __ffs(size) - 1;
  unsigned index = thread << BITS | thread >> (top - BITS), sum = 0;
#pragma unroll 4
  for (int step = 0; step < steps; ++step) sum += in[(index + step * 69632u) & (size - 1)];
  out[thread] = sum;
}

extern "C" __global__ void uncoalesced_mild(
    const unsigned* in, unsigned* out, int steps, int size) {
  gather<1>(in, out, steps, size);
}

extern "C" __global__ void uncoalesced_severe(
    const unsigned* in, unsigned* out, int steps, int size) {
  gather<5>(in, out, steps, size);
}
