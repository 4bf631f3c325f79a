// Rung 1: one thread for each element of C.
//
// What changes from rung 0: the loops over rows and columns become the grid, so that all
// multiprocessors work, and a warp that waits for a load gives way to another. Each thread still
// reads its whole row of A and column of B from global memory: 2 · K elements for one result.
// Threads of a warp compute neighbours in a row of C. They read the same element of A, and elements
// of B that are K apart, each in a sector of its own.
//
// A is (m, k) row-major, B is stored as (n, k), C is (m, n) row-major; any m, n, k.
//
// Macros given by the host: those of simt.cuh.
#include "simt.cuh"

extern "C" __global__ void gemm(const input_t* a, const input_t* b, output_t* c, int m, int n,
                                int k) {
  const long long element = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (element >= (long long)m * n) return;
  const int row = element / n, column = element % n;
  float sum = 0.0f;
  for (int depth = 0; depth < k; ++depth) {
    sum += widen_input(a[(long long)row * k + depth]) *
           widen_input(b[(long long)column * k + depth]);
  }
  c[element] = narrow(sum);
}
