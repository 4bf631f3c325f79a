// Reads `vectors` 16-byte vectors once and stores nothing: the time is that of reading memory.
extern "C" __global__ void __launch_bounds__(512) read(const uint4* from, long long vectors,
                                                       unsigned* never) {
  const long long step = (long long)gridDim.x * 512 * AT_ONCE;
  unsigned seen = 0;
  for (long long i = (long long)blockIdx.x * 512 * AT_ONCE + threadIdx.x; i < vectors; i += step) {
    uint4 values[AT_ONCE];
#pragma unroll
    for (int j = 0; j < AT_ONCE; ++j) {
      values[j] = make_uint4(0, 0, 0, 0);
      if (i + j * 512 < vectors) {
        asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(values[j].x), "=r"(values[j].y), "=r"(values[j].z), "=r"(values[j].w)
                     : "l"(from + i + j * 512));
      }
    }
#pragma unroll
    for (int j = 0; j < AT_ONCE; ++j) {
      seen ^= values[j].x ^ values[j].y ^ values[j].z ^ values[j].w;
    }
  }
  if (seen == 0x9abcdef1) *never = seen;  // Hardly ever, but the compiler cannot know.
}
