// Operands of products of tiles (ops/matmul, ops/grouped_matmul): a block of 16 x 16 threads makes 64 x 64 elements, a
// thread 4 x 4 of them. Operands go through shared memory in slabs of 16 k.
#pragma once
#include "millrace.cuh"

#define TILE 64
#define SLAB 16
#define EACH 4

// An operand: element (row, k) is at row * row_stride + k * k_stride.
struct Side {
    const void* x;
    u32 is_bf16;
    u64 rows, row_stride, k_stride;
};

typedef float Slab[SLAB][TILE + 1];

template <bool PAIRS>
__device__ __forceinline__ void load_slab(Slab& to, const Side& side, u64 row, u64 k, u64 end) {
    u32 thread = threadIdx.x;
    for (u32 i = thread; i < SLAB * TILE; i += 256) {
        // neighbouring threads read neighbouring numbers
        u32 r = side.k_stride == 1 ? i / SLAB : i % TILE, p = side.k_stride == 1 ? i % SLAB : i / TILE;
        float x = 0.0f;
        if (row + r < side.rows && k + p < end)
            x = number(side.x, side.is_bf16, (row + r) * side.row_stride + (k + p) * side.k_stride);
        to[p][r] = PAIRS ? widen(to_bf16(x)) : x;
    }
}

// sums: a thread's elements of the chains over k from `start` to below `end`, of the tile at (row, column).
template <bool PAIRS>
__device__ __forceinline__ void chains(float (&sums)[EACH][EACH], Slab& as, Slab& bs, const Side& a, const Side& b,
                                       u64 row, u64 column, u64 start, u64 end) {
    u32 tr = threadIdx.x / 16, tc = threadIdx.x % 16;
    for (u32 i = 0; i < EACH; i++)
        for (u32 j = 0; j < EACH; j++) sums[i][j] = 0.0f;
    for (u64 p = start; p < end; p += SLAB) {
        load_slab<PAIRS>(as, a, row, p, end);
        load_slab<PAIRS>(bs, b, column, p, end);
        __syncthreads();
        u32 count = end - p < SLAB ? (u32)(end - p) : SLAB;
        // a pair is two k, the odd one first; the last one of an odd leaf is filled with zeros
        for (u32 q = 0; q < count; q += PAIRS ? 2 : 1) {
            float x[EACH], y[EACH];
            if (PAIRS) {
                for (u32 i = 0; i < EACH; i++) x[i] = as[q + 1][tr * EACH + i], y[i] = bs[q + 1][tc * EACH + i];
                for (u32 i = 0; i < EACH; i++)
                    for (u32 j = 0; j < EACH; j++) sums[i][j] = flushed_fma(x[i], y[j], sums[i][j]);
            }
            for (u32 i = 0; i < EACH; i++) x[i] = as[q][tr * EACH + i], y[i] = bs[q][tc * EACH + i];
            for (u32 i = 0; i < EACH; i++)
                for (u32 j = 0; j < EACH; j++)
                    sums[i][j] = PAIRS ? flushed_fma(x[i], y[j], sums[i][j]) : fmaf(x[i], y[j], sums[i][j]);
        }
        __syncthreads();
    }
}
