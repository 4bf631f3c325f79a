// Rung 0: one thread computes everything, the kernel that the ladder begins with.
//
// One block of 28 warps is launched, and 895 of its 896 threads return at once. The last one computes
// one element of C after the other, each as the dot product of a row of A with a column of B. Nothing
// hides the time of a load: the GPU runs one instruction of one thread at a time.
//
// A is (m, k) row-major, B is stored as (n, k), C is (m, n) row-major; any m, n, k.
//
// Macros given by the host: those of simt.cuh.
#include "simt.cuh"

extern "C" __global__ void gemm(const input_t* a, const input_t* b, output_t* c, int m, int n,
                                int k) {
  if (threadIdx.x != 0) return;
  for (int row = 0; row < m; ++row) {
    for (int column = 0; column < n; ++column) {
      float sum = 0.0f;
      for (int depth = 0; depth < k; ++depth) {
        sum += widen_input(a[(long long)row * k + depth]) *
               widen_input(b[(long long)column * k + depth]);
      }
      c[(long long)row * n + column] = narrow(sum);
    }
  }
}
