// Runs kernels of CUDA C++ on the host, one block after the other: each thread of a block is a fiber,
// which runs until it waits, and each warp runs as far ahead of the others as it can. A block in which all threads wait for something that cannot happen is
// reported as a deadlock.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <vector>

using std::max;
using std::min;

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(bytes) __attribute__((aligned(bytes)))

struct uint4 {
  unsigned x, y, z, w;
};
struct float4 {
  float x, y, z, w;
};

inline float __uint_as_float(unsigned bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

enum class Waits { NO, FOR_BLOCK, FOR_WARP, SPINS };
using Copies = std::vector<std::function<void()>>;

struct Fiber {
  ucontext_t context;
  std::vector<char> stack = std::vector<char>(64 * 1024);
  bool done = false;
  Waits waits = Waits::NO;
  Copies open;                // asynchronous copies that are not committed yet
  std::deque<Copies> groups;  // and those that are, a group each
};

constexpr int DEADLOCK = 3, SPINS_ENOUGH = 100;
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static int running;
static bool copies_early, backwards;  // extremes of what the hardware may do
static std::function<void()> body;
static struct {
  int x;
} blockIdx, gridDim, blockDim;
static struct {
  struct {
    operator int() const { return running; }
  } x;
} threadIdx;

inline void wait_as(Waits how) {
  fibers[running].waits = how;
  swapcontext(&fibers[running].context, &scheduler);
}
inline void __syncthreads() { wait_as(Waits::FOR_BLOCK); }
inline void __syncwarp() { wait_as(Waits::FOR_WARP); }
inline void __threadfence_block() {}
inline void spin() { wait_as(Waits::SPINS); }  // in the body of a loop that waits for memory

inline float __shfl_xor_sync(unsigned, float value, int mask) {
  static float values[1024];
  const int me = running;
  values[me] = value;
  __syncwarp();
  const float found = values[me ^ mask];
  __syncwarp();
  return found;
}

inline void thread() {
  body();
  fibers[running].done = true;
  swapcontext(&fibers[running].context, &scheduler);
}

// Lets go those of [first, last) if all of them that are not done wait in this way; as on a GPU, a
// barrier does not wait for threads that have left the kernel.
inline bool release(int first, int last, Waits how) {
  bool any = false;
  for (int i = first; i < last; ++i) {
    if (fibers[i].done) continue;
    if (fibers[i].waits != how) return false;
    any = true;
  }
  for (int i = first; i < last; ++i) fibers[i].waits = Waits::NO;
  return any;
}

// Runs the warp that begins at `first` until all of its threads wait for others; a warp that runs
// ahead shows where a barrier is missing. Whether anything happened but a look at memory.
inline bool run_warp(int first) {
  bool any = false;
  for (bool again = true; again; any |= again) {
    again = false;
    for (int i = 0; i < 32; ++i) {
      running = first + (backwards ? 31 - i : i);
      Fiber& fiber = fibers[running];
      const bool spins = fiber.waits == Waits::SPINS;
      if (fiber.done || (fiber.waits != Waits::NO && !spins)) continue;
      fiber.waits = Waits::NO;
      swapcontext(&scheduler, &fiber.context);
      again |= !spins || fiber.waits != Waits::SPINS;
    }
    again |= release(first, first + 32, Waits::FOR_WARP);
  }
  return any;
}

inline void run_block(int threads) {
  fibers.resize(threads);
  blockDim.x = threads;
  for (Fiber& fiber : fibers) {
    fiber.done = false;
    fiber.waits = Waits::NO;
    fiber.open.clear();
    fiber.groups.clear();
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    makecontext(&fiber.context, thread, 0);
  }
  int idle_rounds = 0;
  while (std::any_of(fibers.begin(), fibers.end(), [](Fiber& f) { return !f.done; })) {
    bool progress = false;
    for (int warp = 0; warp < threads / 32; ++warp) {
      progress |= run_warp(32 * (backwards ? threads / 32 - 1 - warp : warp));
    }
    progress |= release(0, threads, Waits::FOR_BLOCK);
    idle_rounds = progress ? 0 : idle_rounds + 1;
    if (idle_rounds > SPINS_ENOUGH) {
      printf("deadlock\n");
      exit(DEADLOCK);
    }
  }
}
