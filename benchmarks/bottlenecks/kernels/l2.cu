// L2 bandwidth: all blocks read the same 8 MiB again and again, past L1. `size`: words of `in`, a
// power of two.
//
// Arithmetic for the severe variant: 1056 blocks of 256 threads × 256 steps × 16 bytes = 1.1 GB from
// L2, 8 MiB of them from DRAM (0.8 %). Known measurements of this generation's L2 are 5.5 to 7 TB/s:
// 160 to 200 µs. Mild: 48 multiply-adds after each load, 16 warps × 48 × 2 = 1536 cycles of a
// scheduler where the loads of its multiprocessor take about 1170.
#include "common.cuh"

template <int WORK>
__device__ void read(const unsigned* in, unsigned* out, int steps, int size) {
  const uint4* table = (const uint4*)in;
  const unsigned mask = size / 4 - 1;
  unsigned sum = 0;
#pragma unroll 8
  for (int step = 0; step < steps; ++step) {
    const uint4 found = __ldcg(table + ((thread_of_grid() + step * 9472u) & mask));
    sum = after<WORK>(sum + (found.x ^ found.y ^ found.z ^ found.w));
  }
  out[thread_of_grid()] = sum;
}

extern "C" __global__ void l2_mild(const unsigned* in, unsigned* out, int steps, int size) {
  read<48>(in, out, steps, size);
}

extern "C" __global__ void l2_severe(const unsigned* in, unsigned* out, int steps, int size) {
  read<0>(in, out, steps, size);
}
