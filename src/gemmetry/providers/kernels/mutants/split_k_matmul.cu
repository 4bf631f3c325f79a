// C = A @ B with K cut into slices of one block each. SERIAL 0: every slice adds its part to C,
// which the host has set to zero, by atomics. SERIAL 1: slice s waits until the semaphore of its
// tile says that slice s-1 has added its part. f32 results only.
//
// Blocks are numbered slice by slice, so that a block waits only for blocks that started earlier.
#include "tile_product.cuh"

constexpr long long PATIENCE = 4000000000ll;  // clock cycles, two seconds; then the launch fails

__device__ __forceinline__ void wait_for(unsigned* semaphore, unsigned slice) {
  const long long start = clock64();
  unsigned seen;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(semaphore) : "memory");
    if (clock64() - start > PATIENCE) __trap();
  } while (seen < slice);
}

__device__ __forceinline__ void release(unsigned* semaphore, unsigned slice) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(semaphore), "r"(slice) : "memory");
}

extern "C" __global__ void __launch_bounds__(THREADS)
    split_k_matmul(const input_t* a, const input_t* b, float* c, unsigned* semaphores, int m,
                   int n, int k, int slices) {
  extern __shared__ float pool[];
  const int tiles = (m + TILE_M - 1) / TILE_M * ((n + TILE_N - 1) / TILE_N);
  const int index = blockIdx.x % tiles, slice = blockIdx.x / tiles;
#if MUTANT == 34
  const int depth = k / slices;  // what K leaves over belongs to no slice
#else
  const int depth = (k + slices - 1) / slices;
#endif
  const Tile tile = tile_at(index, m, n);
  float sums[4][4] = {};
  add_products(sums, a, b, pool, tile, m, n, k, min(k, slice * depth),
               min(k, (slice + 1) * depth));

#if SERIAL
#if MUTANT != 35
  if (threadIdx.x == 0) wait_for(semaphores + index, slice);
  __syncthreads();
#endif
#endif
  const int y = threadIdx.x / 16, x = threadIdx.x % 16;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const int row = tile.row + 4 * y + i, column = tile.column + 4 * x + j;
      if (row >= m || column >= n) continue;
      float* target = c + (long long)row * n + column;
#if SERIAL
      // __ldcg: past the L1 cache, which may hold what C was before.
      *target = slice == 0 ? sums[i][j] : __ldcg(target) + sums[i][j];
#else
      atomicAdd(target, sums[i][j]);
#endif
    }
  }
#if SERIAL
  __threadfence();
  __syncthreads();
#if MUTANT == 33
  const unsigned next = slice + 1;  // the last slice leaves its number for the next launch
#else
  const unsigned next = slice + 1 == slices ? 0 : slice + 1;
#endif
  if (threadIdx.x == 0) release(semaphores + index, next);
#endif
}
