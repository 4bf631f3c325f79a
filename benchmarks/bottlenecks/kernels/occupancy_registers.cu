// Occupancy limited by registers: each thread keeps VALUES sums in registers, and each step waits for
// one load from L2 whose address is the previous load's value. Only more warps could fill the time.
// `in`: `size` rows of 32 words, each word the number of the next row, so that loads are coalesced.
//
// Arithmetic for the severe variant: 192 values and about 20 more registers, rounded up to 216, times
// 128 threads are 27648 of 65536 registers: 2 blocks, 8 warps of 64 (12.5 %). 2 warps on a scheduler,
// an instruction or three per 300 cycles: issue slots nearly empty. 8 warps × 128 bytes in 300 cycles
// are 3.4 of the 64 bytes per cycle that L2 gives a multiprocessor: no bandwidth is near its limit.
#include "common.cuh"

template <int VALUES>
__device__ void walk(const unsigned* in, unsigned* out, int steps, int size) {
  unsigned kept[VALUES];
#pragma unroll
  for (int value = 0; value < VALUES; ++value) kept[value] = threadIdx.x + value;
  unsigned row = thread_of_grid() / 32 * 37 % size;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int value = 0; value < VALUES; ++value) {
      row = __ldcg(in + row * 32 + lane());
      kept[value] = kept[value] * 3 + row;
    }
  }
  unsigned sum = 0;
#pragma unroll
  for (int value = 0; value < VALUES; ++value) sum = sum * 5 + kept[value];
  out[thread_of_grid()] = sum;
}

extern "C" __global__ void __launch_bounds__(128) occupancy_registers_mild(
    const unsigned* in, unsigned* out, int steps, int size) {
  walk<80>(in, out, steps, size);
}

extern "C" __global__ void __launch_bounds__(128) occupancy_registers_severe(
    const unsigned* in, unsigned* out, int steps, int size) {
  walk<192>(in, out, steps, size);
}
