// Rung 3: each thread computes 8 × 8 elements of C in registers, and global memory is read 16 bytes
// at a time.
//
// What changes from rung 2: there, each product takes two words from shared memory, which delivers
// 32 words per clock to a multiprocessor that multiplies 128. Here a thread reads 8 words of A and
// 8 of B for 64 products, as four loads of 16 bytes. The tile of a block grows with it, to
// 128 × 128 results of 256 threads, so that an element from global memory serves 128 results.
//
// Both tiles lie in shared memory as [depth][row], because a thread reads several rows at one depth.
//
// Macros given by the host: those of simt.cuh.
#include "simt.cuh"

constexpr int TILE = 128, TILE_K = 16, THREADS = 256, VECTOR = 8;

// Where row `row` of a tile lies at `depth`. In the deeper half, halves of 32 rows are swapped:
// threads 2i and 2i + 1 of a warp store the same row at depths that differ by 8, and would otherwise
// use the same bank. Four neighbouring rows stay neighbours, aligned to 16 bytes.
__device__ __forceinline__ int place(int depth, int row) {
  return depth * TILE + (row ^ (depth / VECTOR * 16));
}

// Eight elements of a row from `depth` on; what lies outside the matrix is zero.
struct Vector {
  input_t elements[VECTOR];
};

__device__ __forceinline__ Vector fetch(const input_t* matrix, int row, int rows, int depth, int k,
                                        bool aligned) {
  Vector vector = {};
  const input_t* from = matrix + (long long)row * k + depth;
  if (aligned && row < rows && depth < k) {
    // Eight elements at once: k is a multiple of 8, so that all of them are inside.
    *(uint4*)vector.elements = *(const uint4*)from;
  } else if (row < rows) {
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) {
      if (depth + i < k) vector.elements[i] = from[i];
    }
  }
  return vector;
}

__device__ __forceinline__ void put(float* tile, int row, int depth, const Vector& vector) {
#pragma unroll
  for (int i = 0; i < VECTOR; ++i) tile[place(depth + i, row)] = widen_input(vector.elements[i]);
}

// Four words at rows `row` … of a tile.
__device__ __forceinline__ void get(float (&words)[4], const float* tile, int depth, int row) {
  *(float4*)words = *(const float4*)(tile + place(depth, row));
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    gemm(const input_t* a, const input_t* b, output_t* c, int m, int n, int k) {
  __shared__ __align__(16) float tile_a[TILE_K * TILE], tile_b[TILE_K * TILE];
  const int tiles_n = (n + TILE - 1) / TILE;
  const int first_row = blockIdx.x / tiles_n * TILE, first_column = blockIdx.x % tiles_n * TILE;
  // Two threads fetch the 16 elements of one row, which are one sector of 32 bytes.
  const int line = threadIdx.x / 2, part = threadIdx.x % 2 * VECTOR;
  // Rows of 16 bytes begin at multiples of 16 only if k and both addresses allow it.
  const bool aligned = k % VECTOR == 0 && ((u64)a | (u64)b) % 16 == 0;

  // A thread's results are four squares of 4 × 4, 64 apart: the 16 bytes that eight threads read
  // next to each other then lie in different banks.
  const int y = threadIdx.x / 16 * 4, x = threadIdx.x % 16 * 4;
  float sums[8][8] = {};
  for (int start = 0; start < k; start += TILE_K) {
    put(tile_a, line, part, fetch(a, first_row + line, m, start + part, k, aligned));
    put(tile_b, line, part, fetch(b, first_column + line, n, start + part, k, aligned));
    __syncthreads();
#pragma unroll
    for (int depth = 0; depth < TILE_K; ++depth) {
      float rows[2][4], columns[2][4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        get(rows[half], tile_a, depth, y + 64 * half);
        get(columns[half], tile_b, depth, x + 64 * half);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) {
#pragma unroll
        for (int j = 0; j < 8; ++j) sums[i][j] += rows[i / 4][i % 4] * columns[j / 4][j % 4];
      }
    }
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int row = first_row + y + i / 4 * 64 + i % 4;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int column = first_column + x + j / 4 * 64 + j % 4;
      if (row < m && column < n) c[(long long)row * n + column] = narrow(sums[i][j]);
    }
  }
}
