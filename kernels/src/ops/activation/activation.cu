// Activations of x + bias and their gradients, a thread per element: 8 or 12 bytes of memory each bound them.
#include "activation.cuh"

__device__ __forceinline__ float shifted(const float* x, const float* bias, u64 i, u64 d) {
    return bias ? x[i] + bias[i % d] : x[i];
}

extern "C" __global__ void activation_forward(float* y, const float* x, const float* bias, u64 n, u64 d, u32 kind) {
    for (u64 i = first(); i < n; i += stride()) y[i] = activated(kind, shifted(x, bias, i, d)).value;
}

extern "C" __global__ void activation_backward(float* dx, const float* dy, const float* x, const float* bias, u64 n,
                                               u64 d, u32 kind) {
    for (u64 i = first(); i < n; i += stride()) dx[i] = dy[i] * activated(kind, shifted(x, bias, i, d)).derivative;
}
