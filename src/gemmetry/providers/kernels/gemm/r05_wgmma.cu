// C = A @ B: Hopper's matrix instructions, fed by its copy engine.
//
// Step from r04: one thread asks for a box of A and one of B, the copy engine lays them down in shared
// memory in the swizzle that the matrix instructions read, and a warpgroup of 128 threads multiplies
// 64 rows of the tile by one instruction for every 16 of K. No thread copies elements or loads
// fragments any more. Fetching and multiplying still alternate.
//
// The mbarrier `full` completes when the bytes are there.
//
// Macros given by the host besides those of ptx.cuh: TILE_M, TILE_N, CONSUMERS. A (m, k) and B (n, k)
// are contiguous along K, in rows of a multiple of 16 bytes.
#include "ptx.cuh"

constexpr int STEP = 64;   // of K: one row of the 128-byte swizzle
constexpr int SLICES = 4;  // wgmma instructions along a step: 16 of K each
constexpr int THREADS = 128 * CONSUMERS;
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
  const u32 a = (shared_address(memory) + 1023) / 1024 * 1024;
  const u32 full = a + STAGE_BYTES;

  // The shuffle shows the compiler that all lanes have the same number.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  const int columns = (work.n + TILE_N - 1) / TILE_N;
  const int row = blockIdx.x / columns * TILE_M, column = blockIdx.x % columns * TILE_N;
  const int steps = (work.k + STEP - 1) / STEP;
  if (threadIdx.x == 0) {
    prefetch_map(&map_a);
    prefetch_map(&map_b);
    barrier_init(full, 1);
    barrier_init_fence();
  }
  __syncthreads();

  const int warpgroup = warp / 4;
  float sums[SUMS];
  for (int step = 0; step < steps; ++step) {
    if (threadIdx.x == 0) {
      arrive_expecting(full, STAGE_BYTES);
      load_box(a, &map_a, step * STEP, row, full);
      load_box(a + A_BYTES, &map_b, step * STEP, column, full);
    }
    wait_for(full, step % 2);
    const u64 of_a = k_major(a + warpgroup * 8192), of_b = k_major(a + A_BYTES);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice) {
      wgmma(sums, of_a + slice * 32 / 16, of_b + slice * 32 / 16, step > 0 || slice > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    __syncthreads();  // all have read the boxes, so the next ones can come
  }
  sums_are_complete(sums);
  store(sums, row + warpgroup * 64 + warp % 4 * 16, column, work, c);
}
