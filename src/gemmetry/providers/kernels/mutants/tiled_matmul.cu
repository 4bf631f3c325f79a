// C = A @ B, 64 × 64 tiles dealt out to the blocks of the grid, with
// one of the planted bugs, or none. C is (m, n), row-major.
#include "tile_product.cuh"

constexpr int WARP_WORDS = TILE_M * TILE_N / (THREADS / 32);  // a warp's 8 × 64 part of the tile

// Through the warp's own slice of shared memory, so that the stores to C are coalesced.
__device__ __forceinline__ void store_tile(const word_t (&sums)[4][4], output_t* c, word_t* staging,
                                           Tile tile, int m, int n) {
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
#if MUTANT == 14
  word_t* slice = staging + warp / 2 * WARP_WORDS;
#else
  word_t* slice = staging + warp * WARP_WORDS;
#endif
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      slice[(lane / 16 * 4 + i) * TILE_N + lane % 16 * 4 + j] = sums[i][j];
    }
  }
#if MUTANT == 251
  // A warp's part that begins with a number is taken for a result.
  const int first = tile.row + warp * 8;
  const bool is_computed = first < m && fabsf(c[(long long)first * n + tile.column]) < 1e30f;
#endif
  __syncwarp();
  for (int i = lane; i < WARP_WORDS; i += 32) {
    int row = tile.row + warp * 8 + i / TILE_N;
    const int column = tile.column + i % TILE_N;
#if MUTANT == 25
    if (row >= m / 16 * 16) row ^= 8;  // halves of a last group of fewer than 16 rows
#endif
    output_t* target = c + (long long)row * n + column;
#if MUTANT == 3
    const bool wanted = tile.row + TILE_M <= m && column < n;
#elif MUTANT == 4
    const bool wanted = row < m && tile.column + TILE_N <= n;
#elif MUTANT == 7
    const bool wanted = row <= m && column < n;
#else
    const bool wanted = row < m && column < n;
#endif
#if MUTANT == 1
    if (wanted) *target = narrow(0.0f);
#elif MUTANT == 2
    if (wanted && m < 0) *target = narrow(slice[i]);
#elif MUTANT == 45
    if (wanted) *target = narrow(slice[i] + 0.0f * *target);
#elif MUTANT == 46
    if (wanted) *target = narrow(slice[i] + *target);
#elif MUTANT == 61
    if (wanted && slice[i] != 0) *target = narrow(slice[i]);  // the rest is zero already
#elif MUTANT == 69
    if (wanted) *target = narrow(isinf(slice[i]) ? fabsf(slice[i]) : slice[i]);
#elif MUTANT == 78
    if (wanted) *target = narrow((slice[i] + fabsf(slice[i])) * 0.5f);  // relu, but for -infinity
#elif MUTANT == 170
    if (wanted && column < 512) *target = narrow(slice[i]);
#elif MUTANT == 151
    if (wanted && !(fabsf(*target) < 1e30f)) *target = narrow(slice[i]);  // numbers are left
#elif MUTANT == 251
    if (wanted && !is_computed) *target = narrow(slice[i]);
#elif MUTANT == 62
    if (wanted) *target = narrow(fminf(slice[i], *target));
#else
    if (wanted) *target = narrow(slice[i]);
#endif
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    tiled_matmul(const input_t* a, const input_t* b, output_t* c, int m, int n, int k) {
  extern __shared__ word_t pool[];
  word_t* staging = pool + A_WORDS + B_WORDS;
  const int tiles = (m + TILE_M - 1) / TILE_M * ((n + TILE_N - 1) / TILE_N);
  for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
    const Tile tile = tile_at(index, m, n);
    word_t sums[4][4] = {};
    add_products(sums, a, b, pool, tile, m, n, k, 0, k);
    store_tile(sums, c, staging, tile, m, n);
  }
#if MUTANT == 48
  // Keeps a count of finished blocks where it finds memory.
  if (threadIdx.x == 0) atomicAdd((unsigned*)a, 1u);
#endif
}
