// DRAM bandwidth: four streams are read once and added, and one is written. `size`: words of a stream.
//
// Arithmetic: 2^24 words a stream: 256 MiB read (over four times the L2 of an H200) and 64 MiB
// written: at 4.8 TB/s 70 µs, at what is reached, 90 %, 78 µs. The mild variant advances each sum by
// `steps` dependent multiply-adds: 64 × 2^24 of 132 × 64 a cycle are 127000 cycles, about as long as
// the transfers, and the two do not overlap fully.
#include "common.cuh"

__device__ void add(const unsigned* in, unsigned* out, int steps, int size) {
  const unsigned place = thread_of_grid(), stride = size / 4;
  const uint4* from = (const uint4*)in + place;
  const uint4 a = from[0], b = from[stride], c = from[2 * stride], d = from[3 * stride];
  uint4 sum = make_uint4(
      a.x + b.x + c.x + d.x, a.y + b.y + c.y + d.y, a.z + b.z + c.z + d.z, a.w + b.w + c.w + d.w);
  for (int step = 0; step < steps; ++step) {
    sum = make_uint4(next(sum.x), next(sum.y), next(sum.z), next(sum.w));
  }
  ((uint4*)out)[place] = sum;
}

extern "C" __global__ void dram_mild(const unsigned* in, unsigned* out, int steps, int size) {
  add(in, out, steps, size);
}

extern "C" __global__ void dram_severe(const unsigned* in, unsigned* out, int steps, int size) {
  add(in, out, steps, size);
}
