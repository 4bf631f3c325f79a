// The parts of kernels/gemm/ptx.cuh that the rungs without Hopper's instructions use, and the
// instructions of sm_80 of r04_mma.cu, on the host. Inputs and results are bf16.
#pragma once
#include "emulator.h"

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef u16 input_t;
typedef u16 output_t;

inline output_t narrow(float x) {
  u32 bits;
  memcpy(&bits, &x, 4);
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline u32 narrow_pair(float low, float high) { return narrow(low) | (u32)narrow(high) << 16; }

// Shared memory is addressed by the lower half of an address; the upper half is remembered.
static u64 upper_half;
inline u32 shared_address(const void* pointer) {
  upper_half = (u64)pointer & ~0xffffffffull;
  return (u32)(u64)pointer;
}
inline char* host_address(u32 address) { return (char*)(upper_half | address); }

// Copies happen as late as the waits allow, or at once.
inline void copy_async(u32 target, const void* source, int bytes) {
  if ((u64)source % 16 || target % 16) {
    printf("misaligned copy\n");
    exit(1);
  }
  auto copy = [=] {
    char vector[16] = {};
    memcpy(vector, source, bytes);
    memcpy(host_address(target), vector, 16);
  };
  if (copies_early) {
    copy();
  } else {
    fibers[running].open.push_back(copy);
  }
}
inline void commit_copies() {
  fibers[running].groups.push_back(std::move(fibers[running].open));
  fibers[running].open.clear();
}
template <int PENDING>
inline void wait_copies() {
  auto& groups = fibers[running].groups;
  for (; (int)groups.size() > PENDING; groups.pop_front()) {
    for (auto& copy : groups.front()) copy();
  }
}
inline void store_vector(u32 target, const u32 (&words)[4]) {
  memcpy(host_address(target), words, 16);
}

static long bank_conflicts;
inline void load_matrices(u32 (&r)[4], u32 address) {
  static u32 rows[32][32];  // addresses by warp and lane
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  rows[warp][lane] = address;
  __syncwarp();
  for (int i = 0; i < 4; ++i) {
    // Eight rows of 16 bytes are read at once: they have to lie in different groups of banks.
    u32 groups = 0;
    for (int j = 0; j < 8; ++j) groups |= 1u << rows[warp][8 * i + j] / 16 % 8;
    bank_conflicts += lane == 0 && groups != 0xff;
    memcpy(&r[i], host_address(rows[warp][8 * i + lane / 4]) + lane % 4 * 4, 4);
  }
  __syncwarp();
}

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
inline void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  static u32 left[32][32][4], right[32][32][2];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  memcpy(left[warp][lane], a, 16);
  right[warp][lane][0] = b0;
  right[warp][lane][1] = b1;
  __syncwarp();
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 16; ++k) {
      const u32 x = left[warp][row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2] >> k % 2 * 16;
      const u32 y = right[warp][column * 4 + k % 8 / 2][k / 8] >> k % 2 * 16;
      d[i] += __uint_as_float(x << 16) * __uint_as_float(y << 16);
    }
  }
  __syncwarp();
}
