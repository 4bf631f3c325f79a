// C = A @ B on Hopper's matrix instructions: bf16 A (m, k) row-major, bf16 B (k, n) column-major,
// f32 C (m, n) row-major; with one of the planted bugs, or none.
//
// One warp fetches tiles of A and B by tensor maps into a ring of STAGES; two warpgroups multiply
// 64 × 64 each. full[s] completes when the bytes of stage s are there, empty[s] when all warps of
// all blocks of the cluster have done reading it. The result leaves through a staging memory per
// warpgroup, CHUNK columns at a time, by bulk stores, which clip what lies outside C.
//
// With CLUSTER 2 two blocks one above the other share a tile of B: each fetches half of it for
// both. Blocks stay and take one tile after the other.
#include "hopper.cuh"

constexpr int TILE_M = 128, TILE_N = 64, TILE_K = 64, STAGES = 4;
constexpr int CONSUMERS = 2, CONSUMER_WARPS = 4 * CONSUMERS;
constexpr int THREADS = 128 * CONSUMERS + 32;
constexpr int A_BYTES = TILE_M * TILE_K * 2, B_BYTES = TILE_N * TILE_K * 2;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES, STAGING_BYTES = 64 * CHUNK * 4;

#if MUTANT == 16
constexpr u32 EXPECTED_BYTES = A_BYTES;
#elif MUTANT == 17
constexpr u32 EXPECTED_BYTES = STAGE_BYTES + 16;
#else
constexpr u32 EXPECTED_BYTES = STAGE_BYTES;
#endif
#if MUTANT == 18
constexpr u32 EMPTY_ARRIVALS = CONSUMER_WARPS * CLUSTER / 2;  // as if there were one warpgroup
#else
constexpr u32 EMPTY_ARRIVALS = CONSUMER_WARPS * CLUSTER;
#endif

struct Schedule {
  int rows, columns;  // tiles, where those of a cluster count as one
  __device__ Schedule(int m, int n) {
    const int tiles_m = (m + TILE_M - 1) / TILE_M;
    columns = (n + TILE_N - 1) / TILE_N;
#if MUTANT == 28
    rows = tiles_m / CLUSTER;
#else
    rows = (tiles_m + CLUSTER - 1) / CLUSTER;
#endif
  }
  // Tiles of one cluster when they are dealt out to `clusters`.
  __device__ int waves(int clusters) const {
#if MUTANT == 29
    return (rows * columns + clusters - 2) / clusters;
#else
    return (rows * columns + clusters - 1) / clusters;
#endif
  }
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

struct Memory {
  u32 stages, staging, full, empty;  // addresses
  __device__ u32 a(int stage) const { return stages + stage * STAGE_BYTES; }
  __device__ u32 b(int stage) const { return a(stage) + A_BYTES; }
};

__device__ __forceinline__ void fetch(const Memory& memory, const TensorMap* map_a,
                                      const TensorMap* map_b, Position& at, int row, int column,
                                      int k_tiles, u32 rank) {
  for (int step = 0; step < k_tiles; ++step, at.advance()) {
    const u32 full = memory.full + 8 * at.stage;
    wait_for(memory.empty + 8 * at.stage, at.parity ^ 1);
    arrive_expecting(full, EXPECTED_BYTES);
#if CLUSTER == 1
    load_box(memory.a(at.stage), map_a, step * TILE_K, row, full);
    load_box(memory.b(at.stage), map_b, step * TILE_K, column, full);
#else
    const int share = TILE_N / CLUSTER * rank;
#if MUTANT == 27
    // Both blocks get what the mask of A says: the rows of rank 0.
    if (rank == 0) {
      load_box_multicast(memory.a(at.stage), map_a, step * TILE_K, row, full,
                         (1 << CLUSTER) - 1);
    }
#else
    load_box(memory.a(at.stage), map_a, step * TILE_K, row, full);
#endif
    load_box_multicast(memory.b(at.stage) + share * TILE_K * 2, map_b, step * TILE_K,
                       column + share, full, (1 << CLUSTER) - 1);
#endif
  }
}

__device__ __forceinline__ void multiply_stage(float (&sums)[32], u32 a, u32 b, bool first) {
  mma_fence();
  for (int slice = 0; slice < TILE_K / 16; ++slice) {
    mma_64x64x16(sums, matrix_descriptor(a + 32 * slice), matrix_descriptor(b + 32 * slice),
                 !first || slice > 0);
  }
  mma_commit();
}

__device__ __forceinline__ void multiply(float (&sums)[32], const Memory& memory, Position& at,
                                         int k_tiles) {
  const int warpgroup = threadIdx.x / 128, lane = threadIdx.x % 32;
  for (int step = 0; step < k_tiles; ++step, at.advance()) {
#if MUTANT == 15
    wait_for(memory.full + 8 * at.stage, at.parity ^ 1);
#else
    wait_for(memory.full + 8 * at.stage, at.parity);
#endif
    const u32 a = memory.a(at.stage) + warpgroup * 64 * TILE_K * 2, b = memory.b(at.stage);
    multiply_stage(sums, a, b, step == 0);
#if MUTANT == 9
    if (step == STAGES) multiply_stage(sums, a, b, false);
#endif
    mma_wait(sums);
    if (lane < CLUSTER) arrive_at(memory.empty + 8 * at.stage, lane);
  }
}

// A thread holds, of every eight columns, two neighbours in row lane / 4 and in the row 8 below.
__device__ __forceinline__ void store(const float (&sums)[32], u32 staging, const TensorMap* map_c,
                                      int row, int column) {
  const int thread = threadIdx.x % 128, warpgroup = threadIdx.x / 128, lane = thread % 32;
  const int upper = thread / 32 * 16 + lane / 4;
  for (int chunk = 0; chunk < TILE_N / CHUNK; ++chunk) {
#if MUTANT != 20
    if (thread == 0) wait_stores_read();
#endif
    named_barrier(1 + warpgroup, 128);
    for (int j = 0; j < CHUNK / 8; ++j) {
      for (int half = 0; half < 2; ++half) {
#if MUTANT == 24
        const int line = upper + 8 * (1 - half);
#else
        const int line = upper + 8 * half;
#endif
        const int from = (chunk * (CHUNK / 8) + j) * 4 + 2 * half;
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(
                         staging + (line * CHUNK + 8 * j + lane % 4 * 2) * 4),
                     "f"(sums[from]), "f"(sums[from + 1])
                     : "memory");
      }
    }
#if MUTANT != 19
    fence_async_proxy();
#endif
    named_barrier(1 + warpgroup, 128);
    if (thread == 0) store_box(map_c, column + chunk * CHUNK, row, staging);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) __cluster_dims__(CLUSTER, 1, 1)
    hopper_matmul(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                  const __grid_constant__ TensorMap map_c, int m, int n, int k) {
  extern __shared__ __align__(1024) char pool[];
  __shared__ __align__(8) u64 barriers[2 * STAGES];
  const int warp = threadIdx.x / 32, warpgroup = threadIdx.x / 128;
  Memory memory;
  memory.stages = shared_address(pool);
  memory.staging = memory.stages + STAGES * STAGE_BYTES + warpgroup * STAGING_BYTES;
  memory.full = shared_address(barriers);
  memory.empty = memory.full + 8 * STAGES;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier_init(memory.full + 8 * stage, 1);
      barrier_init(memory.empty + 8 * stage, EMPTY_ARRIVALS);
    }
    barrier_init_fence();
  }
  __syncthreads();
  const u32 rank = cluster_rank();
  if (CLUSTER > 1) cluster_sync();

  const Schedule schedule(m, n);
  const int clusters = gridDim.x / CLUSTER, k_tiles = (k + TILE_K - 1) / TILE_K;
  const int waves = schedule.waves(clusters), tiles = schedule.rows * schedule.columns;
  Position at;
  for (int wave = 0; wave < waves; ++wave) {
    const int tile = wave * clusters + blockIdx.x / CLUSTER;
    if (tile >= tiles) break;
    const int row = (tile % schedule.rows * CLUSTER + rank) * TILE_M;
    const int column = tile / schedule.rows * TILE_N;
    if (warp == CONSUMER_WARPS) {
      if (threadIdx.x % 32 == 0) {
        fetch(memory, &map_a, &map_b, at, row, column, k_tiles, rank);
      }
    } else {
      float sums[32];
      multiply(sums, memory, at, k_tiles);
      store(sums, memory.staging, &map_c, row + 64 * warpgroup, column);
    }
  }
  if (warp < CONSUMER_WARPS && threadIdx.x % 128 == 0) wait_stores();
  // No block may leave while the other still writes or arrives in its memory.
  if (CLUSTER > 1) {
    __syncwarp();
    cluster_sync();
  }
}
