// C = epilogue(alpha · scales · A @ B + beta · addend) for A of at most 16 rows, as in the decoding
// of a language model: the time is that of reading B, the weights, once.
//
// A tile is ROWS columns of C and so ROWS rows of weights. All warps of a block work on one tile:
// warp w takes runs w, w + WARPS, … of K, each DEPTH chunks of 128 bytes of a row of weights, and the
// sums of the warps are added in their order. SPLIT blocks of a cluster share a tile, each with its part of K, so
// that all multiprocessors have work where C has few columns; block r of the cluster adds the sums of
// its blocks in their order for its share of the elements. Nothing depends on which warp or block
// comes first.
//
// Every product is an mma m16n8k16 whose 16 rows are weights and whose 8 columns are rows of A, so
// that one instruction serves eight rows of A. Which k is where in the instruction is free, as long as
// both operands agree: a lane multiplies neighbours in memory, which it loads 16 bytes at a time.
//
// Weights arrive in one of two ways. By the copy engine: each warp owns a ring of STAGES boxes of
// weights with the same K of A, and its first lane fetches the box that comes STAGES later as soon as
// the warp has multiplied one. DIRECT: each lane loads STAGES chunks into registers (DEPTH 1).
//
// The launch may begin before the kernel before it has ended. It touches nothing until then, but with
// AHEAD it fetches its first weights into the L2 cache, which later writes to them reach as well.
// It lets the next kernel start at once.
//
// Macros given by the host besides those of ptx.cuh for results: A_FORMAT and B_FORMAT (0 bf16, 1 f16,
// 2 e4m3; weights have the format of A, or e4m3), ROWS, WARPS, STAGES, DEPTH, SPLIT, AHEAD,
// PARTS (1: at most 8 rows of A, 2: at most 16), DIRECT, NARROW (with DIRECT: any strides and alignment,
// element by element), TURNED (1: B is contiguous along N; copy engine, 16 bits), SCALING (0 none, 1 one factor for each
// operand, 2 for each row of A and column of B, 3 for 128 elements along K of a row of A, and of
// SCALE_COLUMNS columns of B), ALPHA and ADDEND (1: alpha is not 1, beta is not 0), EPILOGUE
// (epilogue.cuh).
#include "ptx.cuh"
#include "epilogue.cuh"

constexpr int BF16 = 0, E4M3 = 2;
constexpr int A_SIZE = A_FORMAT == E4M3 ? 1 : 2, B_SIZE = B_FORMAT == E4M3 ? 1 : 2;
constexpr int RATIO = A_SIZE / B_SIZE;
constexpr int CHUNK = 128 / B_SIZE;      // elements of K
constexpr int RUN = DEPTH * CHUNK;       // likewise
constexpr int PAIRS = CHUNK / 8;         // of one lane and row: a chunk is shared by four lanes
constexpr int WIDTH = 8 * PARTS;         // rows of A
constexpr int TILES = ROWS / 16;         // of one instruction
constexpr int THREADS = 32 * WARPS;
constexpr int PITCH = ROWS + 4;          // of sums in shared memory; no two lanes meet in a bank
constexpr int A_BOX = DEPTH * RATIO * WIDTH * 128, B_BOX = DEPTH * ROWS * 128;
[[maybe_unused]] constexpr int STAGE_BYTES = B_BOX + A_BOX, BARRIER_BYTES = 8;

struct Work {
  int m, n, k;
  int a_m, a_k, b_n, b_k, c_m, c_n;  // elements from one to the next along each axis
};

// ---- Instructions that only this kernel needs ----------------------------------------------------

// Two elements of e4m3, which f16 holds exactly, in the format of the product.
__device__ __forceinline__ u32 widen_pair(u16 bits) {
  u32 pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(bits));
  if constexpr (A_FORMAT == BF16) {
    asm("{\n"
        ".reg .b16 low, high;\n"
        ".reg .f32 x, y;\n"
        "mov.b32 {low, high}, %0;\n"
        "cvt.f32.f16 x, low;\n"
        "cvt.f32.f16 y, high;\n"
        "cvt.rn.bf16x2.f32 %0, y, x;\n"
        "}"
        : "+r"(pair));
  }
  return pair;
}

// d += weights · A: lane l gives pairs of weights of rows l / 4 and l / 4 + 8, and of row l / 4 of A, and
// holds the sums of rows l / 4 (d[0], d[1]) and l / 4 + 8 of the weights with rows l % 4 · 2 … of A.
__device__ __forceinline__ void multiply(float (&d)[4], u32 upper, u32 lower, u32 next_upper,
                                         u32 next_lower, u32 a, u32 next_a) {
#define MMA(FORMAT)                                                                      \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." FORMAT "." FORMAT                \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"    \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                          \
               : "r"(upper), "r"(lower), "r"(next_upper), "r"(next_lower), "r"(a), "r"(next_a))
  if constexpr (A_FORMAT == BF16) {
    MMA("bf16");
  } else {
    MMA("f16");
  }
#undef MMA
}

// 16 bytes of weights, which are read once: they need no place in L1.
__device__ __forceinline__ uint4 load_once(const void* from) {
  uint4 bytes;
  asm volatile("ld.global.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(bytes.x), "=r"(bytes.y), "=r"(bytes.z), "=r"(bytes.w)
               : "l"(from));
  return bytes;
}

__device__ __forceinline__ u32 shared_word(u32 address) {
  u32 word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(address));
  return word;
}

__device__ __forceinline__ uint4 shared_vector(u32 address) {
  uint4 bytes;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(bytes.x), "=r"(bytes.y), "=r"(bytes.z), "=r"(bytes.w)
               : "r"(address));
  return bytes;
}

// Four 8 × 8 matrices of 16 bits, turned; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_turned(u32 address, u32& r0, u32& r1, u32& r2, u32& r3) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
               : "r"(address));
}

// Copies the box at element (x, y, z) to shared memory, as the function of ptx.cuh does at (x, y).
template <u64 HINT>
__device__ __forceinline__ void load_box(u32 target, const TensorMap* map, int x, int y, int z,
                                         u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(target),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "l"(HINT)
      : "memory");
}

// Fetch a box into the L2 cache.
__device__ __forceinline__ void prefetch_box(const TensorMap* map, int x, int y) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(map), "r"(x),
               "r"(y)
               : "memory");
}
__device__ __forceinline__ void prefetch_box(const TensorMap* map, int x, int y, int z) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(map),
               "r"(x), "r"(y), "r"(z)
               : "memory");
}

// The element at the same place in the shared memory of block `rank` of the cluster.
__device__ __forceinline__ float remote(u32 address, int rank) {
  float value;
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %1, %2;\n"
      "ld.shared::cluster.f32 %0, [there];\n"
      "}"
      : "=f"(value)
      : "r"(address), "r"(rank)
      : "memory");
  return value;
}

// ---- Elements -----------------------------------------------------------------------------------

// 16 bytes of elements as pairs in the format of the product: four of them, or eight of e4m3.
template <int FORMAT>
__device__ __forceinline__ void expand(const uint4& bytes, u32* pairs) {
  const u32 words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (FORMAT == E4M3) {
      pairs[2 * i] = widen_pair((u16)words[i]);
      pairs[2 * i + 1] = widen_pair((u16)(words[i] >> 16));
    } else {
      pairs[i] = words[i];
    }
  }
}

// ---- Where a lane's elements are ----------------------------------------------------------------

// The 16 bytes of weights that are vector 0 or 1 of this lane's share of a chunk, counted from the
// chunk's first. Neighbouring lanes load neighbouring vectors of global memory; in the swizzle of
// shared memory the share is 32 bytes, for then eight lanes of two rows meet all banks once.
__device__ __forceinline__ int vector_of(int vector) {
  const int lane = threadIdx.x % 4;
  return DIRECT ? 4 * vector + lane : 2 * lane + vector;
}

// The address of 16-byte `vector` of a line of 128 bytes in the swizzle of that size.
__device__ __forceinline__ u32 swizzled(u32 box, int line, int vector) {
  return box + line * 128 + ((vector ^ line) % 8) * 16;
}

#if DIRECT
// 16 bytes of a row from element k on; zeros beyond the row's end.
template <int SIZE, bool ONCE>
__device__ __forceinline__ uint4 global_vector(const char* row, int step, int k, int end) {
  uint4 bytes = make_uint4(0, 0, 0, 0);
#if NARROW
  u32 words[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < 16 / SIZE; ++i) {
    if (k + i >= end) break;
    const char* at = row + (long long)(k + i) * step * SIZE;
    const u32 bits = SIZE == 1 ? *(const unsigned char*)at : *(const u16*)at;
    words[i * SIZE / 4] |= bits << (i * SIZE % 4 * 8);
  }
  bytes = make_uint4(words[0], words[1], words[2], words[3]);
#else
  if (k < end) {
    const char* at = row + (long long)k * SIZE;
    bytes = ONCE ? load_once(at) : *(const uint4*)at;
  }
#endif
  return bytes;
}
#endif

// ---- One chunk ----------------------------------------------------------------------------------

typedef u32 ActivationPairs[PARTS][PAIRS];

// What a lane's sums of one chunk are multiplied by: factors of A by the row, those of B by the row
// of weights of each tile.
struct Factors {
#if SCALING == 3
  float a[DEPTH][PARTS][2], b[DEPTH][TILES][2];
  __device__ Factors(const float* scale_a, const float* scale_b, const Work& work, int chunk, int n) {
    const int lane = threadIdx.x % 32, chunks = (work.k + CHUNK - 1) / CHUNK;
#pragma unroll
    for (int i = 0; i < DEPTH; ++i) {
      const int at = chunk + i;
#pragma unroll
      for (int j = 0; j < 2 * PARTS; ++j) {
        const int row = j / 2 * 8 + lane % 4 * 2 + j % 2;
        const bool inside = row < work.m && at < chunks;
        a[i][j / 2][j % 2] = inside ? scale_a[(long long)at * work.m + row] : 0.0f;
      }
#pragma unroll
      for (int j = 0; j < 2 * TILES; ++j) {
        const int column = min(n + j * 8 + lane / 4, work.n - 1);
        const long long index = SCALE_COLUMNS == 1 ? (long long)at * work.n + column
                                                   : (long long)(column / SCALE_COLUMNS) * chunks + at;
        b[i][j / 2][j % 2] = at < chunks ? scale_b[index] : 0.0f;
      }
    }
  }
#else
  __device__ Factors(const float*, const float*, const Work&, int, int) {}
#endif
};

// Adds the products of 16 rows of weights: pairs of row l / 4 and of row l / 4 + 8 of lane l. Factors
// are those of chunk `number` of a run.
__device__ __forceinline__ void add_tile(float (&sums)[PARTS][4], const u32 (&upper)[PAIRS],
                                         const u32 (&lower)[PAIRS], const ActivationPairs& a,
                                         const Factors& factors, int number, int tile) {
#pragma unroll
  for (int part = 0; part < PARTS; ++part) {
#if SCALING == 3
    float chunk[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#else
    float(&chunk)[4] = sums[part];
#endif
#pragma unroll
    for (int i = 0; i < PAIRS; i += 2) {
      multiply(chunk, upper[i], lower[i], upper[i + 1], lower[i + 1], a[part][i], a[part][i + 1]);
    }
#if SCALING == 3
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[part][i] += chunk[i] * (factors.a[number][part][i % 2] * factors.b[number][tile][i / 2]);
    }
#endif
  }
}

#if DIRECT
struct Direct {
  const char *a, *b;
  const Work& work;

  // All chunks from `chunk` on in steps of WARPS, before `end`, for the tile that begins at row n.
  __device__ void add(float (&sums)[TILES][PARTS][4], int n, int chunk, int end,
                      const float* scale_a, const float* scale_b) const {
    const int row = threadIdx.x % 32 / 4;
    const char *of_a[PARTS], *of_b[2 * TILES];
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      of_a[i] = a + (long long)min(8 * i + row, work.m - 1) * work.a_m * A_SIZE;
    }
#pragma unroll
    for (int i = 0; i < 2 * TILES; ++i) {
      of_b[i] = b + (long long)min(n + 8 * i + row, work.n - 1) * work.b_n * B_SIZE;
    }
    for (; chunk < end; chunk += STAGES * WARPS) {
      uint4 weights[STAGES][2 * TILES][2], activations[STAGES][PARTS][2 * RATIO];
#pragma unroll
      for (int stage = 0; stage < STAGES; ++stage) {
        const int at = chunk + stage * WARPS, last = at < end ? work.k : 0;
#pragma unroll
        for (int i = 0; i < 2 * TILES; ++i) {
#pragma unroll
          for (int v = 0; v < 2; ++v) {
            weights[stage][i][v] = global_vector<B_SIZE, true>(
                of_b[i], work.b_k, at * CHUNK + vector_of(v) * 16 / B_SIZE, last);
          }
        }
#pragma unroll
        for (int i = 0; i < PARTS; ++i) {
#pragma unroll
          for (int v = 0; v < 2 * RATIO; ++v) {
            const int vector = vector_of(v / RATIO) * RATIO + v % RATIO;
            activations[stage][i][v] = global_vector<A_SIZE, false>(
                of_a[i], work.a_k, at * CHUNK + vector * 16 / A_SIZE, last);
          }
        }
      }
#pragma unroll
      for (int stage = 0; stage < STAGES; ++stage) {
        const int at = chunk + stage * WARPS;
        if (SCALING == 3 && at >= end) break;
        const Factors factors(scale_a, scale_b, work, at, n);
        ActivationPairs pairs;
#pragma unroll
        for (int i = 0; i < PARTS; ++i) {
#pragma unroll
          for (int v = 0; v < 2 * RATIO; ++v) {
            expand<A_FORMAT>(activations[stage][i][v], &pairs[i][v * PAIRS / (2 * RATIO)]);
          }
        }
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
          u32 upper[PAIRS], lower[PAIRS];
#pragma unroll
          for (int v = 0; v < 2; ++v) {
            expand<B_FORMAT>(weights[stage][2 * tile][v], &upper[v * PAIRS / 2]);
            expand<B_FORMAT>(weights[stage][2 * tile + 1][v], &lower[v * PAIRS / 2]);
          }
          add_tile(sums[tile], upper, lower, pairs, factors, 0, tile);
        }
      }
    }
  }
};
#else

// The runs of a warp, tile after tile: of each tile `count` of them, WARPS apart.
struct Cursor {
  int tile, first, count, at;
  __device__ void advance(int stride) {
    if (++at == count) {
      at = 0;
      tile += stride;
    }
  }
  __device__ int run() const {
    return first + at * WARPS;
  }
};

// Fetches the boxes of a stage; one lane does. Of a run of several chunks a box has three axes: a
// chunk, the chunks, and the rows, so that the copy engine reads the whole run of a row at once.
__device__ __forceinline__ void fetch(u32 stage, u32 full, const TensorMap* a, const TensorMap* b,
                                      const Cursor& at) {
  arrive_expecting(full, STAGE_BYTES);
  const int run = at.run(), k = run * RUN, n = at.tile * ROWS;
  if constexpr (TURNED) {
#pragma unroll
    for (int i = 0; i < ROWS / 64; ++i) {
      load_box<EVICT_FIRST>(stage + i * 64 * 128, b, n + 64 * i, k, full);
    }
  } else if constexpr (DEPTH > 1) {
    load_box<EVICT_FIRST>(stage, b, 0, run * DEPTH, n, full);
  } else {
    load_box<EVICT_FIRST>(stage, b, k, n, full);
  }
  if constexpr (DEPTH > 1) {
    load_box<EVICT_LAST>(stage + B_BOX, a, 0, run * DEPTH * RATIO, 0, full);
  } else {
#pragma unroll
    for (int i = 0; i < RATIO; ++i) {
      load_box<EVICT_LAST>(stage + B_BOX + i * WIDTH * 128, a, k + i * CHUNK / RATIO, 0, full);
    }
  }
}

// Fetches weights into the L2 cache.
__device__ __forceinline__ void fetch_ahead(const TensorMap* b, const Cursor& at) {
  const int run = at.run(), k = run * RUN, n = at.tile * ROWS;
  if constexpr (DEPTH > 1) {
    prefetch_box(b, 0, run * DEPTH, n);
  } else {
#pragma unroll
    for (int i = 0; i < (TURNED ? ROWS / 64 : 1); ++i) {
      prefetch_box(b, TURNED ? n + 64 * i : k, TURNED ? k : n);
    }
  }
}

// Adds the products of one chunk of a stage.
__device__ __forceinline__ void add_chunk(float (&sums)[TILES][PARTS][4], u32 stage, int chunk,
                                          const Factors& factors) {
  const int lane = threadIdx.x % 32, row = lane / 4;
  ActivationPairs pairs;
  const u32 activations = stage + B_BOX;
#pragma unroll
  for (int part = 0; part < PARTS; ++part) {
    if constexpr (TURNED) {  // Here k is in the order of the instruction.
#pragma unroll
      for (int i = 0; i < PAIRS; ++i) {
        const u32 at = swizzled(activations, 8 * part + row, i) + lane % 4 * 4;
        pairs[part][i] = shared_word(at);
      }
    } else {
#pragma unroll
      for (int v = 0; v < 2 * RATIO; ++v) {
        const int vector = vector_of(v / RATIO) * RATIO + v % RATIO, m = 8 * part + row;
        const int line = DEPTH > 1 ? (m * DEPTH + chunk) * RATIO + vector / 8 : vector / 8 * WIDTH + m;
        const u32 at = swizzled(activations, line, vector);
        expand<A_FORMAT>(shared_vector(at), &pairs[part][v * PAIRS / (2 * RATIO)]);
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) {
    u32 upper[PAIRS], lower[PAIRS];
    if constexpr (TURNED) {
#pragma unroll
      for (int i = 0; i < PAIRS; i += 2) {
        const int k = 8 * i + lane / 16 * 8 + lane % 8, vector = tile % 4 * 2 + lane / 8 % 2;
        load_turned(swizzled(stage + tile / 4 * 64 * 128, k, vector), upper[i], lower[i],
                    upper[i + 1], lower[i + 1]);
      }
    } else {
#pragma unroll
      for (int v = 0; v < 2; ++v) {
        const u32 at = swizzled(stage, (16 * tile + row) * DEPTH + chunk, vector_of(v));
        expand<B_FORMAT>(shared_vector(at), &upper[v * PAIRS / 2]);
        expand<B_FORMAT>(shared_vector(at + 8 * DEPTH * 128), &lower[v * PAIRS / 2]);
      }
    }
    add_tile(sums[tile], upper, lower, pairs, factors, chunk, tile);
  }
}
#endif

// ---- The sums of warps and blocks ---------------------------------------------------------------

__device__ __forceinline__ void store_result(float x, int m, int n, const Work& work,
                                             const Epilogue& with, const float* scale_a,
                                             const float* scale_b, output_t* c) {
  const long long index = (long long)m * work.c_m + (long long)n * work.c_n;
  if (SCALING == 1) x *= scale_a[0] * scale_b[0];
  if (SCALING == 2) x *= scale_a[m] * scale_b[n];
  c[index] = narrow(finished(x, with, index, n));
}

// Adds the sums of all warps of all blocks that share the tile, and stores the results.
__device__ __forceinline__ void finish_tile(const float (&sums)[TILES][PARTS][4], float* shared,
                                            int n, const Work& work, const Epilogue& with,
                                            const float* scale_a, const float* scale_b,
                                            output_t* c) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const u32 rank = SPLIT > 1 ? cluster_rank() : 0;
#pragma unroll
  for (int i = 0; i < TILES * PARTS * 4; ++i) {
    const int tile = i / 4 / PARTS, part = i / 4 % PARTS;
    const int row = tile * 16 + i / 2 % 2 * 8 + lane / 4, column = part * 8 + lane % 4 * 2 + i % 2;
    shared[(warp * WIDTH + column) * PITCH + row] = sums[tile][part][i % 4];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < work.m * ROWS; i += THREADS) {
    const int m = i / ROWS, row = i % ROWS;
    float* at = shared + m * PITCH + row;
    float x = at[0];
#pragma unroll
    for (int other = 1; other < WARPS; ++other) x += at[other * WIDTH * PITCH];
    if (SPLIT > 1) {
      at[0] = x;
    } else if (n + row < work.n) {
      store_result(x, m, n + row, work, with, scale_a, scale_b, c);
    }
  }
  if (SPLIT > 1) {
    cluster_sync();
    for (int i = rank * THREADS + threadIdx.x; i < work.m * ROWS; i += SPLIT * THREADS) {
      const int m = i / ROWS, row = i % ROWS;
      if (n + row >= work.n) continue;
      float x = 0.0f;
#pragma unroll
      for (int block = 0; block < SPLIT; ++block) {
        x += remote(shared_address(shared + m * PITCH + row), block);
      }
      store_result(x, m, n + row, work, with, scale_a, scale_b, c);
    }
    cluster_sync();  // The sums have been read: the next tile may replace them, or the block end.
  } else {
    __syncthreads();
  }
}

extern "C" __global__ void __cluster_dims__(SPLIT) __launch_bounds__(THREADS, 1)
    gemm(
#if DIRECT
        const char* a, const char* b,
#else
        const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
#endif
        output_t* c, const float* scale_a, const float* scale_b, const output_t* addend,
        const output_t* bias, const output_t* residual, float alpha, float beta, Work work) {
  extern __shared__ char memory[];
  const Epilogue with = {addend, bias, residual, alpha, beta};
  // The shuffle shows the compiler that all lanes have the same number.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  const int rank = SPLIT > 1 ? cluster_rank() : 0;
  const int tiles = (work.n + ROWS - 1) / ROWS, runs = (work.k + RUN - 1) / RUN;
  const int first = runs * rank / SPLIT + warp, end = runs * (rank + 1) / SPLIT;
  const int stride = gridDim.x / SPLIT;

#if DIRECT
  float* shared = (float*)memory;
  const Direct source = {a, b, work};
#else
  const u32 base = (shared_address(memory) + 1023) / 1024 * 1024;
  const u32 ring = base + warp * STAGES * STAGE_BYTES;
  float* shared = (float*)(memory + (base - shared_address(memory)) + WARPS * STAGES * STAGE_BYTES);
  const u32 full = shared_address(shared + WARPS * WIDTH * PITCH) + warp * STAGES * BARRIER_BYTES;
  const int lane = threadIdx.x % 32;
  if (lane == 0) {
    prefetch_map(&map_b);
    prefetch_map(&map_a);
    for (int stage = 0; stage < STAGES; ++stage) barrier_init(full + BARRIER_BYTES * stage, 1);
    barrier_init_fence();
  }
  __syncwarp();
  const int count = max(end - first + WARPS - 1, 0) / WARPS;
  const Cursor begin = {(int)blockIdx.x / SPLIT, first, count, 0};
  Cursor next = begin;
  if (AHEAD && lane == 0 && count > 0) {
    Cursor at = begin;
    for (int stage = 0; stage < STAGES && at.tile < tiles; ++stage, at.advance(stride)) {
      fetch_ahead(&map_b, at);
    }
  }
#endif
  let_next_kernel_start();
  wait_for_kernel_before();
#if !DIRECT
  if (lane == 0 && count > 0) {
    for (int stage = 0; stage < STAGES && next.tile < tiles; ++stage, next.advance(stride)) {
      fetch(ring + stage * STAGE_BYTES, full + BARRIER_BYTES * stage, &map_a, &map_b, next);
    }
  }
  int stage = 0;
  u32 parity = 0;
#endif

  for (int tile = blockIdx.x / SPLIT; tile < tiles; tile += stride) {
    float sums[TILES][PARTS][4] = {};
#if DIRECT
    source.add(sums, tile * ROWS, first, end, scale_a, scale_b);
#else
    for (Cursor at = {tile, first, count, 0}; at.at < count; ++at.at) {
      const int chunk = at.run() * DEPTH;
      const Factors factors(scale_a, scale_b, work, chunk, tile * ROWS);
      wait_for(full + BARRIER_BYTES * stage, parity);
#pragma unroll
      for (int i = 0; i < DEPTH; ++i) {
        add_chunk(sums, ring + stage * STAGE_BYTES, i, factors);
      }
      __syncwarp();  // All lanes have read the stage.
      if (lane == 0 && next.tile < tiles) {
        fetch(ring + stage * STAGE_BYTES, full + BARRIER_BYTES * stage, &map_a, &map_b, next);
        next.advance(stride);
      }
      if (++stage == STAGES) {
        stage = 0;
        parity ^= 1;
      }
    }
#endif
    finish_tile(sums, shared, tile * ROWS, work, with, scale_a, scale_b, c);
  }
}
