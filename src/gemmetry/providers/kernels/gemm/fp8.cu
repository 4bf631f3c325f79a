// C = epilogue(alpha · scales · A @ B + beta · addend) of e4m3 numbers, any M, N, K; both operands
// contiguous along K, as Hopper's matrix instructions of 8-bit numbers require.
//
// Those instructions add up with about 14 bits (DeepSeek-V3, arXiv 2412.19437, section 3.5.2), so the
// sum of every 128 products is added to sums in f32 by the ordinary cores: the two warpgroups
// alternate, one multiplies while the other adds. Factors of blocks of 128 along K enter there too.
//
// Macros given by the host besides those of ptx.cuh (IN_E4M3 1) and epilogue.cuh: TILE_M, TILE_N, STAGES, CONSUMERS,
// CLUSTER, DIRECT (1: results are stored from registers, where rows of C are not multiples of 16
// bytes, or f32), and SCALES:
//   0  one factor for A, one for B, or none;
//   1  one for every row of A, one for every column of B;
//   2  one for every 128 of K of a row of A, one for every 128 × 128 of B;
//   3  one for every 128 of K of a row of A, and of a column of B.
// Factors of rows and columns lie next to each other: scale_a (K / 128, M), scale_b (K / 128, N); those
// of squares are scale_b (N / 128, K / 128).
#include "epilogue.cuh"

constexpr int STEP = 128;  // of K: one row of the 128-byte swizzle, and one block of factors
constexpr int SLICES = 4;  // wgmma instructions along a step: 32 of K each
constexpr int CONSUMER_WARPS = 4 * CONSUMERS, THREADS = 128 * (CONSUMERS + 1);
constexpr int HEIGHT = TILE_M / CONSUMERS / 64;  // instructions of 64 rows, one below the other
constexpr int SUMS = TILE_N / 2;                 // of one thread and instruction
constexpr int PRODUCER_REGISTERS = CONSUMERS == 1 ? 56 : 40;
constexpr int CONSUMER_REGISTERS = CONSUMERS == 1 ? 240 : CONSUMERS == 2 ? 232 : 152;

constexpr int A_BYTES = TILE_M * 128, B_BYTES = TILE_N * 128, STAGE_BYTES = A_BYTES + B_BYTES;
// Factors of a stage: of the tile's rows, then of its columns, or of the squares that it reaches.
constexpr int ROW_FACTORS = SCALES >= 2 ? TILE_M : 0;
constexpr int COLUMN_FACTORS = SCALES == 3 ? TILE_N : SCALES == 2 ? 32 : 0;
// Whether a tile may reach from one square of 128 columns into the next.
constexpr bool REACHES_TWO = 128 % TILE_N != 0;
constexpr int FACTORS_BYTES = (ROW_FACTORS + COLUMN_FACTORS) * 4;

// Columns that leave at once: rows of 128 or 64 bytes in the swizzle of that size.
constexpr int STAGED = TILE_N % 64 == 0 ? 64 : 32;
constexpr int STAGED_BYTES = 16 * STAGED * 2;  // of one warp's 16 rows
[[maybe_unused]] constexpr u32 STAGED_SWIZZLE = STAGED * 2 - 16;

struct Work {
  int m, n, k;
  int band;  // tile rows (of clusters) that are walked together, column by column
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

struct Tile {
  int row, column;  // of its first element
};

struct Schedule {
  int rows, columns, tiles, stride;  // tiles of a cluster count as one
  __device__ Schedule(const Work& work) {
    rows = (work.m + TILE_M * CLUSTER - 1) / (TILE_M * CLUSTER);
    columns = (work.n + TILE_N - 1) / TILE_N;
    tiles = rows * columns;
    stride = gridDim.x / CLUSTER;
  }
  __device__ Tile at(int index, const Work& work, u32 rank) const {
    const int band = index / (work.band * columns);
    const int height = min(work.band, rows - band * work.band);
    const int inside = index - band * work.band * columns;
    const int row = (band * work.band + inside % height) * CLUSTER + rank;
    return {row * TILE_M, inside / height * TILE_N};
  }
};

// Copies one factor to shared memory; zero, without reading, if it is not `wanted`.
__device__ __forceinline__ void copy_factor(u32 target, const float* from, bool wanted) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(target), "l"(from),
               "r"(wanted ? 4 : 0)
               : "memory");
}

// This lane's part of the factors of a stage: COUNT in a row, of which `left` are wanted.
template <int COUNT>
__device__ __forceinline__ void copy_factors(u32 target, const float* from, int left) {
#pragma unroll
  for (int i = 0; i < COUNT; i += 32) copy_factor(target + 4 * i, from + i, i < left);
}

__device__ __forceinline__ float factor(u32 address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}

// Adds one step's products to the sums; `rows` and `columns` are the addresses of the factors of this
// thread's first row and of the tile's first column.
__device__ __forceinline__ void promote(float (&sums)[SUMS], const float (&products)[SUMS],
                                        const float (&of_rows)[2], const float (&of_squares)[2],
                                        u32 columns, int column) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < SUMS / 4; ++j) {
    float x = 1.0f, y = 1.0f;
    if (SCALES == 3) {
      asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                   : "=f"(x), "=f"(y)
                   : "r"(columns + (8 * j + lane % 4 * 2) * 4));
    }
#pragma unroll
    for (int i = 4 * j; i < 4 * j + 4; ++i) {
      const float of_row = of_rows[i / 2 % 2];
      if (SCALES < 2) {
        sums[i] += products[i];
      } else if (SCALES == 2) {
        const bool second = REACHES_TWO && 8 * j >= 128 - column % 128;
        sums[i] = fmaf(products[i], of_row * (second ? of_squares[1] : of_squares[0]), sums[i]);
      } else {
        sums[i] = fmaf(products[i] * (i % 2 ? y : x), of_row, sums[i]);
      }
    }
  }
}

// One instruction's 64 rows of the tile leave; this warp has 16 of them, from `row` on.
__device__ __forceinline__ void store(float (&sums)[SUMS], int row, int column, const Work& work,
                                      const Epilogue& with, const TensorMap* map, output_t* c,
                                      u32 staging, int& turn) {
  const int lane = threadIdx.x % 32;
  const int upper = row + lane / 4, left = column + lane % 4 * 2;
#pragma unroll
  for (int i = 0; HAS_EPILOGUE && i < SUMS; ++i) {
    const int y = upper + i / 2 % 2 * 8, x = left + i / 4 * 8 + i % 2;
    if (y < work.m && x < work.n) sums[i] = finished(sums[i], with, (long long)y * work.n + x, x);
  }
#if DIRECT
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    const int y = upper + i / 2 % 2 * 8, x = left + i / 4 * 8 + i % 2;
    if (y < work.m && x < work.n) c[(long long)y * work.n + x] = narrow(sums[i]);
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
      const u32 offset = lane % 16 * STAGED * 2 + (2 * pair + lane / 16) * 16;
      store_matrices(buffer + (offset ^ (offset >> 3 & STAGED_SWIZZLE)),
                     narrow_pair(sums[from], sums[from + 1]),
                     narrow_pair(sums[from + 2], sums[from + 3]),
                     narrow_pair(sums[from + 4], sums[from + 5]),
                     narrow_pair(sums[from + 6], sums[from + 7]));
    }
    fence_async_proxy();
    __syncwarp();
    if (lane == 0) store_box(map, column + chunk * STAGED, row, buffer);
  }
#endif
}

extern "C" __global__ void __cluster_dims__(CLUSTER) __launch_bounds__(THREADS, 1)
    gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
         const __grid_constant__ TensorMap map_c, output_t* c, const float* scale_a,
         const float* scale_b, const output_t* addend, const output_t* bias,
         const output_t* residual, float alpha, float beta, Work work) {
  extern __shared__ char memory[];
  const u32 stages = (shared_address(memory) + 1023) / 1024 * 1024;
  const u32 staging = stages + STAGES * STAGE_BYTES;
  const u32 all_factors = staging + (DIRECT ? 0 : CONSUMER_WARPS * 2 * STAGED_BYTES);
  const u32 full = all_factors + STAGES * FACTORS_BYTES;
  const u32 empty = full + 8 * STAGES;

  // The shuffle shows the compiler that all lanes have the same number.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const u32 rank = CLUSTER > 1 ? cluster_rank() : 0;
  if (threadIdx.x == 0) {
    prefetch_map(&map_a);
    prefetch_map(&map_b);
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier_init(full + 8 * stage, SCALES >= 2 ? 1 + 32 : 1);
      barrier_init(empty + 8 * stage, CONSUMER_WARPS * CLUSTER);
    }
    barrier_init_fence();
  }
  if (CLUSTER > 1) {
    cluster_sync();
  } else {
    __syncthreads();
  }

  const Schedule schedule(work);
  const int steps = (work.k + STEP - 1) / STEP;
  Position at;
  if (warp >= CONSUMER_WARPS) {
    give_registers_back<PRODUCER_REGISTERS>();
    if (warp == CONSUMER_WARPS && lane == 0) {
      for (int i = blockIdx.x / CLUSTER; i < schedule.tiles; i += schedule.stride) {
        const Tile tile = schedule.at(i, work, rank);
        for (int step = 0; step < steps; ++step, at.advance()) {
          const u32 barrier = full + 8 * at.stage, a = stages + at.stage * STAGE_BYTES;
          wait_for(empty + 8 * at.stage, at.parity ^ 1);
          arrive_expecting(barrier, STAGE_BYTES);
          load_box(a, &map_a, step * STEP, tile.row, barrier);
          if (CLUSTER > 1) {
            const int share = TILE_N / CLUSTER * rank;
            load_box_multicast(a + A_BYTES + share * 128, &map_b, step * STEP, tile.column + share,
                               barrier, (1 << CLUSTER) - 1);
          } else {
            load_box(a + A_BYTES, &map_b, step * STEP, tile.column, barrier);
          }
        }
      }
    } else if (SCALES >= 2 && warp == CONSUMER_WARPS + 1) {
      for (int i = blockIdx.x / CLUSTER; i < schedule.tiles; i += schedule.stride) {
        const Tile tile = schedule.at(i, work, rank);
        const int rows = work.m - tile.row - lane, columns = work.n - tile.column - lane;
        const int square = tile.column / 128 + lane;
        const float* of_rows = scale_a + tile.row + lane;
        const float* of_columns = scale_b + (SCALES == 3 ? tile.column + lane : square * steps);
        for (int step = 0; step < steps; ++step, at.advance()) {
          const u32 target = all_factors + at.stage * FACTORS_BYTES + 4 * lane;
          wait_for(empty + 8 * at.stage, at.parity ^ 1);
          copy_factors<ROW_FACTORS>(target, of_rows, rows);
          of_rows += work.m;
          if (SCALES == 3) {
            copy_factors<COLUMN_FACTORS>(target + 4 * ROW_FACTORS, of_columns, columns);
            of_columns += work.n;
          } else if (lane < 2) {
            copy_factor(target + 4 * ROW_FACTORS, of_columns + step, square * 128 < work.n);
          }
          copies_arrive(full + 8 * at.stage);
        }
      }
    }
  } else {
    take_registers<CONSUMER_REGISTERS>();
    const int warpgroup = warp / 4;
    const Epilogue with = {addend, bias, residual, alpha, beta};
    int turn = 0;  // which of the two staging buffers is next
    float sums[HEIGHT][SUMS], products[SUMS];
    for (int i = blockIdx.x / CLUSTER; i < schedule.tiles; i += schedule.stride) {
      const Tile tile = schedule.at(i, work, rank);
      const int upper = tile.row + warpgroup * HEIGHT * 64 + warp % 4 * 16 + lane / 4;
      const int left = tile.column + lane % 4 * 2;
#pragma unroll
      for (int y = 0; y < HEIGHT; ++y) {
#pragma unroll
        for (int j = 0; j < SUMS; ++j) sums[y][j] = 0.0f;
      }
      for (int step = 0; step < steps; ++step, at.advance()) {
        wait_for(full + 8 * at.stage, at.parity);
        const u32 a = stages + at.stage * STAGE_BYTES;
        const u64 of_b = k_major(a + A_BYTES);
        const u32 factors = all_factors + at.stage * FACTORS_BYTES, columns = factors + 4 * ROW_FACTORS;
        float of_rows[HEIGHT][2] = {}, of_squares[2] = {};
#pragma unroll
        for (int j = 0; SCALES >= 2 && j < HEIGHT * 2; ++j) {
          of_rows[j / 2][j % 2] = factor(factors + 4 * (upper - tile.row + j / 2 * 64 + j % 2 * 8));
        }
        if (SCALES == 2) {
          of_squares[0] = factor(columns);
          if (REACHES_TWO) of_squares[1] = factor(columns + 4);
        }
#pragma unroll
        for (int y = 0; y < HEIGHT; ++y) {
          const u64 of_a = k_major(a + (warpgroup * HEIGHT + y) * 8192);
          wgmma_fence();
#pragma unroll
          for (int slice = 0; slice < SLICES; ++slice) {
            wgmma(products, of_a + slice * 32 / 16, of_b + slice * 32 / 16, slice > 0);
          }
          wgmma_commit();
          wgmma_wait<0>();
          sums_are_complete(products);
          promote(sums[y], products, of_rows[y], of_squares, columns, tile.column);
        }
        // The warp has used the stage's factors as well.
        __syncwarp();
        if (lane < CLUSTER) arrive_at(empty + 8 * at.stage, lane);
      }
#pragma unroll
      for (int y = 0; y < HEIGHT; ++y) {
        if (SCALES < 2 && scale_a) {
#pragma unroll
          for (int j = 0; j < SUMS; ++j) {
            const int row = upper + 64 * y + j / 2 % 2 * 8, column = left + j / 4 * 8 + j % 2;
            const float of_row = SCALES == 0 ? __ldg(scale_a) : row < work.m ? __ldg(scale_a + row) : 0;
            const float of_column =
                SCALES == 0 ? __ldg(scale_b) : column < work.n ? __ldg(scale_b + column) : 0;
            sums[y][j] = of_row * (of_column * sums[y][j]);
          }
        }
        store(sums[y], tile.row + (warpgroup * HEIGHT + y) * 64 + warp % 4 * 16, tile.column, work,
              with, &map_c, c, staging + warp * 2 * STAGED_BYTES, turn);
      }
    }
    if (!DIRECT && lane == 0) wait_stores();
  }
  // No block may end while others of its cluster still send it boxes or arrivals.
  if (CLUSTER > 1) cluster_sync();
}
