// What kernels share: sizes, loops over elements, bf16, the CPU backend's sums and exponential.
//
// Every operation is one correctly rounded IEEE operation, as in kernels/src/cpu: the compiler contracts nothing
// (--fmad=false), and a fused multiply-add is written fmaf. So the bits are the CPU's.
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef unsigned char u8;
typedef long long i64;

// Index of the thread in the grid, and the number of threads: for (u64 i = first(); i < n; i += stride()).
__device__ __forceinline__ u64 first() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ u64 stride() { return (u64)gridDim.x * blockDim.x; }

// bf16 is the upper half of an f32.
__device__ __forceinline__ float widen(u16 x) { return __uint_as_float((u32)x << 16); }

// bf16 nearest to x, ties to even; subnormal results are 0, NaN stays one (kernels/src/cpu/bf16.rs).
__device__ __forceinline__ u16 to_bf16(float x) {
    u32 bits = __float_as_uint(x), size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return (u16)((bits | 0x00400000u) >> 16);
    if (size < 0x00800000u) return (u16)((bits & 0x80000000u) >> 16);
    return (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// IEEE half nearest to x, ties to even, with subnormals; infinite from 65520, NaN stays one.
__device__ __forceinline__ u16 to_f16(float x) {
    u32 bits = __float_as_uint(x), size = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
    if (size > 0x7f800000u) return (u16)(sign | 0x7e00u);
    if (size >= 0x477ff000u) return (u16)(sign | 0x7c00u);
    // below 2^-14 a multiple of 2^-24, the last place of 0.5
    if (size < 0x38800000u) return (u16)(sign | (__float_as_uint(__uint_as_float(size) + 0.5f) - 0x3f000000u));
    return (u16)(sign | ((size + 0xfffu + (size >> 13 & 1u)) - 0x38000000u) >> 13);
}

// x[i] of f32 or bf16.
__device__ __forceinline__ float number(const void* x, u32 is_bf16, u64 i) {
    return is_bf16 ? widen(((const u16*)x)[i]) : ((const float*)x)[i];
}

// x[i] = value, rounded to bf16 if that is the type.
__device__ __forceinline__ void set_number(void* x, u32 is_bf16, u64 i, float value) {
    if (is_bf16) {
        ((u16*)x)[i] = to_bf16(value);
    } else {
        ((float*)x)[i] = value;
    }
}

// The tree over leaves that every sum is made in: a binary counter. Two neighbouring blocks merge when they have the
// same power-of-two number of leaves; finish merges the rest from the right (kernels/README.md, promise 2).
struct Tree {
    float waiting[40];
    u32 count = 0;
    u64 leaves = 0;

    __device__ __forceinline__ void push(float leaf) {
        for (u64 ones = leaves; ones & 1; ones >>= 1) leaf = waiting[--count] + leaf;
        waiting[count++] = leaf;
        leaves++;
    }

    // 0 without leaves.
    __device__ __forceinline__ float finish() {
        if (count == 0) return 0.0f;
        float sum = waiting[--count];
        while (count > 0) sum = waiting[--count] + sum;
        return sum;
    }
};

// Sixteen lanes' sums to one: halves added until one is left, as the CPU's vectors do.
__device__ __forceinline__ float lanes_sum(float* lanes) {
    for (u32 width = 8; width > 0; width /= 2)
        for (u32 i = 0; i < width; i++) lanes[i] = lanes[i] + lanes[i + width];
    return lanes[0];
}

// The same tree in which leaves that add nothing are left out. Leaves come with ascending numbers; of three neighbours
// those merge first whose numbers differ in lower bits alone, and no two borders are alike.
struct SparseTree {
    float waiting[40];
    u64 numbers[40];
    u32 count = 0;

    __device__ __forceinline__ void push(u64 number, float leaf) {
        while (count > 1 && (numbers[count - 2] ^ numbers[count - 1]) < (numbers[count - 1] ^ number)) {
            count--;
            waiting[count - 1] = waiting[count - 1] + waiting[count];
        }
        waiting[count] = leaf;
        numbers[count++] = number;
    }

    // 0 without leaves.
    __device__ __forceinline__ float finish() {
        if (count == 0) return 0.0f;
        float sum = waiting[--count];
        while (count > 0) sum = waiting[--count] + sum;
        return sum;
    }
};

// Rows by 16 threads each, as the CPU's 16 lanes: element c of a row belongs to its thread c % 16. Loops over rows go on
// in whole warps, because all threads of a warp take part in the exchanges:
// for (u64 i = first(); i < whole_warps(rows); i += stride()), with row i / 16 and lane i % 16.
__device__ __forceinline__ u64 whole_warps(u64 rows) { return (rows * 16 + 31) / 32 * 32; }

// Columns of a row in whole vectors; 0 for threads without a row.
__device__ __forceinline__ u64 padded(u64 d, bool has_row) { return has_row ? (d + 15) / 16 * 16 : 0; }

// Element c of a row of d; `fill` past its end, as the CPU's vectors have there.
__device__ __forceinline__ float part(const float* row, u64 c, u64 d, float fill) { return c < d ? row[c] : fill; }

// The sum of the lanes of a row: halves added until one is left. All of its threads get it.
__device__ __forceinline__ float row_sum(float lane) {
    for (int width = 8; width > 0; width /= 2) lane = lane + __shfl_down_sync(0xffffffffu, lane, width, 16);
    return __shfl_sync(0xffffffffu, lane, 0, 16);
}

// a > b ? a : b, so b when either is NaN; likewise min.
__device__ __forceinline__ float larger(float a, float b) { return a > b ? a : b; }
__device__ __forceinline__ float smaller(float a, float b) { return a < b ? a : b; }

// e^x as kernels/src/cpu/math.rs has it, to the bit: 0 under the smallest normal, e^88 above 88.
__device__ __forceinline__ float exp_of_score(float x) {
    const float lowest = -87.33654f, nearest = 12582912.0f;
    float clamped = smaller(88.0f, larger(lowest, x));
    float shifted = clamped * 1.44269504088896340736f + nearest;
    float n = shifted - nearest;
    float r = fmaf(n, -0.6933594f, clamped);
    r = fmaf(n, 2.1219444e-4f, r);
    float p = 1.0f / 5040.0f;
    p = fmaf(p, r, 1.0f / 720.0f);
    p = fmaf(p, r, 1.0f / 120.0f);
    p = fmaf(p, r, 1.0f / 24.0f);
    p = fmaf(p, r, 1.0f / 6.0f);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    // 2^n: the integer is in the low bits of `shifted`
    float value = p * __uint_as_float((__float_as_uint(shifted) << 23) + 0x3f800000u);
    return x < lowest ? 0.0f : value;
}

// 1 / (1 + e^-x)
__device__ __forceinline__ float logistic(float x) {
    float value = 1.0f / (1.0f + exp_of_score(0.0f - x));
    return x < -87.33654f ? 0.0f : value;
}

// (a b + c), a result that is tiny after rounding with an unbounded exponent becomes a zero of its sign: the arithmetic
// of vdpbf16ps (kernels/src/cpu/bf16.rs).
__device__ __forceinline__ float flushed_fma(float a, float b, float c) {
    const float scale = 18446744073709551616.0f;
    float result = fmaf(a, b, c);
    float scaled = fmaf(a * scale, b, c * scale);
    float size = larger(scaled, 0.0f - scaled);
    return size < 1.17549435e-38f * scale ? result * 0.0f : result;
}

// The natural logarithm of a normal number above 0, as kernels/src/cpu/math.rs has it, to the bit: ln(2^n m) =
// n ln 2 + 2 artanh((m - 1) / (m + 1)) in f64, rounded once. Infinity and NaN stay.
__device__ __forceinline__ float natural_log(float x) {
    u32 bits = __float_as_uint(x);
    if (bits >= 0x7f800000u) return x;
    double n = (double)(bits >> 23) - 127.0;
    double m = (double)__uint_as_float((bits & 0x007fffffu) | 0x3f800000u);
    if (m > 1.41421356237309504880) m = m * 0.5, n = n + 1.0;
    double s = (m - 1.0) / (m + 1.0), square = s * s;
    double series = 1.0 / 19.0;
    for (int odd = 17; odd > 0; odd -= 2) series = series * square + 1.0 / (double)odd;
    return (float)(n * 0.693147180559945309417 + 2.0 * s * series);
}
