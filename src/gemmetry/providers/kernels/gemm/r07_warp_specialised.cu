// C = A @ B, any M, N, K: some warps fetch, others multiply.
//
// Step from r06: fetching is a warpgroup's only task, so that nobody who multiplies waits to start a
// fetch, and two warpgroups multiply, so that one's matrix instructions run while the other waits.
// Two of 64 x 256 sums need 128 registers a thread for sums alone: the fetching warpgroup gives its
// registers to them (setmaxnreg).
//
// A block computes one tile. One warp fetches boxes of A and B by tensor maps into a ring of STAGES;
// CONSUMERS warpgroups multiply. full[s] completes when the bytes of stage s are there, empty[s] when
// every warp that reads stage s has done so.
//
// Macros given by the host besides those of ptx.cuh: TILE_M, TILE_N, STAGES, CONSUMERS, A_ALONG_M and
// B_ALONG_N (1: storage is contiguous along M or N, not K).
#include "ptx.cuh"

constexpr int STEP = 64;   // of K: one row of the 128-byte swizzle
constexpr int SLICES = 4;  // wgmma instructions along a step: 16 of K each
constexpr int CONSUMER_WARPS = 4 * CONSUMERS, THREADS = 128 * (CONSUMERS + 1);
constexpr int HEIGHT = TILE_M / CONSUMERS / 64;  // instructions of 64 rows, one below the other
constexpr int SUMS = TILE_N / 2;                 // of one thread and instruction
constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;

constexpr int CHUNK_BYTES = 64 * 128;  // a box along M or N: 64 rows, one for each number of K
constexpr int A_BYTES = A_ALONG_M ? TILE_M / 64 * CHUNK_BYTES : TILE_M * 128;
constexpr int B_BYTES = B_ALONG_N ? TILE_N / 64 * CHUNK_BYTES : TILE_N * 128;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
// From one slice to the next, in the descriptors' units of 16 bytes: 32 bytes of a row along K, or
// sixteen rows.
constexpr u64 SLICE_A = A_ALONG_M ? 2048 / 16 : 32 / 16, SLICE_B = B_ALONG_N ? 2048 / 16 : 32 / 16;

struct Work {
  int m, n, k;
};

// A position in the ring and the parity of its round.
struct Position {
  int stage = 0;
  u32 parity = 0;
  __device__ void advance() {
    if (++stage == STAGES) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Fetches one stage of an operand: LINES rows or columns from `line` on.
template <int LINES, int ALONG_LINES>
__device__ __forceinline__ void fetch(u32 target, const TensorMap* map, int at_k, int line,
                                      u32 full) {
  if (ALONG_LINES) {
#pragma unroll
    for (int chunk = 0; chunk < LINES / 64; ++chunk) {
      load_box(target + chunk * CHUNK_BYTES, map, line + 64 * chunk, at_k, full);
    }
  } else {
    load_box(target, map, at_k, line, full);
  }
}

// One instruction's 64 rows of the tile leave; this warp has 16 of them, from `row` on.
__device__ __forceinline__ void store(const float (&sums)[SUMS], int row, int column,
                                      const Work& work, output_t* c) {
  const int lane = threadIdx.x % 32;
  const int upper = row + lane / 4, left = column + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    const int y = upper + i / 2 % 2 * 8, x = left + i / 4 * 8 + i % 2;
    if (y < work.m && x < work.n) c[(long long)y * work.n + x] = narrow(sums[i]);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
         output_t* c, Work work) {
  extern __shared__ char memory[];
  const u32 stages = (shared_address(memory) + 1023) / 1024 * 1024;
  const u32 full = stages + STAGES * STAGE_BYTES;
  const u32 empty = full + 8 * STAGES;

  // The shuffle shows the compiler that all lanes have the same number.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    prefetch_map(&map_a);
    prefetch_map(&map_b);
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier_init(full + 8 * stage, 1);
      barrier_init(empty + 8 * stage, CONSUMER_WARPS);
    }
    barrier_init_fence();
  }
  __syncthreads();

  const int columns = (work.n + TILE_N - 1) / TILE_N;
  const int row = blockIdx.x / columns * TILE_M, column = blockIdx.x % columns * TILE_N;
  const int steps = (work.k + STEP - 1) / STEP;
  Position at;
  if (warp >= CONSUMER_WARPS) {
    give_registers_back<PRODUCER_REGISTERS>();
    if (warp == CONSUMER_WARPS && lane == 0) {
      for (int step = 0; step < steps; ++step, at.advance()) {
        const u32 barrier = full + 8 * at.stage, a = stages + at.stage * STAGE_BYTES;
        wait_for(empty + 8 * at.stage, at.parity ^ 1);
        arrive_expecting(barrier, STAGE_BYTES);
        fetch<TILE_M, A_ALONG_M>(a, &map_a, step * STEP, row, barrier);
        fetch<TILE_N, B_ALONG_N>(a + A_BYTES, &map_b, step * STEP, column, barrier);
      }
    }
  } else {
    take_registers<CONSUMER_REGISTERS>();
    const int warpgroup = warp / 4;
    float sums[HEIGHT][SUMS];
    int before = 0;
    for (int step = 0; step < steps; ++step) {
      wait_for(full + 8 * at.stage, at.parity);
      const u32 a = stages + at.stage * STAGE_BYTES, b = a + A_BYTES;
      u64 of_a[HEIGHT];
#pragma unroll
      for (int y = 0; y < HEIGHT; ++y) {
        const u32 block = a + (warpgroup * HEIGHT + y) * (A_ALONG_M ? CHUNK_BYTES : 8192);
        of_a[y] = A_ALONG_M ? mn_major(block, CHUNK_BYTES) : k_major(block);
      }
      const u64 of_b = B_ALONG_N ? mn_major(b, CHUNK_BYTES) : k_major(b);
      wgmma_fence();
#pragma unroll
      for (int slice = 0; slice < SLICES; ++slice) {
#pragma unroll
        for (int y = 0; y < HEIGHT; ++y) {
          wgmma<A_ALONG_M, B_ALONG_N>(sums[y], of_a[y] + slice * SLICE_A, of_b + slice * SLICE_B,
                                      step > 0 || slice > 0);
        }
      }
      wgmma_commit();
      wgmma_wait<1>();  // the step before is complete, so its stage can be filled again
      if (step > 0 && lane == 0) arrive(empty + 8 * before);
      before = at.stage;
      at.advance();
    }
    wgmma_wait<0>();
#pragma unroll
    for (int y = 0; y < HEIGHT; ++y) {
      sums_are_complete(sums[y]);
      store(sums[y], row + (warpgroup * HEIGHT + y) * 64 + warp % 4 * 16, column, work, c);
    }
  }
}
