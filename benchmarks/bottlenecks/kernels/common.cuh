// What the kernels share. All of them have the same four parameters, so that one driver launches
// them: `in` and `out` in global memory, `steps` (how long the kernel works) and `size` (of `in`,
// in the unit that the kernel's comment names).
//
// Arithmetic is exact: unsigned integers wrap, and floats hold integers below 2^24, so that the
// host's formulas (host_formulas.py) give the same bits.

__device__ inline unsigned lane() { return threadIdx.x % 32; }

__device__ inline unsigned thread_of_grid() { return blockIdx.x * blockDim.x + threadIdx.x; }

// Where the compiler cannot know its value: otherwise it would fold several steps of next() into one.
__constant__ unsigned factor_of_next = 1664525u;

// A generator's step (Numerical Recipes): one integer multiply-add that needs the one before it.
__device__ inline unsigned next(unsigned value) { return value * factor_of_next + 1013904223u; }

template <int STEPS>
__device__ inline unsigned after(unsigned value) {
#pragma unroll
  for (int step = 0; step < STEPS; ++step) value = next(value);
  return value;
}

// Four multiply-adds and two integer operations, none of which needs another one of the same step.
// FP32 takes 4 of 6 issue slots; the integer pipe, at half rate, is busy for 4 of 6 cycles as well.
struct Mixed {
  float sums[4];
  unsigned gray;

  __device__ Mixed(unsigned seed) : sums{0, 1, 2, 3}, gray(seed) {}

  __device__ void step(float factor, float addend) {
#pragma unroll
    for (float& sum : sums) sum = fmaf(sum, factor, addend);
    gray ^= gray >> 1;
  }

  __device__ unsigned result() const {
    return (unsigned)(sums[0] + sums[1] + sums[2] + sums[3]) + gray;
  }
};
