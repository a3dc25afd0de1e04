// Sums of a product in f32 as one chain per element, the tree of a single leaf: a block of 256 threads makes 128 x 128
// elements, a thread 8 x 8 of them, so a number from shared memory serves eight multiply-adds. The next slab of 16 k is on
// its way to registers while one is multiplied.
#pragma once
#include "product.cuh"

#define CHAIN_TILE 128

// [k][row]; a line's last four numbers keep lines in different banks
typedef float ChainSlab[SLAB][CHAIN_TILE + 4];
typedef ChainSlab ChainSlabs[2][2];
typedef float ChainSums[8][8];

// A thread's part of a slab: twice four numbers that are neighbours in memory if the operand's layout allows.
struct Fetched {
    float of[2][4];
};

// Row and k in the slab of a thread's four numbers.
__device__ __forceinline__ void fetched_place(u32& r, u32& p, u32 part, bool along_k) {
    u32 i = threadIdx.x + part * 256;
    r = along_k ? i / 4 : i % 32 * 4;
    p = along_k ? i % 4 * 4 : i / 32;
}

__device__ __forceinline__ Fetched fetch(const Side& side, u64 row, u64 k, u64 end) {
    bool along_k = side.k_stride == 1;
    u64 line = along_k ? side.row_stride : side.k_stride;
    bool whole = !side.is_bf16 && line % 4 == 0 && (u64)side.x % 16 == 0 && (along_k || side.row_stride == 1);
    Fetched fetched;
#pragma unroll
    for (u32 part = 0; part < 2; part++) {
        float(&of)[4] = fetched.of[part];
        u32 r, p;
        fetched_place(r, p, part, along_k);
        u64 at_row = row + r, at_k = k + p;
        u64 last_row = at_row + (along_k ? 0 : 3), last_k = at_k + (along_k ? 3 : 0);
        if (whole && last_row < side.rows && last_k < end) {
            float4 four = *(const float4*)((const float*)side.x + at_row * side.row_stride + at_k * side.k_stride);
            of[0] = four.x, of[1] = four.y, of[2] = four.z, of[3] = four.w;
            continue;
        }
#pragma unroll
        for (u32 e = 0; e < 4; e++) {
            u64 e_row = at_row + (along_k ? 0 : e), e_k = at_k + (along_k ? e : 0);
            of[e] = e_row < side.rows && e_k < end
                        ? number(side.x, side.is_bf16, e_row * side.row_stride + e_k * side.k_stride)
                        : 0.0f;
        }
    }
    return fetched;
}

__device__ __forceinline__ void keep(ChainSlab& to, const Fetched& fetched, bool along_k) {
#pragma unroll
    for (u32 part = 0; part < 2; part++) {
        const float(&of)[4] = fetched.of[part];
        u32 r, p;
        fetched_place(r, p, part, along_k);
        if (along_k) {
#pragma unroll
            for (u32 e = 0; e < 4; e++) to[p + e][r] = of[e];
        } else {
            *(float4*)&to[p][r] = make_float4(of[0], of[1], of[2], of[3]);
        }
    }
}

// Of a slab's line a thread's rows or columns: four from 4 i, and four from 64 + 4 i.
__device__ __forceinline__ void eight(float (&to)[8], const float* line, u32 i) {
    float4 low = *(const float4*)(line + 4 * i), high = *(const float4*)(line + 64 + 4 * i);
    to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
    to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
}

// Chains over all k. Ends with a barrier, after which the slabs are free.
__device__ __forceinline__ void one_chain(ChainSums& sums, ChainSlabs& slabs, const Side& a, const Side& b, u64 row,
                                          u64 column, u64 k) {
    u32 tr = threadIdx.x / 16, tc = threadIdx.x % 16;
#pragma unroll
    for (u32 i = 0; i < 8; i++)
#pragma unroll
        for (u32 j = 0; j < 8; j++) sums[i][j] = 0.0f;
    Fetched of_a = fetch(a, row, 0, k), of_b = fetch(b, column, 0, k);
    u32 stage = 0;
    for (u64 start = 0; start < k; start += SLAB, stage ^= 1) {
        keep(slabs[stage][0], of_a, a.k_stride == 1);
        keep(slabs[stage][1], of_b, b.k_stride == 1);
        // the other stage is free: all threads have passed the barrier after its last use
        __syncthreads();
        of_a = fetch(a, row, start + SLAB, k), of_b = fetch(b, column, start + SLAB, k);
        u32 count = k - start < SLAB ? (u32)(k - start) : SLAB;
#pragma unroll 2
        for (u32 q = 0; q < count; q++) {
            float x[8], y[8];
            eight(x, slabs[stage][0][q], tr);
            eight(y, slabs[stage][1][q], tc);
#pragma unroll
            for (u32 i = 0; i < 8; i++)
#pragma unroll
                for (u32 j = 0; j < 8; j++) sums[i][j] = fmaf(x[i], y[j], sums[i][j]);
        }
    }
    __syncthreads();
}
