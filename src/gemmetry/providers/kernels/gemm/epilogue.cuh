// What follows the product of two matrices, element by element. Macros given by the host: ALPHA and
// ADDEND (1: alpha is not 1, beta is not 0), and EPILOGUE, the steps as decimal digits.
#pragma once
#include "ptx.cuh"

// Null where the operation has none.
struct Epilogue {
  const output_t *addend, *bias, *residual;
  float alpha, beta;
};

// STEPS are decimal digits in order: 1 bias, 2 relu, 3 gelu, 4 residual. `index` counts in C, `line`
// is the element's place in the bias.
template <int STEPS>
__device__ __forceinline__ float finish(float x, const Epilogue& with, long long index, int line) {
  if constexpr (STEPS >= 10) x = finish<STEPS / 10>(x, with, index, line);
  constexpr int LAST = STEPS % 10;
  if constexpr (LAST == 1) x += widen(with.bias[line]);
  if constexpr (LAST == 2) x = x < 0.0f ? 0.0f : x;
  if constexpr (LAST == 3) x = 0.5f * x * (1.0f + erff(x * 0.70710678f));
  if constexpr (LAST == 4) x += widen(with.residual[index]);
  return x;
}

constexpr bool HAS_EPILOGUE = ALPHA || ADDEND || EPILOGUE;

// epilogue(alpha · sum + beta · addend); `index` and `line` as above.
__device__ __forceinline__ float finished(float sum, const Epilogue& with, long long index, int line) {
  float x = ALPHA ? with.alpha * sum : sum;
  if (ADDEND) x += with.beta * widen(with.addend[index]);
  if constexpr (EPILOGUE != 0) x = finish<EPILOGUE>(x, with, index, line);
  return x;
}
