// Tokens to experts and back; the operations are those of cpu.rs. A thread per number; a row's dot product has 16 threads,
// as the CPU's 16 lanes. Memory bounds all: 8 bytes per number moved, 4 (k + 1) per number of a weighted sum.
#include "millrace.cuh"

// Row of a choice that has none.
#define NOWHERE 0xffffffffu

// y: a row per choice of `choices`, a copy of its token's.
extern "C" __global__ void permute_rows(float* y, const float* x, const u32* choices, u64 rows, u64 k, u64 d) {
    for (u64 i = first(); i < rows * d; i += stride()) y[i] = x[choices[i / d] / k * d + i % d];
}

// y: a row per token, the sum of its choices' rows, weighted or not, in their order.
extern "C" __global__ void permute_gather(float* y, const float* x, const float* weights, const u32* rows, u64 tokens,
                                          u64 k, u64 d) {
    for (u64 i = first(); i < tokens * d; i += stride()) {
        float sum = 0.0f;
        for (u64 choice = i / d * k; choice < (i / d + 1) * k; choice++)
            if (rows[choice] != NOWHERE)
                sum = fmaf(weights ? weights[choice] : 1.0f, x[rows[choice] * d + i % d], sum);
        y[i] = sum;
    }
}

extern "C" __global__ void permute_scaled(float* dx, const float* dy, const float* weights, const u32* choices, u64 rows,
                                          u64 k, u64 d) {
    for (u64 i = first(); i < rows * d; i += stride()) {
        u32 choice = choices[i / d];
        dx[i] = dy[choice / k * d + i % d] * weights[choice];
    }
}

// The product of each choice's row and its token's gradient; 0 for a choice without a row.
extern "C" __global__ void permute_dots(float* dweights, const float* x, const float* dy, const u32* rows, u64 choices,
                                        u64 k, u64 d) {
    for (u64 i = first(); i < whole_warps(choices); i += stride()) {
        u64 choice = i / 16;
        bool is_choice = choice < choices, has_row = is_choice && rows[choice] != NOWHERE;
        const float *a = x, *b = dy;
        if (has_row) a += rows[choice] * d, b += choice / k * d;
        float sum = 0.0f;
        for (u64 c = i % 16; c < padded(d, has_row); c += 16) sum = fmaf(part(a, c, d, 0.0f), part(b, c, d, 0.0f), sum);
        sum = row_sum(sum);
        if (is_choice && i % 16 == 0) dweights[choice] = has_row ? sum : 0.0f;
    }
}
