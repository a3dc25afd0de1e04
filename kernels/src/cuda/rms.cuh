// RMS norm of a row by its 16 threads, for rms_norm and qk_norm; the operations are those of ops/rms_norm/cpu.rs.
#pragma once
#include "millrace.cuh"

// 1 / sqrt(mean(x^2) + eps).
__device__ __forceinline__ float rms_inverse(const float* x, u64 d, u32 lane, bool has_row, float eps) {
    float squares = 0.0f;
    for (u64 c = lane; c < padded(d, has_row); c += 16) {
        float value = part(x, c, d, 0.0f);
        squares = fmaf(value, value, squares);
    }
    return 1.0f / sqrtf(row_sum(squares) / (float)d + eps);
}

// The row times its inverse and w; y may be x.
__device__ __forceinline__ void rms_normalise(float* y, const float* x, const float* w, u64 d, u32 lane, bool has_row,
                                              float inverse) {
    if (!has_row) return;
    for (u64 c = lane; c < d; c += 16) y[c] = x[c] * inverse * w[c];
}

// The input's gradient plus `more`, if there is any; dx may be dy.
__device__ __forceinline__ void rms_gradient(float* dx, const float* dy, const float* x, const float* w,
                                             const float* more, u64 d, u32 lane, bool has_row, float inverse) {
    float dot = 0.0f;
    for (u64 c = lane; c < padded(d, has_row); c += 16) {
        float g = part(dy, c, d, 0.0f) * part(w, c, d, 0.0f);
        dot = fmaf(g, part(x, c, d, 0.0f) * inverse, dot);
    }
    dot = -(row_sum(dot) / (float)d);
    if (!has_row) return;
    for (u64 c = lane; c < d; c += 16) {
        float g = dy[c] * w[c];
        float value = fmaf(x[c] * inverse, dot, g) * inverse;
        dx[c] = more ? value + more[c] : value;
    }
}
