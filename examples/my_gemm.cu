// A matrix multiply of one's own in CUDA C++; my_gemm.toml says how it is launched.
//
//     gemmetry profile --kernel examples/my_gemm.cu:tiled --providers torch,user \
//         --problem-m 1000 --problem-n 1000 --problem-k 1000 --dtypes bf16 --layouts tn
//
// C (m, n) = A (m, k) @ B, where B is stored as (n, k); A and C are row-major. One thread computes
// one element; the block shares tiles of A and B.
typedef unsigned short bf16;  // its bits

__device__ float widen(bf16 x) { return __uint_as_float((unsigned)x << 16); }

__device__ bf16 narrow(float x) {
  bf16 bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}

extern "C" __global__ void __launch_bounds__(TILE* TILE)
    tiled(const bf16* a, const bf16* b, bf16* c, int m, int n, int k) {
  __shared__ float tile_a[TILE][TILE + 1], tile_b[TILE][TILE + 1];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
  const int fetched = blockIdx.x * TILE + y;
  float sum = 0.0f;
  for (int start = 0; start < k; start += TILE) {
    const bool inside = start + x < k;
    tile_a[y][x] = inside && row < m ? widen(a[(long long)row * k + start + x]) : 0.0f;
    tile_b[y][x] = inside && fetched < n ? widen(b[(long long)fetched * k + start + x]) : 0.0f;
    __syncthreads();
    for (int i = 0; i < TILE; ++i) sum += tile_a[y][i] * tile_b[x][i];
    __syncthreads();
  }
  if (row < m && column < n) c[(long long)row * n + column] = narrow(sum);
}
