// The end of a product of f32 in chains (chain.cuh): sums through shared memory to whole rows, with the epilogue.
#pragma once
#include "chain.cuh"
#include "epilogue.cuh"

// Stores the block's elements of c in rows below `rows`; the slabs are free. Half of the rows at a time, so that whole rows
// are written and the epilogue's code is there twice.
__device__ __forceinline__ void store_chains(void* c, u32 c_is_bf16, const ChainSums& sums, ChainSlabs& slabs, u64 rows,
                                             u64 columns, u64 row, u64 column, const Epilogue& then) {
    typedef float Half[64][CHAIN_TILE + 4];
    static_assert(sizeof(Half) <= sizeof(slabs), "half of the sums fit where the operands were");
    Half& tile = *(Half*)slabs;
    u32 tr = threadIdx.x / 16, tc = threadIdx.x % 16;
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const float(&of)[8] = sums[4 * half + i];
            *(float4*)&tile[4 * tr + i][4 * tc] = make_float4(of[0], of[1], of[2], of[3]);
            *(float4*)&tile[4 * tr + i][64 + 4 * tc] = make_float4(of[4], of[5], of[6], of[7]);
        }
        __syncthreads();
#pragma unroll 1
        for (u32 i = threadIdx.x; i < 64 * CHAIN_TILE / 2; i += 256) {
            u32 r = i / (CHAIN_TILE / 2), left = i % (CHAIN_TILE / 2) * 2;
            if (row + 64 * half + r >= rows) break;
            float2 of = *(const float2*)&tile[r][left];
            finish_two(c, c_is_bf16, row + 64 * half + r, column + left, columns, {of.x, of.y}, then);
        }
        __syncthreads();
    }
}
