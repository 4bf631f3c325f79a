// A failed attempt, kept as a lesson: one warp loads, the others multiply, and the launch never ends
// as soon as there is a second chunk.
//
// Two mistakes that need each other. `ready` is declared inside the loop, but a __shared__ variable
// exists once for the block: the second iteration finds the 1 that the first one left. And the
// barrier stands in a branch that the loading warp does not take: it waits for ready to become 0,
// which happens behind a barrier that waits for the loading warp. With a single chunk the loader
// has left the kernel by then, and a barrier does not wait for threads that have.
//
// a has k elements, b is stored as (n, k), c has n elements.
constexpr int WARPS = 4, CHUNK = 16, OUTPUTS = 32 * (WARPS - 1);

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    matvec(const float* a, const float* b, float* c, int n, int k) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = blockIdx.x * OUTPUTS + threadIdx.x;
  float sum = 0.0f;
  for (int start = 0; start < k; start += CHUNK) {
    __shared__ float chunk[CHUNK];
    __shared__ volatile int ready;
    if (start == 0) {
      ready = 0;
      __syncthreads();
    }
    if (warp == WARPS - 1) {
      while (ready) {
      }
      if (lane < CHUNK) chunk[lane] = start + lane < k ? a[start + lane] : 0.0f;
      __threadfence_block();
      __syncwarp();
      ready = 1;
    } else {
      while (!ready) {
      }
      __threadfence_block();
      for (int i = 0; i < CHUNK && start + i < k && row < n; ++i) {
        sum += chunk[i] * b[(long long)row * k + start + i];
      }
      __syncthreads();
      ready = 0;
    }
  }
  if (warp < WARPS - 1 && row < n) c[row] = sum;
}
