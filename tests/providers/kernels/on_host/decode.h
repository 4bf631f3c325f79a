// The instructions of kernels/gemm/decode.cu on the host, for bf16 products and one block a tile:
// boxes of the copy engine in the 128-byte swizzle, barriers that count their bytes, and the rest.
#pragma once
#include <map>

#include "ptx.cuh"

#define __grid_constant__
#define __cluster_dims__(count)

constexpr u64 EVICT_FIRST = 0, EVICT_LAST = 0;

inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
template <class T>
inline T __shfl_sync(unsigned, T value, int) {
  return value;  // of a number that all lanes have
}
inline u32 cluster_rank() { return 0; }
inline void cluster_sync() {}
inline void let_next_kernel_start() {}
inline void wait_for_kernel_before() {}
inline float widen(output_t bits) { return __uint_as_float((u32)bits << 16); }
struct Epilogue {
  const output_t *addend, *bias, *residual;
  float alpha, beta;
};
inline float finished(float sum, const Epilogue&, long long, int) { return sum; }

// ---- Barriers and boxes -------------------------------------------------------------------------

struct Barrier {
  u32 arrivals, left, phase = 0;
  long bytes = 0;
  Copies copies;
  void look() {
    if (left == 0 && bytes == 0) {
      left = arrivals;
      phase ^= 1;
    }
  }
};
static std::map<u32, Barrier> barriers;

inline void barrier_init(u32 address, u32 arrivals) {
  barriers[address] = Barrier{arrivals, arrivals};
}
inline void barrier_init_fence() {}
inline void arrive_expecting(u32 address, u32 bytes) {
  Barrier& barrier = barriers.at(address);
  barrier.bytes += bytes;
  --barrier.left;
  barrier.look();
}
inline void wait_for(u32 address, u32 parity) {
  Barrier& barrier = barriers.at(address);
  while (barrier.phase == parity) {
    Copies copies;
    std::swap(copies, barrier.copies);
    for (auto& copy : copies) copy();
    if (barrier.phase == parity) spin();
  }
}

struct TensorMap {
  const char* memory;
  int axes, item;           // number of axes, and bytes of an element
  long sizes[3], steps[3];  // elements along each axis, and bytes between them
  int box[3];
};
inline void prefetch_map(const TensorMap*) {}
inline void prefetch_box(const TensorMap*, int, int, int = 0) {}

// The swizzle exchanges the 16-byte vectors of a line of 128 bytes by the line's number.
inline void copy_box(u32 target, const TensorMap& map, int x, int y, int z, u32 address) {
  if (target % 1024) {
    printf("misaligned box\n");
    exit(1);
  }
  auto copy = [=] {
    const int depth = map.axes == 3 ? map.box[2] : 1, row_bytes = map.box[0] * map.item;
    for (int k = 0; k < depth; ++k) {
      for (int j = 0; j < map.box[1]; ++j) {
        for (int i = 0; i < map.box[0]; ++i) {
          const int at[3] = {x + i, y + j, z + k};
          const u32 offset = (k * map.box[1] + j) * row_bytes + i * map.item;
          char* to = host_address(target + (offset ^ (offset >> 7 & 7) << 4));
          bool inside = true;
          long from = 0;
          for (int axis = 0; axis < map.axes; ++axis) {
            inside &= at[axis] < map.sizes[axis];
            from += at[axis] * map.steps[axis];
          }
          for (int b = 0; b < map.item; ++b) to[b] = inside ? map.memory[from + b] : 0;
        }
      }
    }
    Barrier& barrier = barriers.at(address);
    barrier.bytes -= (long)row_bytes * map.box[1] * depth;
    barrier.look();
  };
  if (copies_early) {
    copy();
  } else {
    barriers.at(address).copies.push_back(copy);
  }
}
template <u64 HINT>
inline void load_box(u32 target, const TensorMap* map, int x, int y, u32 barrier) {
  copy_box(target, *map, x, y, 0, barrier);
}
template <u64 HINT>
inline void load_box(u32 target, const TensorMap* map, int x, int y, int z, u32 barrier) {
  copy_box(target, *map, x, y, z, barrier);
}

// ---- Elements -----------------------------------------------------------------------------------

inline float from_e4m3(u32 bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const float size = exponent ? ldexpf(8 + mantissa, exponent - 10) : ldexpf(mantissa, -9);
  return bits & 0x80 ? -size : size;
}
inline u32 widen_pair(u16 bits) { return narrow_pair(from_e4m3(bits & 0xff), from_e4m3(bits >> 8)); }

inline void multiply(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  const u32 a[4] = {a0, a1, a2, a3};
  multiply(d, a, b0, b1);
}
inline uint4 load_once(const void* from) {
  if ((u64)from % 16) {
    printf("misaligned load\n");
    exit(1);
  }
  return *(const uint4*)from;
}
inline u32 shared_word(u32 address) { return *(u32*)host_address(address); }
inline uint4 shared_vector(u32 address) { return *(uint4*)host_address(address); }
inline void load_turned(u32 address, u32& r0, u32& r1, u32& r2, u32& r3) {
  static u32 rows[32][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  rows[warp][lane] = address;
  __syncwarp();
  u32* const to[4] = {&r0, &r1, &r2, &r3};
  for (int i = 0; i < 4; ++i) {
    u32 found = 0;
    for (int j = 0; j < 2; ++j) {
      const char* row = host_address(rows[warp][8 * i + lane % 4 * 2 + j]);
      found |= (u32) * (const u16*)(row + lane / 4 * 2) << 16 * j;
    }
    *to[i] = found;
  }
  __syncwarp();
}
inline float remote(u32 address, int) { return *(float*)host_address(address); }
