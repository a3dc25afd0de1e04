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

// The joint norm: 1 / rms of all query heads (or key heads) of a row, from the total of their squares.
__device__ __forceinline__ float joint_inverse(float total, u64 width, float eps) {
    return 1.0f / sqrtf(total / (float)width + eps);
}

// q: [rows, query heads], k: [rows, key heads].
__device__ __forceinline__ void write_by_head(float* q, float* k, u64 row, u64 head, u64 groups, u64 per, float value) {
    u64 group = head / (per + 1), slot = head % (per + 1);
    if (slot == per) {
        k[row * groups + group] = value;
    } else {
        q[(row * groups + group) * per + slot] = value;
    }
}

// Weights of a head of the joint norm.
__device__ __forceinline__ const float* joint_weights(const float* wq, const float* wk, u64 head, u64 per, u64 width) {
    u64 group = head / (per + 1), slot = head % (per + 1);
    return slot == per ? wk + group * width : wq + (group * per + slot) * width;
}

extern "C" __global__ void qk_joint_squares(float* q, float* k, const float* qkv, u64 rows, u64 groups, u64 per,
                                            u64 width) {
    u64 heads = groups * (per + 1), packed = groups * (per + 2) * width;
    for (u64 i = first(); i < whole_warps(rows * heads); i += stride()) {
        u64 row = i / 16 / heads, head = i / 16 % heads;
        bool has_row = row < rows;
        const float* x = qkv + row * packed + start_of(head, per, width);
        float squares = 0.0f;
        for (u64 c = i % 16; c < padded(width, has_row); c += 16) {
            float value = part(x, c, width, 0.0f);
            squares = fmaf(value, value, squares);
        }
        squares = row_sum(squares);
        if (has_row && i % 16 == 0) write_by_head(q, k, row, head, groups, per, squares);
    }
}

extern "C" __global__ void qk_joint_forward(float* qkv, const float* wq, const float* wk, const float* sq,
                                            const float* sk, u64 q_width, u64 k_width, u64 rows, u64 groups, u64 per,
                                            u64 width, float eps) {
    u64 heads = groups * (per + 1), packed = groups * (per + 2) * width;
    for (u64 i = first(); i < rows * heads * width; i += stride()) {
        u64 c = i % width, head = i / width % heads, row = i / width / heads;
        bool is_key = head % (per + 1) == per;
        float inverse = is_key ? joint_inverse(sk[row], k_width, eps) : joint_inverse(sq[row], q_width, eps);
        float* x = qkv + row * packed + start_of(head, per, width) + c;
        *x = *x * inverse * joint_weights(wq, wk, head, per, width)[c];
    }
}

extern "C" __global__ void qk_joint_products(float* q, float* k, const float* dqkv, const float* qkv, const float* wq,
                                             const float* wk, const float* sq, const float* sk, u64 q_width,
                                             u64 k_width, u64 rows, u64 groups, u64 per, u64 width, float eps) {
    u64 heads = groups * (per + 1), packed = groups * (per + 2) * width;
    for (u64 i = first(); i < whole_warps(rows * heads); i += stride()) {
        u64 row = i / 16 / heads, head = i / 16 % heads;
        bool has_row = row < rows, is_key = head % (per + 1) == per;
        u64 at = row * packed + start_of(head, per, width);
        const float* w = joint_weights(wq, wk, head, per, width);
        float inverse = 0.0f;
        if (has_row) inverse = is_key ? joint_inverse(sk[row], k_width, eps) : joint_inverse(sq[row], q_width, eps);
        float dot = 0.0f;
        for (u64 c = i % 16; c < padded(width, has_row); c += 16) {
            float g = part(dqkv + at, c, width, 0.0f) * part(w, c, width, 0.0f);
            dot = fmaf(g, part(qkv + at, c, width, 0.0f) * inverse, dot);
        }
        dot = row_sum(dot);
        if (has_row && i % 16 == 0) write_by_head(q, k, row, head, groups, per, dot);
    }
}

// dwq: [leaves, query heads, width], dwk: [leaves, key heads, width], a chain over the leaf's rows each.
extern "C" __global__ void qk_joint_weights(float* dwq, float* dwk, const float* dqkv, const float* qkv,
                                            const float* sq, const float* sk, u64 q_width, u64 k_width, u64 leaves,
                                            u64 leaf, u64 groups, u64 per, u64 width, float eps) {
    u64 heads = groups * (per + 1), packed = groups * (per + 2) * width;
    for (u64 i = first(); i < leaves * heads * width; i += stride()) {
        u64 c = i % width, head = i / width % heads, number = i / width / heads;
        u64 group = head / (per + 1), slot = head % (per + 1), at = start_of(head, per, width) + c;
        float sum = 0.0f;
        for (u64 r = number * leaf; r < (number + 1) * leaf; r++) {
            float inverse = slot == per ? joint_inverse(sk[r], k_width, eps) : joint_inverse(sq[r], q_width, eps);
            sum = fmaf(dqkv[r * packed + at], qkv[r * packed + at] * inverse, sum);
        }
        if (slot == per) {
            dwk[(number * groups + group) * width + c] = sum;
        } else {
            dwq[((number * groups + group) * per + slot) * width + c] = sum;
        }
    }
}

// pq, pk: totals of qk_joint_products.
extern "C" __global__ void qk_joint_backward(float* dqkv, const float* qkv, const float* wq, const float* wk,
                                             const float* sq, const float* sk, const float* pq, const float* pk,
                                             u64 q_width, u64 k_width, u64 rows, u64 groups, u64 per, u64 width,
                                             float eps) {
    u64 heads = groups * (per + 1), packed = groups * (per + 2) * width;
    for (u64 i = first(); i < rows * heads * width; i += stride()) {
        u64 c = i % width, head = i / width % heads, row = i / width / heads;
        bool is_key = head % (per + 1) == per;
        float inverse = is_key ? joint_inverse(sk[row], k_width, eps) : joint_inverse(sq[row], q_width, eps);
        float less = is_key ? -(pk[row] / (float)k_width) : -(pq[row] / (float)q_width);
        u64 at = row * packed + start_of(head, per, width) + c;
        float g = dqkv[at] * joint_weights(wq, wk, head, per, width)[c];
        dqkv[at] = fmaf(qkv[at] * inverse, less, g) * inverse;
    }
}
