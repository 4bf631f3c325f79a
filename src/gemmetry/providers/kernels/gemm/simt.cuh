// The elements that the rungs without Hopper's instructions read and write one at a time.
//
// Macros given by the host: those of ptx.cuh.
#pragma once
#include "ptx.cuh"

// The value of an input; bf16 is the upper half of an f32.
__device__ __forceinline__ float widen_input(input_t x) {
#if IN_F16
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x));
  return value;
#else
  return __uint_as_float((u32)x << 16);
#endif
}
