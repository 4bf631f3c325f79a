// C = epilogue(alpha · A @ B + beta · addend), any M, N, K; the best of the ladder.
//
// Blocks stay and take one unit of work after the other: a tile of C, or, with SPLIT, a range of steps
// along K of one, so that all blocks do the same amount of work where tiles do not fill the last wave
// (stream-K: Osama et al., arXiv 2301.03598). One warp fetches boxes of A and B by tensor maps into a ring of STAGES; CONSUMERS warpgroups multiply.
// full[s] completes when the bytes of stage s are there, empty[s] when every warp that reads stage s
// in any block that the same boxes went to has done so. Results leave through a staging memory of
// each warp by bulk stores, which clip what lies outside C.
//
// CLUSTER_M blocks below each other share tiles of B, CLUSTER_N blocks next to each other tiles of A:
// each fetches its share for all of them.
//
// Macros given by the host besides those of ptx.cuh: TILE_M, TILE_N, STAGES, CONSUMERS, CLUSTER_M,
// CLUSTER_N, A_ALONG_M and B_ALONG_N (1: storage is contiguous along M or N, not K), SPLIT (1: see
// above), SWAPPED (1: C is stored column by column, so that the host can have Bᵀ @ Aᵀ computed, and
// tiles of C have as many rows as wgmma has columns), DIRECT (1: results are stored from registers,
// where rows of the stored C are not multiples of 16 bytes, or f32), ALPHA and ADDEND (1: alpha is not 1, beta is not 0), EPILOGUE (decimal digits in order: 1 bias, 2 relu,
// 3 gelu, 4 residual), BIAS_ALONG_M, HINT_A and HINT_B (ptx.cuh's hints by number).
#include "ptx.cuh"
#include "epilogue.cuh"

#ifndef HINT_A
#define HINT_A 0
#endif
#ifndef HINT_B
#define HINT_B 0
#endif
constexpr u64 HINTS[] = {KEEP_NORMALLY, EVICT_FIRST, EVICT_LAST};

constexpr int STEP = 128 / sizeof(input_t);  // of K: one row of the 128-byte swizzle
constexpr int SLICES = 4;                    // wgmma instructions along a step: 32 bytes of K each
constexpr int CONSUMER_WARPS = 4 * CONSUMERS, THREADS = 128 * (CONSUMERS + 1);
constexpr int HEIGHT = TILE_M / CONSUMERS / 64;  // wgmma instructions that are 64 rows, one below the other
constexpr int SUMS = TILE_N / 2;                 // of one thread and instruction
constexpr int CLUSTER = CLUSTER_M * CLUSTER_N;
// 64 Ki registers over all threads; the sums of a warpgroup take HEIGHT · SUMS of a thread's.
constexpr bool ROOMY = SPLIT || A_ALONG_M || B_ALONG_N;  // fetching needs more than 24
constexpr int PRODUCER_REGISTERS = CONSUMERS == 1 ? 56 : CONSUMERS == 3 ? 32 : ROOMY ? 40 : 24;
constexpr int CONSUMER_REGISTERS = CONSUMERS == 3 ? 152 : CONSUMERS == 2 && ROOMY ? 232 : 240;

constexpr int CHUNK_ROWS = STEP;  // rows of a box along M or N: one for each step of K
constexpr int CHUNK_BYTES = CHUNK_ROWS * 128;
constexpr int A_BYTES = A_ALONG_M ? (TILE_M + 63) / 64 * CHUNK_BYTES : TILE_M * 128;
constexpr int B_BYTES = B_ALONG_N ? (TILE_N + 63) / 64 * CHUNK_BYTES : TILE_N * 128;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
// From one slice to the next, in the descriptors' units of 16 bytes: 32 bytes of a row along K, or
// sixteen rows.
constexpr u64 SLICE_A = A_ALONG_M ? 2048 / 16 : 32 / 16, SLICE_B = B_ALONG_N ? 2048 / 16 : 32 / 16;

// Columns that leave at once: rows of 128, 64 or 32 bytes in the swizzle of that size, or, of a
// swapped product, as many rows of 32 bytes.
constexpr int STAGED = TILE_N % 64 == 0 ? 64 : TILE_N % 32 == 0 ? 32 : 16;
constexpr int STAGED_BYTES = 16 * STAGED * 2;  // of one warp's 16 rows
[[maybe_unused]] constexpr u32 STAGED_SWIZZLE = SWAPPED ? 16 : STAGED * 2 - 16;

struct Work {
  int m, n, k;
  int band;     // tile rows (of clusters) that are walked together, column by column
  int whole;    // tiles (of clusters) that are not split: the first ones
  int sharers;  // clusters that share all steps of the other tiles, each as many as the others
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

// What a block computes at a time.
struct Unit {
  int row, column;         // of the tile's first element
  int first, last;         // steps of K
  int slot, slice, slices; // of a shared tile: its number, and which part of it this is, in order of K
};

// The units of one block; all of a cluster take theirs in the same order.
struct Walk {
  const Work& work;
  int rows, columns, steps, rank;  // tiles of a cluster count as one
  int next_tile, position, end;    // the next tile that is not split, and this cluster's shared steps

  __device__ Walk(const Work& work, int rank) : work(work), rank(rank) {
    rows = (work.m + TILE_M * CLUSTER_M - 1) / (TILE_M * CLUSTER_M);
    columns = (work.n + TILE_N * CLUSTER_N - 1) / (TILE_N * CLUSTER_N);
    steps = (work.k + STEP - 1) / STEP;
    next_tile = blockIdx.x / CLUSTER;
    position = end = 0;
#if SPLIT
    if (next_tile < work.sharers) {
      position = next_tile * shared() / work.sharers;
      end = (next_tile + 1) * shared() / work.sharers;
    }
#endif
  }

  // Steps of all shared tiles; the host sees to it that its product with `sharers` fits in 31 bits.
  __device__ int shared() const { return (rows * columns - work.whole) * steps; }

  // The cluster that has this shared step.
  __device__ int sharer(int step) const { return ((step + 1) * work.sharers - 1) / shared(); }

  __device__ void place(Unit& unit, int index) const {
    const int band = index / (work.band * columns);
    const int height = min(work.band, rows - band * work.band);
    const int inside = index - band * work.band * columns;
    unit.row = ((band * work.band + inside % height) * CLUSTER_M + rank % CLUSTER_M) * TILE_M;
    unit.column = (inside / height * CLUSTER_N + rank / CLUSTER_M) * TILE_N;
  }

  __device__ bool next(Unit& unit) {
#if SPLIT
    if (position < end) {
      const int tile = position / steps, begin = tile * steps;
      place(unit, work.whole + tile);
      unit.first = position - begin;
      unit.last = min(end - begin, steps);
      const int first_sharer = sharer(begin);
      unit.slot = tile * CLUSTER + rank;
      unit.slice = blockIdx.x / CLUSTER - first_sharer;
      unit.slices = sharer(begin + steps - 1) - first_sharer + 1;
      position = begin + unit.last;
      return true;
    }
    if (next_tile >= work.whole) return false;
#else
    if (next_tile >= rows * columns) return false;
#endif
    place(unit, next_tile);
    unit.first = 0;
    unit.last = steps;
    unit.slot = unit.slice = 0;
    unit.slices = 1;
    next_tile += gridDim.x / CLUSTER;
    return true;
  }
};

// Fetches this block's share of one stage of an operand: rows `line` … `line` + LINES - 1 at step
// `at_k`. SHARES blocks of the cluster, of which this is number `share`, fetch it for all of `ranks`.
template <int LINES, int ALONG_LINES, int SHARES, u64 HINT>
__device__ __forceinline__ void fetch(u32 target, const TensorMap* map, int at_k, int line,
                                      u32 full, int share, u16 ranks) {
  if (ALONG_LINES) {
    constexpr int DEPTH = STEP / SHARES;  // steps of K in a share
#pragma unroll
    for (int chunk = 0; chunk < (LINES + 63) / 64; ++chunk) {
      const u32 to = target + chunk * CHUNK_BYTES + share * DEPTH * 128;
      if (SHARES > 1) {
        load_box_multicast<HINT>(to, map, line + 64 * chunk, at_k + share * DEPTH, full, ranks);
      } else {
        load_box<HINT>(to, map, line + 64 * chunk, at_k, full);
      }
    }
  } else {
    constexpr int ROWS = LINES / SHARES;
    const u32 to = target + share * ROWS * 128;
    if (SHARES > 1) {
      load_box_multicast<HINT>(to, map, at_k, line + share * ROWS, full, ranks);
    } else {
      load_box<HINT>(to, map, at_k, line, full);
    }
  }
}

// Where an element of C is stored.
__device__ __forceinline__ long long place_of(int row, int column, const Work& work) {
  return SWAPPED ? (long long)column * work.m + row : (long long)row * work.n + column;
}

// What follows the product, on one element.
__device__ __forceinline__ float result(float sum, const Epilogue& with, int row, int column,
                                        const Work& work) {
  if (!HAS_EPILOGUE || row >= work.m || column >= work.n) return sum;
  return finished(sum, with, place_of(row, column, work), BIAS_ALONG_M ? row : column);
}

// One instruction's 64 rows of the tile leave; this warp has 16 of them, from `row` on.
__device__ __forceinline__ void store(float (&sums)[SUMS], int row, int column, const Work& work,
                                      const Epilogue& with, const TensorMap* map, output_t* c,
                                      u32 staging, int& turn) {
  const int lane = threadIdx.x % 32;
  const int upper = row + lane / 4, left = column + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    sums[i] = result(sums[i], with, upper + i / 2 % 2 * 8, left + i / 4 * 8 + i % 2, work);
  }
#if DIRECT
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    const int y = upper + i / 2 % 2 * 8, x = left + i / 4 * 8 + i % 2;
    if (y < work.m && x < work.n) c[place_of(y, x, work)] = narrow(sums[i]);
  }
#else
#pragma unroll
  for (int chunk = 0; chunk < TILE_N / STAGED; ++chunk) {
    const u32 buffer = staging + turn * STAGED_BYTES;
    turn ^= 1;
    if (lane == 0) wait_stores_read<1>();  // the one before the last had this buffer
    __syncwarp();
#pragma unroll
    for (int pair = 0; pair < STAGED / 16; ++pair) {
      const int from = chunk * STAGED / 2 + pair * 8;
      const u32 offset = SWAPPED
                             ? (pair * 16 + lane / 16 * 8 + lane % 8) * 32 + lane / 8 % 2 * 16
                             : lane % 16 * STAGED * 2 + (2 * pair + lane / 16) * 16;
      store_matrices<SWAPPED>(buffer + (offset ^ (offset >> 3 & STAGED_SWIZZLE)),
                     narrow_pair(sums[from], sums[from + 1]),
                     narrow_pair(sums[from + 2], sums[from + 3]),
                     narrow_pair(sums[from + 4], sums[from + 5]),
                     narrow_pair(sums[from + 6], sums[from + 7]));
    }
    fence_async_proxy();
    __syncwarp();
    const int left_here = column + chunk * STAGED;
    if (lane == 0) store_box(map, SWAPPED ? row : left_here, SWAPPED ? left_here : row, buffer);
  }
#endif
}

#if SPLIT
// Adds up the slices of a tile: each warpgroup leaves its sums in `partial` (slice, slot, warpgroup,
// sums / 4, thread), and the one that comes last adds all of them in the order of K, so that the
// result does not depend on who that is. Returns whether this warpgroup is the last.
__device__ __forceinline__ bool is_last_slice(float (&sums)[HEIGHT][SUMS], const Unit& unit,
                                              int slots, float4* partial, u32* arrivals,
                                              u32* shared_count, int warpgroup) {
  constexpr int VECTORS = HEIGHT * SUMS / 4;  // of one thread
  const int thread = threadIdx.x % 128, slot = unit.slot * CONSUMERS + warpgroup;
  const long long distance = (long long)slots * CONSUMERS * VECTORS * 128;  // between slices
  float4* first = partial + (long long)slot * VECTORS * 128 + thread;
  float4* mine = first + unit.slice * distance;
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    float* from = &sums[i / (SUMS / 4)][i % (SUMS / 4) * 4];
    __stcg(mine + i * 128, make_float4(from[0], from[1], from[2], from[3]));
  }
  __threadfence();
  named_barrier(1 + warpgroup, 128);
  if (thread == 0) {
    const u32 before = atomicAdd(arrivals + slot, 1);
    *shared_count = before;
    if ((int)before == unit.slices - 1) arrivals[slot] = 0;  // for the next launch
    __threadfence();
  }
  named_barrier(1 + warpgroup, 128);
  if ((int)*(volatile u32*)shared_count != unit.slices - 1) return false;
  for (int slice = 0; slice < unit.slices; ++slice, first += distance) {
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
      float* to = &sums[i / (SUMS / 4)][i % (SUMS / 4) * 4];
      const float4 next = __ldcg(first + i * 128);
      to[0] = slice ? to[0] + next.x : next.x;
      to[1] = slice ? to[1] + next.y : next.y;
      to[2] = slice ? to[2] + next.z : next.z;
      to[3] = slice ? to[3] + next.w : next.w;
      if (i % 8 == 7) asm volatile("" ::: "memory");  // more loads at once would need registers
    }
  }
  return true;
}
#endif

extern "C" __global__ void __cluster_dims__(CLUSTER) __launch_bounds__(THREADS, 1)
    gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
         const __grid_constant__ TensorMap map_c, output_t* c, const output_t* addend,
         const output_t* bias, const output_t* residual, float4* partial, u32* arrivals,
         float alpha, float beta, Work work) {
  extern __shared__ char memory[];
  const u32 stages = (shared_address(memory) + 1023) / 1024 * 1024;
  const u32 staging = stages + STAGES * STAGE_BYTES;
  const u32 full = staging + (DIRECT ? 0 : CONSUMER_WARPS * 2 * STAGED_BYTES);
  const u32 empty = full + 8 * STAGES;
#if SPLIT
  __shared__ u32 counts[CONSUMERS];
#endif

  // The shuffle shows the compiler that all lanes have the same number.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const u32 rank = CLUSTER > 1 ? cluster_rank() : 0;
  const int rank_m = rank % CLUSTER_M, rank_n = rank / CLUSTER_M;
  if (threadIdx.x == 0) {
    prefetch_map(&map_a);
    prefetch_map(&map_b);
    prefetch_map(&map_c);
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier_init(full + 8 * stage, 1);
      barrier_init(empty + 8 * stage, CONSUMER_WARPS * (CLUSTER_M + CLUSTER_N - 1));
    }
    barrier_init_fence();
  }
  if (CLUSTER > 1) {
    cluster_sync();
  } else {
    __syncthreads();
  }
  wait_for_kernel_before();
  let_next_kernel_start();

  Walk walk(work, rank);
  Unit unit;
  Position at;
  if (warp >= CONSUMER_WARPS) {
    give_registers_back<PRODUCER_REGISTERS>();
    if (warp == CONSUMER_WARPS && lane == 0) {
      // Blocks with this rank's tile of A, and with its tile of B.
      u16 ranks_a = 0, ranks_b = 0;
      for (int i = 0; i < CLUSTER_N; ++i) ranks_a |= 1 << (rank_m + CLUSTER_M * i);
      for (int i = 0; i < CLUSTER_M; ++i) ranks_b |= 1 << (i + CLUSTER_M * rank_n);
      while (walk.next(unit)) {
        for (int step = unit.first; step < unit.last; ++step, at.advance()) {
          const u32 barrier = full + 8 * at.stage, a = stages + at.stage * STAGE_BYTES;
          wait_for(empty + 8 * at.stage, at.parity ^ 1);
          arrive_expecting(barrier, STAGE_BYTES);
          fetch<TILE_M, A_ALONG_M, CLUSTER_N, HINTS[HINT_A]>(a, &map_a, step * STEP, unit.row,
                                                             barrier, rank_n, ranks_a);
          fetch<TILE_N, B_ALONG_N, CLUSTER_M, HINTS[HINT_B]>(a + A_BYTES, &map_b, step * STEP,
                                                             unit.column, barrier, rank_m, ranks_b);
        }
      }
    }
  } else {
    take_registers<CONSUMER_REGISTERS>();
    const int warpgroup = warp / 4;
    int turn = 0;  // which of the two staging buffers is next
    const Epilogue with = {addend, bias, residual, alpha, beta};
    // Where this lane reports that its warp has read a stage: to all that fetch for this block.
    const bool reports = lane < CLUSTER_M + CLUSTER_N - 1;
    const u32 to = lane < CLUSTER_M ? lane + CLUSTER_M * rank_n
                                    : rank_m + CLUSTER_M * ((lane - CLUSTER_M + rank_n + 1) % CLUSTER_N);
    float sums[HEIGHT][SUMS];
    while (walk.next(unit)) {
      int before = 0;
      for (int step = unit.first; step < unit.last; ++step) {
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
                                        step > unit.first || slice > 0);
          }
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (step > unit.first && reports) {
          if (CLUSTER > 1) {
            arrive_at(empty + 8 * before, to);
          } else {
            arrive(empty + 8 * before);
          }
        }
        before = at.stage;
        at.advance();
      }
      wgmma_wait<0>();
      if (reports) {
        if (CLUSTER > 1) {
          arrive_at(empty + 8 * before, to);
        } else {
          arrive(empty + 8 * before);
        }
      }
#pragma unroll
      for (int y = 0; y < HEIGHT; ++y) sums_are_complete(sums[y]);
#if SPLIT
      if (unit.slices > 1 &&
          !is_last_slice(sums, unit, (walk.rows * walk.columns - work.whole) * CLUSTER, partial,
                         arrivals, &counts[warpgroup], warpgroup)) {
        continue;
      }
#endif
#pragma unroll
      for (int y = 0; y < HEIGHT; ++y) {
        store(sums[y], unit.row + (warpgroup * HEIGHT + y) * 64 + warp % 4 * 16, unit.column, work,
              with, &map_c, c, staging + warp * 2 * STAGED_BYTES, turn);
      }
    }
    if (!DIRECT && lane == 0) wait_stores();
  }
  // No block may end while others of its cluster still send it boxes or arrivals.
  if (CLUSTER > 1) cluster_sync();
}
