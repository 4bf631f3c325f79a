// The instructions of sm_90a that the kernels of this folder use, one function each, and the types
// of their operands. Names and meanings: PTX ISA 8.0 and later.
//
// Shared memory is addressed by 32-bit numbers, as PTX does (window `shared`, valid in the whole
// cluster for the block's own memory).
//
// Macros given by the host: IN_F16 or IN_E4M3 (neither: bf16 inputs), OUT_F16 or OUT_F32 (neither:
// bf16 results), and BOUNDED_WAITS 1 for a build that ends a hanging launch with an error.
#pragma once

#ifndef OUT_F32
#define OUT_F32 0
#endif

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// ---- Elements -----------------------------------------------------------------------------------

#if IN_E4M3
typedef unsigned char input_t;
#else
typedef u16 input_t;  // the bits of bf16 or f16
#endif
#if OUT_F32
typedef float output_t;
#else
typedef u16 output_t;
#endif

// Rounds to the nearest number of the result's format, ties to even.
__device__ __forceinline__ output_t narrow(float x) {
#if OUT_F32
  return x;
#else
  u16 bits;
#if OUT_F16
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
#else
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
#endif
  return bits;
#endif
}

// Two results of 16 bits in one register, `low` in the lower half, which memory has first.
__device__ __forceinline__ u32 narrow_pair(float low, float high) {
  u32 bits;
#if OUT_F16
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
#else
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
#endif
  return bits;
}

__device__ __forceinline__ float widen(output_t x) {
#if OUT_F32
  return x;
#elif OUT_F16
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x));
  return value;
#else
  return __uint_as_float((u32)x << 16);
#endif
}

// ---- Threads and clusters -----------------------------------------------------------------------

__device__ __forceinline__ u32 shared_address(const void* pointer) {
  return (u32)__cvta_generic_to_shared(pointer);
}

// The rank of this block in its cluster.
__device__ __forceinline__ u32 cluster_rank() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// All threads of all blocks of the cluster wait for each other; what they wrote before is visible.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// `threads` threads of the block wait for each other at barrier `number` (0 is __syncthreads).
__device__ __forceinline__ void named_barrier(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// Waits until the kernel before this one on the stream is complete and what it wrote is visible, where
// the launch lets this one start earlier; returns at once otherwise.
__device__ __forceinline__ void wait_for_kernel_before() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Lets the kernel after this one start as soon as every block has executed this or ended, if its
// launch says that it waits for this one itself.
__device__ __forceinline__ void let_next_kernel_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Registers per thread of the warpgroup from here on; all of its warps must execute it.
template <int COUNT>
__device__ __forceinline__ void give_registers_back() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// ---- Barriers in shared memory (mbarrier) -------------------------------------------------------

// A phase of the barrier is over after `arrivals` arrivals and all bytes that they announced.
__device__ __forceinline__ void barrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

// Makes initialised barriers visible to the cluster and to the copy engine.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
}

__device__ __forceinline__ void arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives at the barrier of the same offset in block `rank` of the cluster. Relaxed: it orders no
// ordinary reads and writes, for the reads that it reports are those of matrix instructions, which
// are complete. With .release.cluster the compiler adds MEMBAR.ALL.GPU, which costs a loop that
// arrives once per stage much of its speed.
__device__ __forceinline__ void arrive_at(u32 barrier, u32 rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [remote];\n"
      "}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

// Arrives, and announces `bytes` that the copy engine will deliver.
__device__ __forceinline__ void arrive_expecting(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Arrives when all cp.async of this thread so far have written their shared memory.
__device__ __forceinline__ void copies_arrive(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Whether the phase of this parity is over; the hardware waits a moment before it answers no. In
// the scope of the cluster each answer would invalidate the L1 cache (CCTL.IVALL).
__device__ __forceinline__ bool phase_is_over(u32 barrier, u32 parity) {
  u32 over;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(over)
      : "r"(barrier), "r"(parity)
      : "memory");
  return over;
}

// Waits until the phase of this parity is over.
__device__ __forceinline__ void wait_for(u32 barrier, u32 parity) {
#if BOUNDED_WAITS
  const long long start = clock64();
  while (!phase_is_over(barrier, parity)) {
    if (clock64() - start > 4000000000ll) __trap();  // about two seconds
  }
#else
  while (!phase_is_over(barrier, parity)) {
  }
#endif
}

// ---- The copy engine (TMA) ----------------------------------------------------------------------

// A CUtensorMap: the address, sizes, strides, box and swizzle of a matrix.
struct __align__(64) TensorMap {
  char opaque[128];
};

__device__ __forceinline__ void prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// What the L2 cache does with the lines of a box: the hints that NVIDIA's CUTLASS passes
// (include/cute/arch/copy_sm90_desc.hpp, TMA::CacheHintSm90).
constexpr u64 KEEP_NORMALLY = 0x1000000000000000ull, EVICT_FIRST = 0x12F0000000000000ull,
              EVICT_LAST = 0x14F0000000000000ull;

// Copies the box at element (x, y), x along the rows, to shared memory; what lies outside the
// matrix becomes zero. `barrier` counts the bytes.
template <u64 HINT = KEEP_NORMALLY>
__device__ __forceinline__ void load_box(u32 target, const TensorMap* map, int x, int y,
                                         u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(target),
      "l"(map), "r"(x), "r"(y), "r"(barrier), "l"(HINT)
      : "memory");
}

// The same into the blocks of the cluster whose bits are set in `ranks`, at the same offset in
// each, and counted by the barrier of the same offset in each.
template <u64 HINT = KEEP_NORMALLY>
__device__ __forceinline__ void load_box_multicast(u32 target, const TensorMap* map, int x, int y,
                                                   u32 barrier, u16 ranks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(target),
      "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(ranks), "l"(HINT)
      : "memory");
}

// Copies a box of shared memory to the matrix; what lies outside the matrix is not written.
__device__ __forceinline__ void store_box(const TensorMap* map, int x, int y, u32 source) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
      "r"(x), "r"(y), "r"(source)
      : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// All stores of this thread but the latest PENDING have read their shared memory.
template <int PENDING>
__device__ __forceinline__ void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

// All stores of this thread are complete.
__device__ __forceinline__ void wait_stores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Makes ordinary stores of this thread to shared memory visible to the copy engine.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- Matrix instructions (wgmma) ----------------------------------------------------------------

// Matrix descriptor of a tile in the 128-byte swizzle whose rows (128 bytes) run along K: eight
// rows are 1024 bytes, and so is the distance to the next eight. `address` is that of the tile's
// first byte of the wanted K, all sizes count 16 bytes, 1 << 62 is this swizzle.
__device__ __forceinline__ u64 k_major(u32 address) {
  return (u64)((address & 0x3FFFF) >> 4) | 1ull << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}

// The same where rows run along M or N, 64 elements each: eight steps of K are 1024 bytes, and
// the next 64 elements of M or N begin `chunk_bytes` further on.
__device__ __forceinline__ u64 mn_major(u32 address, u32 chunk_bytes) {
  return (u64)((address & 0x3FFFF) >> 4) | (u64)(chunk_bytes >> 4) << 16 |
         (u64)(1024 >> 4) << 32 | 1ull << 62;
}

// Before the first wgmma, and whenever sums were touched by other instructions since the last.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Makes all wgmma of this warpgroup since the last commit one group.
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// All groups but the latest PENDING are complete.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// The lists of registers that a wgmma of 2 · COUNT columns needs, each an extension of the last.
#define REGISTERS_16 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define SUMS_16 \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), \
  "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), \
  "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define REGISTERS_32 REGISTERS_16 \
  ", " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SUMS_32 SUMS_16, \
  "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), \
  "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), \
  "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define REGISTERS_48 REGISTERS_32 \
  ", " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define SUMS_48 SUMS_32, \
  "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), \
  "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), \
  "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define REGISTERS_64 REGISTERS_48 \
  ", " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SUMS_64 SUMS_48, \
  "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), \
  "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), \
  "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define REGISTERS_80 REGISTERS_64 \
  ", " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define SUMS_80 SUMS_64, \
  "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), \
  "+f"(d[70]), "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), \
  "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
#define REGISTERS_88 REGISTERS_80 \
  ", " \
  "%80, %81, %82, %83, %84, %85, %86, %87"
#define SUMS_88 SUMS_80, \
  "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), \
  "+f"(d[86]), "+f"(d[87])
#define REGISTERS_96 REGISTERS_88 \
  ", " \
  "%88, %89, %90, %91, %92, %93, %94, %95"
#define SUMS_96 SUMS_88, \
  "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), \
  "+f"(d[94]), "+f"(d[95])
#define REGISTERS_104 REGISTERS_96 \
  ", " \
  "%96, %97, %98, %99, %100, %101, %102, %103"
#define SUMS_104 SUMS_96, \
  "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), \
  "+f"(d[102]), "+f"(d[103])
#define REGISTERS_112 REGISTERS_104 \
  ", " \
  "%104, %105, %106, %107, %108, %109, %110, %111"
#define SUMS_112 SUMS_104, \
  "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), \
  "+f"(d[110]), "+f"(d[111])
#define REGISTERS_128 REGISTERS_112 \
  ", " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, " \
  "%125, %126, %127"
#define SUMS_128 SUMS_112, \
  "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), \
  "+f"(d[118]), "+f"(d[119]), "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), \
  "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])

// wgmma(d, a, b, keep): d (+)= A @ B with A (64 × K) and B (K × N) by descriptors; `keep` 0 begins
// new sums. Thread t of the warpgroup holds, of every eight columns 8j …, two neighbours
// 2 · (t % 4) … in row t / 32 · 16 + t % 32 / 4 (d[4j], d[4j + 1]) and in the row 8 below (d[4j + 2],
// d[4j + 3]). Of 16-bit inputs K is 16 and the rows of either operand may run along M or N
// (TURNED_A, TURNED_B); of e4m3 K is 32 and both run along K. The number of sums chooses the function.
#if IN_E4M3
#define WGMMA_SHAPE(COLUMNS) "m64n" #COLUMNS "k32.f32.e4m3.e4m3 "
#define WGMMA_DIRECTIONS(ALONG_M, ALONG_N) ""
#else
#if IN_F16
#define WGMMA_SHAPE(COLUMNS) "m64n" #COLUMNS "k16.f32.f16.f16 "
#else
#define WGMMA_SHAPE(COLUMNS) "m64n" #COLUMNS "k16.f32.bf16.bf16 "
#endif
#define WGMMA_DIRECTIONS(ALONG_M, ALONG_N) ", " ALONG_M ", " ALONG_N
#endif

// COUNT sums are operands 0 … COUNT - 1; those of A, B, KEEP, ALONG_M and ALONG_N follow.
#define DEFINE_WGMMA(COLUMNS, COUNT, A, B, KEEP, ALONG_M, ALONG_N)                               \
  template <int TURNED_A = 0, int TURNED_B = 0>                                                  \
  __device__ __forceinline__ void wgmma(float(&d)[COUNT], u64 a, u64 b, int keep) {              \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " KEEP ", 0;\n"                               \
                 "wgmma.mma_async.sync.aligned." WGMMA_SHAPE(COLUMNS) "{" REGISTERS_##COUNT      \
                 "}, " A ", " B ", p, 1, 1" WGMMA_DIRECTIONS(ALONG_M, ALONG_N) ";\n}"            \
                 : SUMS_##COUNT                                                                  \
                 : "l"(a), "l"(b), "r"(keep), "n"(TURNED_A), "n"(TURNED_B));                   \
  }

DEFINE_WGMMA(32, 16, "%16", "%17", "%18", "%19", "%20")
DEFINE_WGMMA(64, 32, "%32", "%33", "%34", "%35", "%36")
DEFINE_WGMMA(96, 48, "%48", "%49", "%50", "%51", "%52")
DEFINE_WGMMA(128, 64, "%64", "%65", "%66", "%67", "%68")
DEFINE_WGMMA(160, 80, "%80", "%81", "%82", "%83", "%84")
DEFINE_WGMMA(176, 88, "%88", "%89", "%90", "%91", "%92")
DEFINE_WGMMA(192, 96, "%96", "%97", "%98", "%99", "%100")
DEFINE_WGMMA(208, 104, "%104", "%105", "%106", "%107", "%108")
DEFINE_WGMMA(224, 112, "%112", "%113", "%114", "%115", "%116")
DEFINE_WGMMA(256, 128, "%128", "%129", "%130", "%131", "%132")

// Keeps the compiler from moving reads of the sums before the wait that precedes it.
template <int COUNT>
__device__ __forceinline__ void sums_are_complete(float (&d)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Stores four 8 × 8 matrices of 16-bit elements, as wgmma's sums lie in registers: lane l gives the
// address of row l % 8 of matrix l / 8, or of column l % 8 where TRANSPOSED.
template <bool TRANSPOSED = false>
__device__ __forceinline__ void store_matrices(u32 address, u32 r0, u32 r1, u32 r2, u32 r3) {
  if (TRANSPOSED) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     address),
                 "r"(r0), "r"(r1), "r"(r2), "r"(r3)
                 : "memory");
  } else {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
                 "r"(r0), "r"(r1), "r"(r2), "r"(r3)
                 : "memory");
  }
}
