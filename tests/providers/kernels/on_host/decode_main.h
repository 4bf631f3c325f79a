// Runs a case of decode.cu on small integers and compares every element; memory around the operands
// and C holds NaN, which would reach the results.
#pragma once
#include "emulator.h"

struct Case {
  int m, n, k, a_m, a_k, b_n, b_k, c_m, c_n, a_size, b_size, blocks, threads;
};

inline float read(const char* memory, long index, int size) {
  return size == 1 ? from_e4m3((unsigned char)memory[index]) : widen(((const u16*)memory)[index]);
}

inline int run(const Case& with, void (*call)(const char*, const char*, output_t*)) {
  constexpr int GUARD = 1024;  // bytes before and after
  const auto fill = [](long elements, int size) {
    char* memory = (char*)aligned_alloc(256, (elements * size + 2 * GUARD + 255) / 256 * 256) + GUARD;
    memset(memory - GUARD, 0xff, elements * size + 2 * GUARD);
    for (long i = 0; i < elements; ++i) {
      const int value = rand() % 5 - 2;
      static const unsigned char codes[] = {0xc0, 0xb8, 0x00, 0x38, 0x40};  // -2 … 2 in e4m3
      if (size == 1) {
        memory[i] = codes[value + 2];
      } else {
        ((u16*)memory)[i] = narrow(value);
      }
    }
    return memory;
  };
  const long results = (long)with.m * with.n;
  const char* a = fill((long)with.m * with.k, with.a_size);
  const char* b = fill((long)with.n * with.k, with.b_size);
  output_t* c = (output_t*)fill(results, 2);
  memset(c, 0xff, results * 2);
  gridDim.x = with.blocks;
  body = [&] { call(a, b, c); };
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) run_block(with.threads);
  int wrong = 0;
  for (long i = 0; i < with.m; ++i) {
    for (long j = 0; j < with.n; ++j) {
      float sum = 0;
      for (long x = 0; x < with.k; ++x) {
        sum += read(a, i * with.a_m + x * with.a_k, with.a_size) *
               read(b, j * with.b_n + x * with.b_k, with.b_size);
      }
      wrong += c[i * with.c_m + j * with.c_n] != narrow(sum);
    }
  }
  for (long i = 0; i < GUARD / 2; ++i) wrong += c[-1 - i] != 0xffff || c[results + i] != 0xffff;
  return wrong;
}
