// Tokens to experts and back; the operations are those of cpu.rs. A thread per number; a row's dot product has 16 threads,
// as the CPU's 16 lanes. Memory bounds all: 8 bytes per number moved, 4 (k + 1) per number of a weighted sum.
#include "millrace.cuh"

// Row of a choice that has none.
#define NOWHERE 0xffffffffu

// Choices that a warp puts in order.
#define ORDER_TILE 256
#define ALL 0xffffffffu

// The number of a choice's expert among `experts` from `from` on, or NOWHERE.
__device__ __forceinline__ u32 expert_of(u32 id, u64 from, u64 experts) {
    u64 expert = (u64)id - from;
    return expert < experts ? (u32)expert : NOWHERE;
}

// counts: [tiles, experts], zeros before. Sums of integers, so the order of the atomic additions is no matter.
extern "C" __global__ void permute_count(u32* counts, const u32* ids, u64 n, u64 from, u64 experts) {
    for (u64 i = first(); i < n; i += stride()) {
        u32 expert = expert_of(ids[i], from, experts);
        if (expert != NOWHERE) atomicAdd(&counts[i / ORDER_TILE * experts + expert], 1u);
    }
}

// Adds the values of the lanes before to each lane's, and the warp's to `sum`.
__device__ __forceinline__ u32 sum_before(u32& sum, u32 value) {
    u32 lane = threadIdx.x % 32, until = value;
    for (u32 step = 1; step < 32; step *= 2) {
        u32 other = __shfl_up_sync(ALL, until, step);
        if (lane >= step) until += other;
    }
    u32 before = sum + until - value;
    sum += __shfl_sync(ALL, until, 31);
    return before;
}

// counts: those of a tile become the choices of the expert in the tiles before. offsets: [experts + 1], the first row of
// each expert and the end of the last. One block; a warp per expert, and then one for all experts.
extern "C" __global__ void permute_offsets(u32* counts, u32* offsets, u64 tiles, u64 experts) {
    u32 lane = threadIdx.x % 32;
    for (u64 expert = threadIdx.x / 32; expert < experts; expert += blockDim.x / 32) {
        u32 sum = 0;
        for (u64 start = 0; start < tiles; start += 32) {
            bool is_tile = start + lane < tiles;
            u32* count = counts + (is_tile ? start + lane : 0) * experts + expert;
            u32 before = sum_before(sum, is_tile ? *count : 0);
            if (is_tile) *count = before;
        }
        if (lane == 0) offsets[expert + 1] = sum;
    }
    __syncthreads();
    if (threadIdx.x >= 32) return;
    u32 sum = 0;
    for (u64 start = 0; start < experts; start += 32) {
        bool is_expert = start + lane < experts;
        u32 count = is_expert ? offsets[start + lane + 1] : 0;
        u32 before = sum_before(sum, count);
        if (is_expert) offsets[start + lane + 1] = before + count;
    }
    if (lane == 0) offsets[0] = 0;
}

// The stable order: a warp goes over a tile's choices, 32 at a time, and keeps the next row of each expert in `counts`.
extern "C" __global__ void permute_order(u32* choices, u32* rows, u32* counts, const u32* offsets, const u32* ids, u64 n,
                                         u64 from, u64 experts) {
    u32 lane = threadIdx.x % 32;
    for (u64 tile = first() / 32; tile * ORDER_TILE < n; tile += stride() / 32) {
        u32* next = counts + tile * experts;
        for (u32 start = 0; start < ORDER_TILE; start += 32) {
            u64 choice = tile * ORDER_TILE + start + lane;
            u32 expert = choice < n ? expert_of(ids[choice], from, experts) : NOWHERE;
            u32 alike = __match_any_sync(ALL, expert), before = __popc(alike & ((1u << lane) - 1));
            u32 base = expert == NOWHERE ? 0 : next[expert];
            __syncwarp();
            if (expert != NOWHERE && before == 0) next[expert] = base + __popc(alike);
            __syncwarp();
            if (choice >= n) continue;
            u32 row = expert == NOWHERE ? NOWHERE : offsets[expert] + base + before;
            rows[choice] = row;
            if (row != NOWHERE) choices[row] = (u32)choice;
        }
    }
    for (u64 row = offsets[experts] + first(); row < n; row += stride()) choices[row] = NOWHERE;
}

// table: [experts, count], zeros before: rows of each expert by leaf of `leaf` choices. A block per expert.
extern "C" __global__ void permute_leaves(u32* table, const u32* choices, const u32* offsets, u64 leaf, u64 count) {
    u64 expert = blockIdx.x;
    for (u64 row = offsets[expert] + threadIdx.x; row < offsets[expert + 1]; row += blockDim.x)
        atomicAdd(&table[expert * count + choices[row] / leaf], 1u);
}

// y: a row per choice of `choices`, a copy of its token's; zeros without one.
extern "C" __global__ void permute_rows(float* y, const float* x, const u32* choices, u64 rows, u64 k, u64 d) {
    for (u64 i = first(); i < rows * d; i += stride()) {
        u32 choice = choices[i / d];
        y[i] = choice == NOWHERE ? 0.0f : x[choice / k * d + i % d];
    }
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
        dx[i] = choice == NOWHERE ? 0.0f : dy[choice / k * d + i % d] * weights[choice];
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
