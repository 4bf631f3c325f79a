// A failed attempt, kept as a lesson: a matrix-vector product by the warps of one block, which
// returned zeros for the smoke test, c = [1, 2, 3, 6] from k = 3 products each.
//
// Two mistakes. The loop takes whole chunks of CHUNK products only, so that nothing is added where
// k < CHUNK, and up to CHUNK - 1 products are missing elsewhere. And the warps have 12 * OUTPUTS
// results between them: nothing loops over the rest of n, which a small test does not show.
//
// a has k elements, b is stored as (n, k), c has n elements.
constexpr int WARPS = 12, OUTPUTS = 16, CHUNK = 16;

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    matvec(const float* a, const float* b, float* c, int n, int k) {
  extern __shared__ float memory[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float* chunk = memory + warp * (CHUNK + OUTPUTS * CHUNK);
  float* tile = chunk + CHUNK;
  const int first = warp * OUTPUTS;
  float sum = 0.0f;
  for (int start = 0; start + CHUNK <= k; start += CHUNK) {
    if (lane < CHUNK) chunk[lane] = a[start + lane];
    for (int i = lane; i < OUTPUTS * CHUNK; i += 32) {
      const int row = first + i / CHUNK;
      tile[i] = row < n ? b[(long long)row * k + start + i % CHUNK] : 0.0f;
    }
    __syncwarp();
    if (lane < OUTPUTS) {
      for (int i = 0; i < CHUNK; ++i) sum += chunk[i] * tile[lane * CHUNK + i];
    }
    __syncwarp();
  }
  if (lane < OUTPUTS && first + lane < n) c[first + lane] = sum;
}
