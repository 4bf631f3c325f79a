// Rung 4: tensor cores by mma.sync, fed by asynchronous copies (instructions of sm_80).
//
// What changes from rung 3: a warp multiplies 16 × 8 × 16 in one instruction and sums in f32, so
// that elements stay in their 16 bits. They go from global to shared memory by cp.async without
// passing through registers, into a ring of STAGES tiles: while the tensor cores work on one stage,
// the copies of the next ones are under way. ldmatrix moves them from there to the registers of the
// warp in the arrangement that mma expects.
//
// A block computes TILE_M × TILE_N results with WARPS_M × WARPS_N warps; a warp's part consists of
// 16 × 8 pieces. Both tiles lie in shared memory as in global memory, rows along K.
//
// Macros given by the host: TILE_M, TILE_N, TILE_K (32 or 64), STAGES, WARPS_M, WARPS_N, and those of
// simt.cuh. Dynamic shared memory: STAGES * (TILE_M + TILE_N) * TILE_K * 2 bytes.
#include "simt.cuh"

constexpr int THREADS = 32 * WARPS_M * WARPS_N;
constexpr int VECTOR = 8;                                // elements in 16 bytes
constexpr int VECTORS = TILE_K / VECTOR;                 // of a row of a tile
constexpr int PART_M = TILE_M / WARPS_M, PART_N = TILE_N / WARPS_N;  // of a warp
constexpr int PIECES_M = PART_M / 16, PIECES_N = PART_N / 8;
constexpr int A_BYTES = TILE_M * TILE_K * 2, STAGE_BYTES = A_BYTES + TILE_N * TILE_K * 2;
static_assert(PART_M % 16 == 0 && PART_N % 16 == 0, "a warp loads B for 16 columns at a time");
static_assert(TILE_M * VECTORS % THREADS == 0 && TILE_N * VECTORS % THREADS == 0,
              "all threads copy the same number of vectors");

// ---- Instructions of sm_80, one function each ---------------------------------------------------

// Copies 16 bytes to shared memory; of these, `bytes` are read and the others become zero.
__device__ __forceinline__ void copy_async(u32 target, const void* source, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source),
               "r"(bytes)
               : "memory");
}

// Makes all copies of this thread since the last commit one group.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// All groups of this thread but the latest PENDING are complete.
template <int PENDING>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Stores 16 bytes to shared memory.
__device__ __forceinline__ void store_vector(u32 target, const u32 (&words)[4]) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(target), "r"(words[0]),
               "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

// Four 8 × 8 matrices: lane l gives the address of row l % 8 of matrix l / 8, and receives of each
// matrix elements 2 · (l % 4) and the next one of row l / 4.
__device__ __forceinline__ void load_matrices(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// d += A @ B of 16 × 16 and 16 × 8 elements. Lane l holds d at columns 2 · (l % 4) and the next one of
// rows l / 4 (d[0], d[1]) and l / 4 + 8 (d[2], d[3]).
__device__ __forceinline__ void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if IN_F16
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
#endif
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---- Tiles --------------------------------------------------------------------------------------

// Bytes from the beginning of a tile to 16 bytes of a row. Vectors of a row are exchanged so that
// the same vector of eight neighbouring rows lies in all 32 banks, as ldmatrix reads them: eight
// rows of 128 bytes each begin in the same bank, of 64 bytes every second one does.
__device__ __forceinline__ u32 place(int row, int vector) {
  return row * (TILE_K * 2) + (vector ^ row / (8 / VECTORS) % VECTORS) * 16;
}

struct Matrix {
  const input_t* elements;
  int first_row, rows, k;
};

// Eight elements, of which `inside` are read one by one and the others are zero.
__device__ __forceinline__ void copy_slowly(u32 target, const input_t* source, int inside) {
  u32 pairs[4] = {};
#pragma unroll
  for (int i = 0; i < VECTOR; ++i) {
    if (i < inside) pairs[i / 2] |= (u32)source[i] << 16 * (i % 2);
  }
  store_vector(target, pairs);
}

// Begins to copy ROWS rows from `depth` on; what lies outside the matrix becomes zero. ALIGNED: rows
// begin at multiples of 16 bytes, so that 16 bytes are inside or outside as a whole.
template <int ROWS, bool ALIGNED>
__device__ __forceinline__ void copy_tile(u32 tile, const Matrix& from, int depth) {
#pragma unroll
  for (int i = 0; i < ROWS * VECTORS / THREADS; ++i) {
    const int index = threadIdx.x + i * THREADS, row = index / VECTORS, vector = index % VECTORS;
    const int column = depth + vector * VECTOR, line = from.first_row + row;
    const int inside = line < from.rows ? max(0, min(VECTOR, from.k - column)) : 0;
    const input_t* source = from.elements + (long long)line * from.k + column;
    const u32 target = tile + place(row, vector);
    if (ALIGNED) {
      // An address outside the matrix is not read, but it has to be a valid one.
      copy_async(target, inside ? source : from.elements, inside ? 16 : 0);
    } else {
      copy_slowly(target, source, inside);
    }
  }
}

template <bool ALIGNED>
__device__ __forceinline__ void copy_stage(u32 stage, const Matrix& a, const Matrix& b, int depth) {
  copy_tile<TILE_M, ALIGNED>(stage, a, depth);
  copy_tile<TILE_N, ALIGNED>(stage + A_BYTES, b, depth);
}

// Adds the products of one stage to the sums of the warp whose part begins at (row, column).
__device__ __forceinline__ void multiply_stage(float (&sums)[PIECES_M][PIECES_N][4], u32 tile_a,
                                               u32 tile_b, int row, int column) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int slice = 0; slice < TILE_K / 16; ++slice) {
    // Matrices of A: upper rows, lower rows, and both again 8 deeper. Of B: 8 columns, the same
    // deeper, and both again for the next 8 columns.
    u32 a[PIECES_M][4], b[PIECES_N / 2][4];
#pragma unroll
    for (int i = 0; i < PIECES_M; ++i) {
      load_matrices(a[i], tile_a + place(row + 16 * i + lane % 16, 2 * slice + lane / 16));
    }
#pragma unroll
    for (int j = 0; j < PIECES_N / 2; ++j) {
      load_matrices(b[j], tile_b + place(column + 16 * j + lane / 16 * 8 + lane % 8,
                                         2 * slice + lane / 8 % 2));
    }
#pragma unroll
    for (int i = 0; i < PIECES_M; ++i) {
#pragma unroll
      for (int j = 0; j < PIECES_N; ++j) {
        multiply(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
}

// The products of the whole depth for the part of the warp that begins at (row, column).
template <bool ALIGNED>
__device__ __forceinline__ void multiply_tiles(float (&sums)[PIECES_M][PIECES_N][4], u32 stages,
                                               const Matrix& a, const Matrix& b, int row,
                                               int column) {
  const int steps = (a.k + TILE_K - 1) / TILE_K;
  // Groups are committed also where nothing is left to copy, so that "all but the latest
  // STAGES - 2" always means that the stage to be read is complete.
  for (int step = 0; step < STAGES - 1; ++step) {
    if (step < steps) copy_stage<ALIGNED>(stages + step * STAGE_BYTES, a, b, step * TILE_K);
    commit_copies();
  }
  for (int step = 0; step < steps; ++step) {
    wait_copies<STAGES - 2>();
    // One barrier serves two purposes: the copies of all threads are complete, and all warps have
    // read the stage of the step before, which the next copies overwrite.
    __syncthreads();
    const int ahead = step + STAGES - 1;
    if (ahead < steps) {
      copy_stage<ALIGNED>(stages + ahead % STAGES * STAGE_BYTES, a, b, ahead * TILE_K);
    }
    commit_copies();
    const u32 stage = stages + step % STAGES * STAGE_BYTES;
    multiply_stage(sums, stage, stage + A_BYTES, row, column);
  }
}

// Two neighbours of a row, in one store where both are inside and lie in one word.
__device__ __forceinline__ void store_pair(output_t* c, float left, float right, int row,
                                           int column, int m, int n, bool paired) {
  if (row >= m || column >= n) return;
  output_t* target = c + (long long)row * n + column;
#if !OUT_F32
  if (paired) {
    *(u32*)target = narrow_pair(left, right);
    return;
  }
#endif
  target[0] = narrow(left);
  if (column + 1 < n) target[1] = narrow(right);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm(const input_t* a, const input_t* b, output_t* c, int m, int n, int k) {
  extern __shared__ __align__(128) char pool[];
  const int tiles_n = (n + TILE_N - 1) / TILE_N;
  const int tile_row = blockIdx.x / tiles_n * TILE_M, tile_column = blockIdx.x % tiles_n * TILE_N;
  const Matrix rows = {a, tile_row, m, k}, columns = {b, tile_column, n, k};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = warp / WARPS_N * PART_M, column = warp % WARPS_N * PART_N;
  float sums[PIECES_M][PIECES_N][4] = {};
  if (k % VECTOR == 0 && ((u64)a | (u64)b) % 16 == 0) {
    multiply_tiles<true>(sums, shared_address(pool), rows, columns, row, column);
  } else {
    multiply_tiles<false>(sums, shared_address(pool), rows, columns, row, column);
  }

  const bool paired = n % 2 == 0 && (u64)c % 4 == 0;
#pragma unroll
  for (int i = 0; i < PIECES_M; ++i) {
#pragma unroll
    for (int j = 0; j < PIECES_N; ++j) {
      const int y = tile_row + row + 16 * i + lane / 4;
      const int x = tile_column + column + 8 * j + lane % 4 * 2;
      store_pair(c, sums[i][j][0], sums[i][j][1], y, x, m, n, paired);
      store_pair(c, sums[i][j][2], sums[i][j][3], y + 8, x, m, n, paired);
    }
  }
}
