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

// A run of numbers: its address, its length, and the number of its first block of SQUARES numbers, over all runs. One more
// entry ends the table.
struct Run {
    const float* x;
    u64 length, block;
};

// reduce::SQUARES
#define SQUARES 4096ull

// Sums of squares of blocks of numbers, in f64; 16 threads per block, each the chain over every sixteenth number, then a
// tree over the 16.
extern "C" __global__ void squares_of_blocks(double* sums, const Run* runs, u64 count, u64 blocks) {
    u32 lane = threadIdx.x % 16;
    // all threads of a warp take part in the exchange, those past the end with nothing to add
    for (u64 i = first(); i < whole_warps(blocks); i += stride()) {
        u64 block = i / 16;
        double sum = 0.0;
        if (block < blocks) {
            // the last run that starts no later; empty ones before it start as late
            u64 low = 0, high = count;
            while (high - low > 1) {
                u64 middle = (low + high) / 2;
                if (runs[middle].block <= block) {
                    low = middle;
                } else {
                    high = middle;
                }
            }
            Run run = runs[low];
            u64 start = (block - run.block) * SQUARES, end = start + SQUARES < run.length ? start + SQUARES : run.length;
            for (u64 at = start + lane; at < end; at += 16)
                sum = __dadd_rn(sum, __dmul_rn((double)run.x[at], (double)run.x[at]));
        }
        for (int width = 8; width > 0; width /= 2) sum = __dadd_rn(sum, __shfl_down_sync(0xffffffffu, sum, width, 16));
        if (block < blocks && lane == 0) sums[block] = sum;
    }
}

// The sum of each run's blocks, in order; a thread per run.
extern "C" __global__ void squares_of_views(double* sums, const double* blocks, const Run* runs, u64 count) {
    for (u64 i = first(); i < count; i += stride()) {
        double sum = 0.0;
        for (u64 block = runs[i].block; block < runs[i + 1].block; block++) sum = __dadd_rn(sum, blocks[block]);
        sums[i] = sum;
    }
}
