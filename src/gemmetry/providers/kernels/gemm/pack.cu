// Copies a matrix whose rows are not multiples of 16 bytes into rows that are, so that the copy engine
// can fetch boxes of it. What is between the end of a row and the next stays as it is: tensor maps
// end where rows do.
//
// Macro given by the host: ELEMENT_BYTES, 1 or 2.

#if ELEMENT_BYTES == 1
typedef unsigned char element_t;
#else
typedef unsigned short element_t;
#endif

extern "C" __global__ void pack(const element_t* from, element_t* to, int rows, int columns,
                                int padded_columns) {
  for (int row = blockIdx.y; row < rows; row += gridDim.y) {
    const element_t* source = from + (long long)row * columns;
    element_t* target = to + (long long)row * padded_columns;
    for (int x = blockIdx.x * blockDim.x + threadIdx.x; x < columns; x += gridDim.x * blockDim.x) {
      target[x] = source[x];
    }
  }
}
