// RMS norm of query and key heads in packed rows; the operations are those of cpu.rs. A head has 16 threads, so that its
// sums are the CPU's lane sums; a column of the weights' gradients has one. Memory bounds them: 8 bytes per element
// forward, 12 backward and 8 more for the weights.
#include "rms.cuh"

// Start of head `head` of the query and key heads of a packed row: of each group `per` queries and a key, then a value
// that is passed over.
__device__ __forceinline__ u64 start_of(u64 head, u64 per, u64 width) {
    return (head / (per + 1) * (per + 2) + head % (per + 1)) * width;
}

extern "C" __global__ void qk_norm_forward(float* qkv, const float* wq, const float* wk, u64 rows, u64 groups, u64 per,
                                           u64 width, float eps) {
    u64 heads = groups * (per + 1), packed = groups * (per + 2) * width;
    for (u64 i = first(); i < whole_warps(rows * heads); i += stride()) {
        u64 row = i / 16 / heads, head = i / 16 % heads;
        bool has_row = row < rows;
        float* x = qkv + row * packed + start_of(head, per, width);
        const float* w = head % (per + 1) == per ? wk : wq;
        u32 lane = (u32)(i % 16);
        float inverse = rms_inverse(x, width, lane, has_row, eps);
        // a thread reads its elements before it writes them
        rms_normalise(x, x, w, width, lane, has_row, inverse);
    }
}

// inverses: [rows, heads], as forward computes them.
extern "C" __global__ void qk_norm_inverses(float* inverses, const float* qkv, u64 rows, u64 groups, u64 per, u64 width,
                                            float eps) {
    u64 heads = groups * (per + 1), packed = groups * (per + 2) * width;
    for (u64 i = first(); i < whole_warps(rows * heads); i += stride()) {
        u64 row = i / 16 / heads, head = i / 16 % heads;
        bool has_row = row < rows;
        const float* x = qkv + row * packed + start_of(head, per, width);
        float inverse = rms_inverse(x, width, (u32)(i % 16), has_row, eps);
        if (has_row && i % 16 == 0) inverses[i / 16] = inverse;
    }
}

// dwq: [leaves, query heads, width], dwk: [leaves, key heads, width], a chain over the leaf's rows each.
extern "C" __global__ void qk_norm_weights(float* dwq, float* dwk, const float* dqkv, const float* qkv,
                                           const float* inverses, u64 leaves, u64 leaf, u64 groups, u64 per,
                                           u64 width) {
    u64 heads = groups * (per + 1), packed = groups * (per + 2) * width;
    for (u64 i = first(); i < leaves * heads * width; i += stride()) {
        u64 c = i % width, head = i / width % heads, number = i / width / heads;
        u64 group = head / (per + 1), slot = head % (per + 1), at = start_of(head, per, width) + c;
        float sum = 0.0f;
        for (u64 r = number * leaf; r < (number + 1) * leaf; r++)
            sum = fmaf(dqkv[r * packed + at], qkv[r * packed + at] * inverses[r * heads + head], sum);
        if (slot == per) {
            dwk[(number * groups + group) * width + c] = sum;
        } else {
            dwq[((number * groups + group) * per + slot) * width + c] = sum;
        }
    }
}

extern "C" __global__ void qk_norm_backward(float* dqkv, const float* qkv, const float* inverses, const float* wq,
                                            const float* wk, u64 rows, u64 groups, u64 per, u64 width) {
    u64 heads = groups * (per + 1), packed = groups * (per + 2) * width;
    for (u64 i = first(); i < whole_warps(rows * heads); i += stride()) {
        u64 row = i / 16 / heads, head = i / 16 % heads;
        bool has_row = row < rows;
        u64 at = row * packed + start_of(head, per, width);
        const float* w = head % (per + 1) == per ? wk : wq;
        float inverse = has_row ? inverses[i / 16] : 0.0f;
        rms_gradient(dqkv + at, dqkv + at, qkv + at, w, nullptr, width, (u32)(i % 16), has_row, inverse);
    }
}
