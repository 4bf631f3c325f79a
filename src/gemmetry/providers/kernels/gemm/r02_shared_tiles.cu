// Rung 2: the block fetches tiles of A and B into shared memory together, and each thread still
// computes one element of C.
//
// What changes from rung 1: there, every thread reads its whole row of A and column of B from
// global memory, 2 · K elements for one result. Here a block of TILE × TILE threads shares
// TILE × TILE results, so that an element is fetched once for TILE of them. The warps cooperate:
// threads next to each other fetch elements next to each other along K, which is contiguous in
// both matrices, and a barrier separates filling a tile from reading it.
//
// A is (m, k) row-major, B is stored as (n, k), C is (m, n) row-major; any m, n, k. What lies
// outside A and B is zero in the tile, so that no sum has to know about it.
//
// Macros given by the host: TILE (16 or 32), and those of simt.cuh.
#include "simt.cuh"

extern "C" __global__ void __launch_bounds__(TILE* TILE)
    gemm(const input_t* a, const input_t* b, output_t* c, int m, int n, int k) {
  __shared__ float tile_a[TILE][TILE];
  // Threads of a warp read TILE rows of B's tile at one depth. Without the word of padding, all of
  // them would lie in the same bank.
  __shared__ float tile_b[TILE][TILE + 1];

  // The grid has one dimension, whose limit is 2^31 blocks; along y it would be 65535.
  const int tiles_n = (n + TILE - 1) / TILE;
  const int first_row = blockIdx.x / tiles_n * TILE, first_column = blockIdx.x % tiles_n * TILE;
  const int x = threadIdx.x % TILE, y = threadIdx.x / TILE;
  const int row = first_row + y, column = first_column + x;
  // Which row of B this thread fetches: not the column of its result, but one row for all threads
  // with the same y, so that they read neighbours along K.
  const int fetched = first_column + y;

  float sum = 0.0f;
  for (int start = 0; start < k; start += TILE) {
    const int depth = start + x;
    tile_a[y][x] = row < m && depth < k ? widen_input(a[(long long)row * k + depth]) : 0.0f;
    tile_b[y][x] = fetched < n && depth < k ? widen_input(b[(long long)fetched * k + depth]) : 0.0f;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE; ++i) sum += tile_a[y][i] * tile_b[x][i];
    __syncthreads();  // no thread may overwrite a tile that another still reads
  }
  // All threads reach the barriers above, also those whose element lies outside C.
  if (row < m && column < n) c[(long long)row * n + column] = narrow(sum);
}
