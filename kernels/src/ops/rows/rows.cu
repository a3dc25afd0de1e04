// Copies of runs, and operations of one rounding per element; memory bounds all of them.
#include "millrace.cuh"

// Run i: `run` elements from from_stride i on, to to_stride i on.
template <typename T>
__device__ __forceinline__ void copy_runs(T* to, const T* from, u64 count, u64 run, u64 from_stride, u64 to_stride) {
    for (u64 i = first(); i < count * run; i += stride()) {
        u64 at = i / run, within = i % run;
        to[at * to_stride + within] = from[at * from_stride + within];
    }
}

extern "C" __global__ void rows_copy_words(u32* to, const u32* from, u64 count, u64 run, u64 from_stride,
                                           u64 to_stride) {
    copy_runs(to, from, count, run, from_stride, to_stride);
}

extern "C" __global__ void rows_copy_halves(u16* to, const u16* from, u64 count, u64 run, u64 from_stride,
                                            u64 to_stride) {
    copy_runs(to, from, count, run, from_stride, to_stride);
}

extern "C" __global__ void rows_copy_bytes(u8* to, const u8* from, u64 count, u64 run, u64 from_stride, u64 to_stride) {
    copy_runs(to, from, count, run, from_stride, to_stride);
}

extern "C" __global__ void rows_add(float* x, const float* y, u64 n) {
    for (u64 i = first(); i < n; i += stride()) x[i] = x[i] + y[i];
}

extern "C" __global__ void rows_shift(float* x, u64 n, float value) {
    for (u64 i = first(); i < n; i += stride()) x[i] = x[i] + value;
}

extern "C" __global__ void rows_scale(float* x, u64 n, float factor) {
    for (u64 i = first(); i < n; i += stride()) x[i] = x[i] * factor;
}

// in f64, rounded once
extern "C" __global__ void rows_logistic(float* x, u64 n) {
    for (u64 i = first(); i < n; i += stride()) x[i] = (float)(1.0 / (1.0 + exp(-(double)x[i])));
}

extern "C" __global__ void rows_logistic_backward(float* dx, const float* s, u64 n) {
    for (u64 i = first(); i < n; i += stride()) dx[i] = dx[i] * s[i] * (1.0f - s[i]);
}

extern "C" __global__ void rows_fill(float* x, u64 n, float value) {
    for (u64 i = first(); i < n; i += stride()) x[i] = value;
}

// out[r, c] = x[r, c] by[r]
extern "C" __global__ void rows_scaled(float* out, const float* x, const float* by, u64 rows, u64 d) {
    for (u64 i = first(); i < rows * d; i += stride()) out[i] = x[i] * by[i / d];
}

// out[r] = the sum over c of a[r, c] b[r, c], in order in f64, rounded once; a thread per row. It starts from -0.0, as
// the CPU's sums of f64 do.
extern "C" __global__ void rows_dot(float* out, const float* a, const float* b, u64 rows, u64 d) {
    for (u64 r = first(); r < rows; r += stride()) {
        double sum = -0.0;
        for (u64 c = 0; c < d; c++) sum = __dadd_rn(sum, __dmul_rn((double)a[r * d + c], (double)b[r * d + c]));
        out[r] = (float)sum;
    }
}

// out[g, c] = the chain from 0 over the rows of group g; a thread per sum.
extern "C" __global__ void rows_sum_groups(float* out, const float* x, u64 groups, u64 group, u64 d) {
    for (u64 i = first(); i < groups * d; i += stride()) {
        const float* from = x + i / d * group * d + i % d;
        float sum = 0.0f;
        for (u64 r = 0; r < group; r++) sum = sum + from[r * d];
        out[i] = sum;
    }
}

// out[0] = the largest of x and out[0], which starts as 0: bits of floats from 0 on are ordered as the floats are.
extern "C" __global__ void rows_largest(u32* out, const float* x, u64 n) {
    for (u64 i = first(); i < n; i += stride())
        if (x[i] > 0.0f) atomicMax(out, __float_as_uint(x[i]));
}

// left[0] = the elements from the first that is not finite to the end, 0 without one.
extern "C" __global__ void rows_not_finite(u64* left, const float* x, u64 n) {
    for (u64 i = first(); i < n; i += stride())
        if ((__float_as_uint(x[i]) & 0x7f800000u) == 0x7f800000u) atomicMax(left, n - i);
}

// words[1] = the bits of the element that rows_not_finite found, if there is one; one thread.
extern "C" __global__ void rows_found(u64* words, const float* x, u64 n) {
    if (first() == 0 && words[0] > 0) words[1] = __float_as_uint(x[n - words[0]]);
}
