// C = A @ B: fetching runs ahead of multiplying.
//
// Step from r05: instead of one stage there is a ring of STAGES, and thread 0 starts the fetch of a
// stage as soon as every warp has reported, at an mbarrier of its own, that it has read what was in it
// before. While a step is multiplied, the next ones are under way.
//
// full[s] completes when the bytes of stage s are there, empty[s] when all warps have read stage s.
//
// Macros given by the host besides those of ptx.cuh: TILE_M, TILE_N, STAGES, CONSUMERS. A (m, k) and
// B (n, k) are contiguous along K, in rows of a multiple of 16 bytes.
#include "ptx.cuh"

constexpr int STEP = 64;   // of K: one row of the 128-byte swizzle
constexpr int SLICES = 4;  // wgmma instructions along a step: 16 of K each
constexpr int WARPS = 4 * CONSUMERS, THREADS = 128 * CONSUMERS;
constexpr int SUMS = TILE_N / 2;  // of one thread; a warpgroup has 64 rows
constexpr int A_BYTES = TILE_M * 128, B_BYTES = TILE_N * 128, STAGE_BYTES = A_BYTES + B_BYTES;

struct Work {
  int m, n, k;
};

// One instruction's 64 rows of the tile leave; this warp has 16 of them, from `row` on.
__device__ __forceinline__ void store(const float (&sums)[SUMS], int row, int column,
                                      const Work& work, output_t* c) {
  const int lane = threadIdx.x % 32;
  const int upper = row + lane / 4, left = column + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    const int y = upper + i / 2 % 2 * 8, x = left + i / 4 * 8 + i % 2;
    if (y < work.m && x < work.n) c[(long long)y * work.n + x] = narrow(sums[i]);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
         output_t* c, Work work) {
  extern __shared__ char memory[];
  const u32 stages = (shared_address(memory) + 1023) / 1024 * 1024;
  const u32 full = stages + STAGES * STAGE_BYTES;
  const u32 empty = full + 8 * STAGES;

  // The shuffle shows the compiler that all lanes have the same number.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const int columns = (work.n + TILE_N - 1) / TILE_N;
  const int row = blockIdx.x / columns * TILE_M, column = blockIdx.x % columns * TILE_N;
  const int steps = (work.k + STEP - 1) / STEP;
  // Starts the fetch of a step, the first of which find their stage empty.
  auto fetch = [&](int step) {
    const int stage = step % STAGES, round = step / STAGES;
    const u32 barrier = full + 8 * stage, a = stages + stage * STAGE_BYTES;
    if (round > 0) wait_for(empty + 8 * stage, (round - 1) % 2);
    arrive_expecting(barrier, STAGE_BYTES);
    load_box(a, &map_a, step * STEP, row, barrier);
    load_box(a + A_BYTES, &map_b, step * STEP, column, barrier);
  };
  if (threadIdx.x == 0) {
    prefetch_map(&map_a);
    prefetch_map(&map_b);
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier_init(full + 8 * stage, 1);
      barrier_init(empty + 8 * stage, WARPS);
    }
    barrier_init_fence();
    for (int step = 0; step < min(STAGES - 1, steps); ++step) fetch(step);
  }
  __syncthreads();

  const int warpgroup = warp / 4;
  float sums[SUMS];
  for (int step = 0; step < steps; ++step) {
    const int stage = step % STAGES;
    wait_for(full + 8 * stage, step / STAGES % 2);
    const u32 a = stages + stage * STAGE_BYTES;
    const u64 of_a = k_major(a + warpgroup * 8192), of_b = k_major(a + A_BYTES);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice) {
      wgmma(sums, of_a + slice * 32 / 16, of_b + slice * 32 / 16, step > 0 || slice > 0);
    }
    wgmma_commit();
    wgmma_wait<1>();  // the step before is complete, so its stage can be filled again
    if (step > 0 && lane == 0) arrive(empty + 8 * ((step - 1) % STAGES));
    if (threadIdx.x == 0 && step + STAGES - 1 < steps) fetch(step + STAGES - 1);
    __syncwarp();
  }
  wgmma_wait<0>();
  sums_are_complete(sums);
  store(sums, row + warpgroup * 64 + warp % 4 * 16, column, work, c);
}
