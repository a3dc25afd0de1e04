// Layer norm and its gradients; the operations are those of cpu.rs. A row has 16 threads, so that its sums are the CPU's
// lane sums; a column of the weights' gradients has one. Memory bounds them: 8 bytes per element forward, 12 backward
// and 8 more for the weights, rows being read several times from the cache.
#include "millrace.cuh"

// With `more`, x becomes x + more before it is normalised.
extern "C" __global__ void layer_norm_forward(float* y, float* means, float* inv_stds, float* x, const float* more,
                                              const float* w, const float* b, u64 rows, u64 d, float eps) {
    for (u64 i = first(); i < whole_warps(rows); i += stride()) {
        u64 row = i / 16;
        u32 lane = (u32)(i % 16);
        bool has_row = row < rows;
        float* from = x + row * d;
        // each thread reads only those elements again that it wrote
        if (more && has_row)
            for (u64 c = lane; c < d; c += 16) from[c] = from[c] + more[row * d + c];
        float sum = 0.0f;
        for (u64 c = lane; c < padded(d, has_row); c += 16) sum = sum + part(from, c, d, 0.0f);
        float mean = row_sum(sum) / (float)d;
        float squares = 0.0f;
        for (u64 c = lane; c < padded(d, has_row); c += 16) {
            float centred = part(from, c, d, mean) - mean;
            squares = fmaf(centred, centred, squares);
        }
        float inv_std = 1.0f / sqrtf(row_sum(squares) / (float)d + eps);
        if (!has_row) continue;
        for (u64 c = lane; c < d; c += 16) y[row * d + c] = fmaf((from[c] - mean) * inv_std, w[c], b[c]);
        if (lane == 0) means[row] = mean, inv_stds[row] = inv_std;
    }
}

extern "C" __global__ void layer_norm_backward(float* dx, const float* dy, const float* x, const float* w,
                                               const float* means, const float* inv_stds, const float* more, u64 rows,
                                               u64 d) {
    for (u64 i = first(); i < whole_warps(rows); i += stride()) {
        u64 row = i / 16, at = row * d;
        u32 lane = (u32)(i % 16);
        bool has_row = row < rows;
        float mean = has_row ? means[row] : 0.0f, inv_std = has_row ? inv_stds[row] : 0.0f;
        float sum = 0.0f, dot = 0.0f;
        for (u64 c = lane; c < padded(d, has_row); c += 16) {
            float g = part(dy + at, c, d, 0.0f) * part(w, c, d, 0.0f);
            float xhat = (part(x + at, c, d, mean) - mean) * inv_std;
            sum = sum + g;
            dot = fmaf(g, xhat, dot);
        }
        sum = row_sum(sum) / (float)d;
        dot = -(row_sum(dot) / (float)d);
        if (!has_row) continue;
        for (u64 c = lane; c < d; c += 16) {
            float g = dy[at + c] * w[c];
            float xhat = (x[at + c] - mean) * inv_std;
            float value = fmaf(xhat, dot, g - sum) * inv_std;
            dx[at + c] = more ? value + more[at + c] : value;
        }
    }
}

// dw[part, c] and db[part, c] += the trees over leaves of `leaf` rows of that part.
extern "C" __global__ void layer_norm_weights(float* dw, float* db, const float* dy, const float* x, const float* means,
                                              const float* inv_stds, u64 parts, u64 rows, u64 d, u64 leaf) {
    for (u64 i = first(); i < parts * d; i += stride()) {
        u64 start = i / d * rows, end = start + rows, c = i % d;
        Tree of_w, of_b;
        for (u64 from = start; from < end; from += leaf) {
            u64 to = from + leaf < end ? from + leaf : end;
            float w_sum = 0.0f, b_sum = 0.0f;
            for (u64 r = from; r < to; r++) {
                float g = dy[r * d + c];
                w_sum = fmaf(g, (x[r * d + c] - means[r]) * inv_stds[r], w_sum);
                b_sum = b_sum + g;
            }
            of_w.push(w_sum);
            of_b.push(b_sum);
        }
        dw[i] = dw[i] + of_w.finish();
        db[i] = db[i] + of_b.finish();
    }
}
