// main NAME M N K EARLY BACKWARDS: runs a kernel on small integers, and prints how many elements are
// wrong, how many loads had bank conflicts, and the first results. `1 4 3` is the smoke test of the
// failed attempts.
#include "emulator.h"

struct Launch {
  const char* name;
  int threads, rows, columns;  // of a block: threads, and results (0: one block for all)
  bool matvec;                 // a vector times rows in f32
  std::function<void(const void*, const void*, void*, int, int, int)> call;
};

inline float number(const void* memory, long index, bool is_f32) {
  return is_f32 ? ((const float*)memory)[index]
                : __uint_as_float((unsigned)((const unsigned short*)memory)[index] << 16);
}
inline void store(void* memory, long index, float value, bool is_f32) {
  if (is_f32) {
    ((float*)memory)[index] = value;
  } else {
    ((unsigned short*)memory)[index] = narrow(value);
  }
}

inline int run(const Launch& launch, int m, int n, int k) {
  constexpr int GUARD = 64;
  const bool f32 = launch.matvec;
  const auto memory = [](long elements) { return aligned_alloc(256, (elements * 4 + 511) / 256 * 256); };
  void *a = memory(m * k), *b = memory(n * k), *c = memory(m * n + GUARD);
  memset(c, 0xff, (m * n + GUARD) * 4);
  for (long i = 0; i < m * k; ++i) store(a, i, m * n * k == 12 ? i + 1 : rand() % 7 - 3, f32);
  for (long i = 0; i < n * k; ++i) {
    store(b, i, m * n * k == 12 ? i / k == i % k || i / k == 3 : rand() % 7 - 3, f32);
  }
  const int down = launch.rows ? (m + launch.rows - 1) / launch.rows : 1;
  const int across = launch.columns ? (n + launch.columns - 1) / launch.columns : 1;
  gridDim.x = down * across;
  body = [&] { launch.call(a, b, c, m, n, k); };
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) run_block(launch.threads);
  int wrong = 0;
  for (long i = 0; i < m; ++i) {
    for (long j = 0; j < n; ++j) {
      float sum = 0;
      for (long x = 0; x < k; ++x) sum += number(a, i * k + x, f32) * number(b, j * k + x, f32);
      float rounded = sum;
      store(&rounded, 0, sum, f32);
      wrong += !(number(c, i * n + j, f32) == number(&rounded, 0, f32));
    }
  }
  for (long i = 0; i < GUARD; ++i) {
    const float after = number(c, m * n + i, f32);
    wrong += after == after;  // NaN before the launch
  }
  printf("%d %ld", wrong, bank_conflicts);
  for (long i = 0; i < min(4, m * n); ++i) printf(" %g", number(c, i, f32));
  printf("\n");
  return 0;
}
