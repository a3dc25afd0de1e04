// RMS norm and its gradients; the operations are those of cpu.rs. A row has 16 threads, so that its sums are the CPU's
// lane sums; a column of the weight's gradient has one. Memory bounds them: 8 bytes per element forward, 12 backward and
// 8 more for the weight, rows being read twice from the cache.
#include "rms.cuh"

// With `more`, x becomes x + more before it is normalised.
extern "C" __global__ void rms_norm_forward(float* y, float* inv_rms, float* x, const float* more, const float* w,
                                            u64 rows, u64 d, float eps) {
    for (u64 i = first(); i < whole_warps(rows); i += stride()) {
        u64 row = i / 16;
        u32 lane = (u32)(i % 16);
        bool has_row = row < rows;
        float* from = x + row * d;
        // each thread reads only those elements again that it wrote
        if (more && has_row)
            for (u64 c = lane; c < d; c += 16) from[c] = from[c] + more[row * d + c];
        float inverse = rms_inverse(from, d, lane, has_row, eps);
        rms_normalise(y + row * d, from, w, d, lane, has_row, inverse);
        if (has_row && lane == 0) inv_rms[row] = inverse;
    }
}

extern "C" __global__ void rms_norm_backward(float* dx, const float* dy, const float* x, const float* w,
                                             const float* inv_rms, const float* more, u64 rows, u64 d) {
    for (u64 i = first(); i < whole_warps(rows); i += stride()) {
        u64 row = i / 16, at = row * d;
        bool has_row = row < rows;
        float inverse = has_row ? inv_rms[row] : 0.0f;
        rms_gradient(dx + at, dy + at, x + at, w, more ? more + at : more, d, (u32)(i % 16), has_row, inverse);
    }
}

// dw[part, c] += the tree over leaves of `leaf` rows of that part.
extern "C" __global__ void rms_norm_weights(float* dw, const float* dy, const float* x, const float* inv_rms,
                                            u64 parts, u64 rows, u64 d, u64 leaf) {
    for (u64 i = first(); i < parts * d; i += stride()) {
        u64 start = i / d * rows, end = start + rows, c = i % d;
        Tree tree;
        for (u64 from = start; from < end; from += leaf) {
            u64 to = from + leaf < end ? from + leaf : end;
            float sum = 0.0f;
            for (u64 r = from; r < to; r++) sum = fmaf(dy[r * d + c], x[r * d + c] * inv_rms[r], sum);
            tree.push(sum);
        }
        dw[i] = dw[i] + tree.finish();
    }
}
