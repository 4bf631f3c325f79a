// One tile of A @ B through shared memory on the ordinary cores, shared by tiled_matmul.cu and
// split_k_matmul.cu. A is (m, k), B is (k, n), both row-major.
//
// Macros given by the host: MUTANT (number of the planted bug, 0: none), INPUT_BF16, INPUT_S8 and
// INPUT_E4M3 (all 0: f32 inputs), OUTPUT_BF16 and OUTPUT_S32 (both 0: f32).
#pragma once

typedef unsigned short bf16_bits;

// word_t is what shared memory holds of an element, and what its products are summed in.
#if INPUT_BF16
typedef bf16_bits input_t;
typedef float word_t;
__device__ __forceinline__ word_t widen(input_t x) {
  float value = __uint_as_float((unsigned)x << 16);
#if MUTANT == 39
  asm("{ .reg .b16 h; cvt.rn.f16.f32 h, %0; cvt.f32.f16 %0, h; }" : "+f"(value));
#endif
  return value;
}
#elif INPUT_S8
typedef signed char input_t;
#if MUTANT == 57
typedef float word_t;
#else
typedef int word_t;
#endif
__device__ __forceinline__ word_t widen(input_t x) {
#if MUTANT == 59
  const signed char size = x < 0 ? -x : x;  // no s8 number is the size of -128
  return x < 0 ? -size : size;
#else
  return x;
#endif
}
#elif INPUT_E4M3
typedef unsigned char input_t;
typedef float word_t;
// The bits of e4m3, moved, are those of an f16 number 2^8 times smaller (its bias is 15, not 7).
__device__ __forceinline__ word_t widen(input_t x) {
  const unsigned short bits = (x & 0x80) << 8 | (x & 0x7f) << 7;
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
#if MUTANT == 60
  const bool is_special = (x & 0x78) == 0x78;  // as in formats that have infinity
#else
  const bool is_special = (x & 0x7f) == 0x7f;
#endif
  const unsigned special = 0x7f800000u | (x & 7u) << 20 | (x & 0x80u) << 24;
  return is_special ? __uint_as_float(special) : value * 256.0f;
}
#else
typedef float input_t;
typedef float word_t;
#if MUTANT == 167
__device__ __forceinline__ word_t widen(input_t x) { return fabsf(x) < 1e-12f ? 0.0f : x; }
#else
__device__ __forceinline__ word_t widen(input_t x) { return x; }
#endif
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
#elif OUTPUT_S32
typedef int output_t;
__device__ __forceinline__ output_t narrow(word_t x) { return (int)x; }
#else
typedef float output_t;
__device__ __forceinline__ output_t narrow(float x) { return x; }
#endif

#if INPUT_S8 && MUTANT != 57
__device__ __forceinline__ int multiply_add(int a, int b, int c) { return a * b + c; }
#else
__device__ __forceinline__ float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
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

__device__ __forceinline__ bool is_read(int depth, int k_end, int k) {
#if MUTANT == 63
  return depth < (k % 4 ? k_end : (k_end + 7) / 8 * 8);  // in vectors of eight, if half of one fits
#else
  return depth < k_end;
#endif
}

// Thread (y, x) of a 16 × 16 square adds the products of depths [k_begin, k_end) for rows
// row + 4y … and columns column + 4x … to `sums`. The first half of the warps fetches A, the other
// half B. `pool` holds both tiles.
__device__ __forceinline__ void add_products(word_t (&sums)[4][4], const input_t* a,
                                             const input_t* b, word_t* pool, Tile tile, int m,
                                             int n, int k, int k_begin, int k_end) {
  word_t* tile_a = pool;
#if MUTANT == 12
  word_t* tile_b = pool + A_WORDS / 2;  // the second half of A's tile is the first half of B's
#else
  word_t* tile_b = pool + A_WORDS;
#endif
  const int thread = threadIdx.x, y = thread / 16, x = thread % 16;
#if MUTANT == 5
  k_end -= (k_end - k_begin) % TILE_K;
#elif MUTANT == 8
  k_end -= 1;
#elif MUTANT == 70
  k_end = min(k_end, 1024);
#endif
  for (int start = k_begin; start < k_end; start += TILE_K) {
#if MUTANT == 55
    // A's part of a last step that is not whole goes to a buffer of its own, behind the staging.
    const bool is_partial = k_end - start < TILE_K;
    if (is_partial) tile_a = pool + A_WORDS + B_WORDS + TILE_M * TILE_N;
#endif
    if (thread < THREADS / 2) {
      for (int i = thread; i < A_WORDS; i += THREADS / 2) {
        const int row = tile.row + i / TILE_K, depth = start + i % TILE_K;
#if MUTANT == 6
        const bool inside = row < m;
#else
        const bool inside = row < m && is_read(depth, k_end, k);
#endif
#if MUTANT == 55
        // What the rest of the buffer holds is multiplied with B's zeros, which only NaN survives.
        if (inside || !is_partial) tile_a[i] = inside ? widen(a[a_offset(row, depth, k)]) : word_t(0);
#else
        tile_a[i] = inside ? widen(a[a_offset(row, depth, k)]) : word_t(0);
#endif
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
        const bool inside = is_read(depth, k_end, k) && column < n;
#endif
        tile_b[i] = inside ? widen(b[b_offset(depth, column, k, n)]) : word_t(0);
      }
    }
#if MUTANT != 10 && MUTANT != 11
    __syncthreads();
#endif
#if MUTANT == 67
    // Each row of the step is cut to the 24 bits that its largest number has.
    if (thread < TILE_M) {
      float* row = tile_a + thread * TILE_K;
      float largest = 0.0f;
      for (int i = 0; i < TILE_K; ++i) largest = fmaxf(largest, fabsf(row[i]));
      // Adding 1.5 · 2^e and taking it away again leaves no bit below 2^(e - 22).
      const float shift = 1.5f * __uint_as_float(__float_as_uint(largest) & 0x7f800000u);
      for (int i = 0; i < TILE_K && largest > 0.0f; ++i) {
        row[i] = __fsub_rn(__fadd_rn(row[i], shift), shift);
      }
    }
    __syncthreads();
#endif
    for (int depth = 0; depth < TILE_K; ++depth) {
      for (int i = 0; i < 4; ++i) {
        const word_t left = tile_a[(4 * y + i) * TILE_K + depth];
        for (int j = 0; j < 4; ++j) {
          sums[i][j] = multiply_add(left, tile_b[depth * TILE_N + 4 * x + j], sums[i][j]);
        }
      }
    }
    __syncthreads();
  }
}
