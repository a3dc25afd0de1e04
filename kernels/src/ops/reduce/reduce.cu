// Sums in fixed trees; docs/sums.md has the leaves. Each number is read once: memory bounds both kernels.
#include "millrace.cuh"

// out[c] = the tree over leaves of `leaf` rows of x[r, c], a chain of additions from 0 each; a thread per column.
extern "C" __global__ void sum_rows(float* out, const void* x, u32 is_bf16, u64 rows, u64 d, u64 leaf,
                                    u32 accumulate) {
    for (u64 c = first(); c < d; c += stride()) {
        Tree tree;
        for (u64 start = 0; start < rows; start += leaf) {
            u64 end = start + leaf < rows ? start + leaf : rows;
            float sum = 0.0f;
            for (u64 r = start; r < end; r++) sum = sum + number(x, is_bf16, r * d + c);
            tree.push(sum);
        }
        float sum = tree.finish();
        out[c] = accumulate ? out[c] + sum : sum;
    }
}

// Sums of squares of blocks of numbers, in f64. table: [count] of {address, length}; 16 threads per block, each the
// chain over every sixteenth number, then a tree over the 16.
extern "C" __global__ void sum_squares(double* sums, const u64* table, u64 count) {
    u32 lane = threadIdx.x % 16;
    // all threads of a warp take part in the exchange, those past the end with nothing to add
    u64 whole = (count * 16 + 31) / 32 * 32;
    for (u64 i = first(); i < whole; i += stride()) {
        u64 block = i / 16;
        double sum = 0.0;
        if (block < count) {
            const float* x = (const float*)table[2 * block];
            u64 n = table[2 * block + 1];
            for (u64 at = lane; at < n; at += 16) sum = __dadd_rn(sum, __dmul_rn((double)x[at], (double)x[at]));
        }
        for (int width = 8; width > 0; width /= 2) sum = __dadd_rn(sum, __shfl_down_sync(0xffffffffu, sum, width, 16));
        if (block < count && lane == 0) sums[block] = sum;
    }
}
