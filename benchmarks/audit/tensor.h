// What the release's kernels use of torch (a pointer with sizes), so that a kernel compiles in a
// third of the time and without torch; and a door through which ctypes calls them. Found as
// <torch/extension.h> and under torch's other names by kernels that are compiled with it.
#pragma once
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace c10 {
enum class ScalarType : int { Half = 2, Float = 4 };
enum class DeviceType { CUDA };
using Half = __half;

struct TensorOptions {
    ScalarType type = ScalarType::Float;
    TensorOptions dtype(ScalarType other) const { return {other}; }
    TensorOptions device(DeviceType) const { return *this; }
    ScalarType dtype() const { return type; }
};
inline std::ostream& operator<<(std::ostream& out, TensorOptions one) { return out << int(one.type); }

struct Tensor {
    std::shared_ptr<void> memory;
    std::vector<int64_t> shape;
    ScalarType type = ScalarType::Half;

    int64_t size(int64_t axis) const { return shape[axis]; }
    const std::vector<int64_t>& sizes() const { return shape; }
    int64_t dim() const { return int64_t(shape.size()); }
    int64_t numel() const {
        int64_t count = 1;
        for (int64_t extent : shape) count *= extent;
        return count;
    }
    ScalarType dtype() const { return type; }
    ScalarType scalar_type() const { return type; }
    TensorOptions options() const { return {type}; }
    DeviceType device() const { return DeviceType::CUDA; }
    bool is_cuda() const { return true; }
    bool is_contiguous() const { return true; }
    void* data_ptr() const { return memory.get(); }
    template <typename T> T* data_ptr() const { return static_cast<T*>(memory.get()); }
};

// Memory that a kernel allocates is used again by its next call, as torch's allocator does.
inline Tensor empty(std::vector<int64_t> shape, TensorOptions options) {
    static std::multimap<size_t, void*> free_blocks;
    Tensor made{nullptr, shape, options.type};
    size_t bytes = made.numel() * (options.type == ScalarType::Half ? 2 : 4);
    void* block = nullptr;
    if (auto found = free_blocks.find(bytes); found != free_blocks.end()) {
        block = found->second;
        free_blocks.erase(found);
    } else if (cudaMalloc(&block, bytes) != cudaSuccess) {
        throw std::runtime_error("no memory for a workspace");
    }
    made.memory = {block, [bytes](void* freed) { free_blocks.emplace(bytes, freed); }};
    return made;
}

struct CurrentStream {
    cudaStream_t handle;
    cudaStream_t stream() const { return handle; }
    operator cudaStream_t() const { return handle; }
};
}  // namespace c10

inline cudaStream_t current_stream = nullptr;  // torch's, at the time of the call
namespace c10::cuda {
inline CurrentStream getCurrentCUDAStream(int = 0) { return {current_stream}; }
}  // namespace c10::cuda
namespace at {
using namespace c10;
namespace cuda { using c10::cuda::getCurrentCUDAStream; }
}  // namespace at
namespace torch {
using namespace c10;
constexpr ScalarType kHalf = ScalarType::Half, kFloat16 = kHalf;
constexpr ScalarType kFloat = ScalarType::Float, kFloat32 = kFloat;
constexpr DeviceType kCUDA = DeviceType::CUDA;
}  // namespace torch

#if CUDART_VERSION >= 13000
// The release was written for CUDA 12, where these two take a device's number.
inline cudaError_t cudaMemPrefetchAsync(const void* at, size_t bytes, int device,
                                        cudaStream_t stream = nullptr) {
    cudaMemLocation place{cudaMemLocationTypeDevice, device};
    return cudaMemPrefetchAsync(at, bytes, place, 0, stream);
}
inline cudaError_t cudaMemAdvise(const void* at, size_t bytes, cudaMemoryAdvise advice,
                                 int device) {
    return cudaMemAdvise(at, bytes, advice, cudaMemLocation{cudaMemLocationTypeDevice, device});
}
#endif

#define TORCH_CHECK(condition, ...) \
    do { if (!(condition)) throw std::runtime_error("TORCH_CHECK(" #condition ")"); } while (0)
