// Gated linear units of rows [gate | up]: y = f(gate) up; a thread per pair. Numbers are f32 or bf16, widened as they are
// read and rounded last. 12 bytes of memory per pair forward and 20 backward (half of it in bf16) bound them.
#include "activation.cuh"

extern "C" __global__ void glu_forward(void* y, const void* x, u32 is_bf16, u64 n, u64 f, u32 kind) {
    for (u64 i = first(); i < n; i += stride()) {
        u64 gate = i / f * 2 * f + i % f;
        float value = activated(kind, number(x, is_bf16, gate)).value * number(x, is_bf16, gate + f);
        set_number(y, is_bf16, i, value);
    }
}

extern "C" __global__ void glu_backward(void* dx, const void* dy, const void* x, u32 is_bf16, u64 n, u64 f, u32 kind) {
    for (u64 i = first(); i < n; i += stride()) {
        u64 gate = i / f * 2 * f + i % f;
        Activated of = activated(kind, number(x, is_bf16, gate));
        float d = number(dy, is_bf16, i);
        set_number(dx, is_bf16, gate, d * number(x, is_bf16, gate + f) * of.derivative);
        set_number(dx, is_bf16, gate + f, d * of.value);
    }
}
