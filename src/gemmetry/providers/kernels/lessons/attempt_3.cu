// A failed attempt, kept as a lesson: the warps of a block divide K among themselves, and the smoke
// test, c = [1, 2, 3, 6] from k = 3 products each, returned zeros.
//
// The mistake: each warp takes k / WARPS products, which is 0 for k < WARPS, and no warp takes the
// k % WARPS products that are left over.
//
// a has k elements, b is stored as (n, k), c has n elements.
constexpr int WARPS = 12;

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    matvec(const float* a, const float* b, float* c, int n, int k) {
  __shared__ float parts[WARPS];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int share = k / WARPS;
  for (int row = blockIdx.x; row < n; row += gridDim.x) {
    float part = 0.0f;
    for (int i = warp * share + lane; i < (warp + 1) * share; i += 32) {
      part += a[i] * b[(long long)row * k + i];
    }
    for (int other = 16; other > 0; other /= 2) part += __shfl_xor_sync(~0u, part, other);
    if (lane == 0) parts[warp] = part;
    __syncthreads();
    if (threadIdx.x == 0) {
      float sum = 0.0f;
      for (int w = 0; w < WARPS; ++w) sum += parts[w];
      c[row] = sum;
    }
    __syncthreads();
  }
}
