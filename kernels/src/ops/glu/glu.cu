// Gated linear units of rows [gate | up]: y = f(gate) g(up); a thread per pair. Numbers are f32 or bf16, widened as they are
// read and rounded last. 12 bytes of memory per pair forward and 20 backward (half of it in bf16) bound them.
#include "activation.cuh"

// g and its derivative: the number itself, or with a clamped gate 1 + the number from -7 to 7.
__device__ __forceinline__ Activated upper(u32 kind, float x) {
    if (kind != CLAMPED) return {x, 1.0f};
    return {larger(-7.0f, smaller(7.0f, x)) + 1.0f, x < -7.0f || 7.0f < x ? 0.0f : 1.0f};
}

extern "C" __global__ void glu_forward(void* y, const void* x, u32 is_bf16, u64 n, u64 f, u32 kind) {
    for (u64 i = first(); i < n; i += stride()) {
        u64 gate = i / f * 2 * f + i % f;
        float value = activated(kind, number(x, is_bf16, gate)).value * upper(kind, number(x, is_bf16, gate + f)).value;
        set_number(y, is_bf16, i, value);
    }
}

extern "C" __global__ void glu_backward(void* dx, const void* dy, const void* x, u32 is_bf16, u64 n, u64 f, u32 kind) {
    for (u64 i = first(); i < n; i += stride()) {
        u64 gate = i / f * 2 * f + i % f;
        Activated of = activated(kind, number(x, is_bf16, gate));
        float d = number(dy, is_bf16, i);
        Activated up = upper(kind, number(x, is_bf16, gate + f));
        set_number(dx, is_bf16, gate, d * up.value * of.derivative);
        set_number(dx, is_bf16, gate + f, d * of.value * up.derivative);
    }
}
