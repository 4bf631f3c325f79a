// Compiled behind the kernel's file. Launches on the default stream, which is what most of the
// release's kernels do, go to torch's current stream: what is judged is their work, and not this
// habit. Streams of their own stay as they are. The linker's --wrap leads here.
#pragma once
#define TO_CURRENT(stream) ((stream) == nullptr ? current_stream : (stream))

static bool is_capturing() {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(current_stream, &status);
    return status != cudaStreamCaptureStatusNone;
}

extern "C" {
// <<<>>> calls this one since CUDA 13, and the next one before.
cudaError_t __real___cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);
cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                      size_t bytes, cudaStream_t stream) {
    return __real___cudaLaunchKernel(kernel, grid, block, arguments, bytes, TO_CURRENT(stream));
}
cudaError_t __real_cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t);
cudaError_t __wrap_cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                                    size_t bytes, cudaStream_t stream) {
    return __real_cudaLaunchKernel(kernel, grid, block, arguments, bytes, TO_CURRENT(stream));
}
cudaError_t __real_cudaLaunchCooperativeKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t);
cudaError_t __wrap_cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block,
                                               void** arguments, size_t bytes, cudaStream_t stream) {
    return __real_cudaLaunchCooperativeKernel(kernel, grid, block, arguments, bytes,
                                              TO_CURRENT(stream));
}
cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**);
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                       void** arguments) {
    cudaLaunchConfig_t changed = *config;
    changed.stream = TO_CURRENT(config->stream);
    return __real_cudaLaunchKernelExC(&changed, kernel, arguments);
}
cudaError_t __real_cudaMemsetAsync(void*, int, size_t, cudaStream_t);
cudaError_t __wrap_cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
    return __real_cudaMemsetAsync(to, value, bytes, TO_CURRENT(stream));
}
cudaError_t __real_cudaEventRecord(cudaEvent_t, cudaStream_t);
cudaError_t __wrap_cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return __real_cudaEventRecord(event, TO_CURRENT(stream));
}
cudaError_t __real_cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
cudaError_t __wrap_cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    return __real_cudaGraphLaunch(graph, TO_CURRENT(stream));
}
cudaError_t __real_cudaStreamSynchronize(cudaStream_t);
cudaError_t __wrap_cudaStreamSynchronize(cudaStream_t stream) {
    return __real_cudaStreamSynchronize(TO_CURRENT(stream));
}
// A call that waits for the device at its end could not be captured into a graph, which times what
// the device does; a graph has its launches in order.
cudaError_t __real_cudaDeviceSynchronize();
cudaError_t __wrap_cudaDeviceSynchronize() {
    return is_capturing() ? cudaSuccess : __real_cudaDeviceSynchronize();
}
// CUTLASS allocates its workspace also where that has no bytes.
cudaError_t __real_cudaMalloc(void**, size_t);
cudaError_t __wrap_cudaMalloc(void** to, size_t bytes) {
    if (bytes != 0) return __real_cudaMalloc(to, bytes);
    *to = nullptr;
    return cudaSuccess;
}
cudaError_t __real_cudaFree(void*);
cudaError_t __wrap_cudaFree(void* block) {
    return block == nullptr ? cudaSuccess : __real_cudaFree(block);
}

// 0, or 1 with the reason in `reason`, which has 256 bytes. The only name that a library exports:
// kernels of one name in several libraries would share their static variables otherwise.
__attribute__((visibility("default"))) int launch(void* a, void* b, void* c, int64_t m, int64_t n, int64_t k, cudaStream_t stream,
           char* reason) {
    auto borrowed = [](void* block, int64_t rows, int64_t columns) {
        return torch::Tensor{{block, [](void*) {}}, {rows, columns}};
    };
    current_stream = stream;
    try {
        auto b_either = borrowed(b, k, n);  // of its two forms of B, a kernel reads one
        cuda_l2_h100_fp32(borrowed(a, m, k), b_either, b_either, borrowed(c, m, n));
    } catch (const std::exception& error) {
        std::snprintf(reason, 256, "%s", error.what());
        return 1;
    }
    return 0;
}
}
