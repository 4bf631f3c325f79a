// A failed attempt, kept as a lesson: it does not compile, because tiles are indexed like arrays.
//
// A tile's class decides where an element lies (swizzled, or spread over the registers of a warp),
// and offers functions for whole tiles. It has no operator() that returns one element.
constexpr int SIZE = 16;

struct Tile {
  float elements[SIZE * SIZE];

  // The element in row r and column i lies at another place than in an array.
  __device__ static int place(int r, int i) { return r * SIZE + (i ^ r); }

  // Fills the tile from SIZE rows of a matrix; what lies outside is zero.
  __device__ void load(const float* matrix, int first, int rows, int start, int columns) {
    for (int at = threadIdx.x; at < SIZE * SIZE; at += 32) {
      const int r = at / SIZE, i = at % SIZE;
      const bool inside = first + r < rows && start + i < columns;
      elements[place(r, i)] = inside ? matrix[(long long)(first + r) * columns + start + i] : 0.0f;
    }
  }
};

extern "C" __global__ void __launch_bounds__(32)
    matvec(const float* a, const float* b, float* c, int n, int k) {
  __shared__ Tile tile;
  const int first = blockIdx.x * SIZE, lane = threadIdx.x;
  float sum = 0.0f;
  for (int start = 0; start < k; start += SIZE) {
    tile.load(b, first, n, start, k);
    __syncwarp();
    for (int i = 0; i < SIZE && lane < SIZE; ++i) {
      sum += (start + i < k ? a[start + i] : 0.0f) * tile(lane, i);  // no such operator
    }
    __syncwarp();
  }
  if (lane < SIZE && first + lane < n) c[first + lane] = sum;
}
