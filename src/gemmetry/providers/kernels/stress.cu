// What disturbs other kernels on purpose, for verification: `spoil` leaves a pattern where a kernel
// finds memory that it has not written, `occupy` takes multiprocessors away for a while.

constexpr int THREADS = 256;   // times 255 registers is all that a multiprocessor has
constexpr int VALUES = 240;    // that fit into a thread's registers in addition to what the code needs

// Leaves `pattern` in the block's dynamic shared memory (`words` words) and in its registers.
//
// Every round needs all values of the round before, and only the caller knows that `step` is 0 and
// that all values of all threads are therefore equal: so the compiler has to keep each of them, and
// in a register of its thread.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    spoil(unsigned pattern, unsigned step, int rounds, int words) {
  extern __shared__ unsigned pool[];
  unsigned values[VALUES];
#pragma unroll
  for (int i = 0; i < VALUES; ++i) values[i] = pattern + (THREADS * i + threadIdx.x) * step;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < VALUES; ++i) values[i] &= values[(i + 1) % VALUES];
  }
  unsigned all = pattern;
#pragma unroll
  for (int i = 0; i < VALUES; ++i) all &= values[i];
  // Volatile: nobody reads it, as far as the compiler sees.
  for (int i = threadIdx.x; i < words; i += THREADS) ((volatile unsigned*)pool)[i] = all;
}

// Stays for `nanoseconds`, or until `*stop` is not 0. The launch's dynamic shared memory, which is
// not used, keeps other blocks off the multiprocessor. It ends by itself, so that a kernel that
// waits for its own blocks to find room is only late.
extern "C" __global__ void occupy(const volatile int* stop, unsigned long long nanoseconds) {
  unsigned long long began, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began));
  do {
    __nanosleep(500);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - began < nanoseconds && *stop == 0);
}
