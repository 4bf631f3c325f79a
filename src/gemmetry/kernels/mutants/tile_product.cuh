// One tile of A @ B through shared memory on the ordinary cores, shared by tiled_matmul.cu and
// split_k_matmul.cu. A is (m, k), B is (k, n), both row-major.
//
// Macros given by the host: MUTANT (number of the planted bug, 0: none), INPUT_BF16 (0: f32 inputs,
// 1: bf16), OUTPUT_BF16 (likewise for C).
#pragma once

typedef unsigned short bf16_bits;

#if INPUT_BF16
typedef bf16_bits input_t;
__device__ __forceinline__ float widen(input_t x) { return __uint_as_float((unsigned)x << 16); }
#else
typedef float input_t;
__device__ __forceinline__ float widen(input_t x) { return x; }
#endif

#if OUTPUT_BF16
typedef bf16_bits output_t;
__device__ __forceinline__ output_t narrow(float x) {
  bf16_bits bits;
#if MUTANT == 40
  asm("cvt.rz.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
#else
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
#endif
  return bits;
}
#else
typedef float output_t;
__device__ __forceinline__ output_t narrow(float x) { return x; }
#endif

constexpr int TILE_M = 64, TILE_N = 64, TILE_K = 16, THREADS = 256, GROUP_M = 4;
constexpr int A_WORDS = TILE_M * TILE_K, B_WORDS = TILE_K * TILE_N;

struct Tile {
  int row, column;  // of the tile's first element
};

// Tiles are numbered in groups of GROUP_M tile rows walked column by column, so that blocks that
// run at the same time share tiles of A and B in the L2 cache.
__device__ __forceinline__ Tile tile_at(int index, int m, int n) {
  const int tiles_n = (n + TILE_N - 1) / TILE_N;
  const int group = index / (GROUP_M * tiles_n);
#if MUTANT == 30
  const int height = GROUP_M;  // also where the last group has fewer rows
#else
  const int height = min(GROUP_M, (m + TILE_M - 1) / TILE_M - group * GROUP_M);
#endif
  const int inside = index % (GROUP_M * tiles_n);
  return {(group * GROUP_M + inside % height) * TILE_M, inside / height * TILE_N};
}

__device__ __forceinline__ long long a_offset(int row, int depth, int k) {
#if MUTANT == 31
  return (long long)(unsigned short)row * k + depth;  // rows are counted in 16 bits
#else
  return (long long)row * k + depth;
#endif
}

__device__ __forceinline__ long long b_offset(int depth, int column, int k, int n) {
#if MUTANT == 47
  return (long long)column * k + depth;
#else
  return (long long)depth * n + column;
#endif
}

// Thread (y, x) of a 16 × 16 square adds the products of depths [k_begin, k_end) for rows
// row + 4y … and columns column + 4x … to `sums`. The first half of the warps fetches A, the other
// half B. `pool` holds both tiles.
__device__ __forceinline__ void add_products(float (&sums)[4][4], const input_t* a,
                                             const input_t* b, float* pool, Tile tile, int m,
                                             int n, int k, int k_begin, int k_end) {
  float* tile_a = pool;
#if MUTANT == 12
  float* tile_b = pool + A_WORDS / 2;  // the second half of A's tile is the first half of B's
#else
  float* tile_b = pool + A_WORDS;
#endif
  const int thread = threadIdx.x, y = thread / 16, x = thread % 16;
#if MUTANT == 5
  k_end -= (k_end - k_begin) % TILE_K;
#elif MUTANT == 8
  k_end -= 1;
#endif
  for (int start = k_begin; start < k_end; start += TILE_K) {
    if (thread < THREADS / 2) {
      for (int i = thread; i < A_WORDS; i += THREADS / 2) {
        const int row = tile.row + i / TILE_K, depth = start + i % TILE_K;
#if MUTANT == 6
        const bool inside = row < m;
#else
        const bool inside = row < m && depth < k_end;
#endif
        tile_a[i] = inside ? widen(a[a_offset(row, depth, k)]) : 0.0f;
      }
#if MUTANT == 11
      __syncthreads();
#endif
    } else {
      for (int i = thread - THREADS / 2; i < B_WORDS; i += THREADS / 2) {
        const int depth = start + i / TILE_N, column = tile.column + i % TILE_N;
#if MUTANT == 6
        const bool inside = column < n;
#else
        const bool inside = depth < k_end && column < n;
#endif
        tile_b[i] = inside ? widen(b[b_offset(depth, column, k, n)]) : 0.0f;
      }
    }
#if MUTANT != 10 && MUTANT != 11
    __syncthreads();
#endif
    for (int depth = 0; depth < TILE_K; ++depth) {
      for (int i = 0; i < 4; ++i) {
        const float left = tile_a[(4 * y + i) * TILE_K + depth];
        for (int j = 0; j < 4; ++j) {
          sums[i][j] = fmaf(left, tile_b[depth * TILE_N + 4 * x + j], sums[i][j]);
        }
      }
    }
    __syncthreads();
  }
}
