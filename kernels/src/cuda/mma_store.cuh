// The end of a product on tensor cores (mma_product.cuh): sums through shared memory to whole rows, with the epilogue.
#pragma once
#include "epilogue.cuh"
#include "mma_product.cuh"

// Numbers from a row of a warp's sums in shared memory to the next: rows of a fragment are in different banks.
#define STAGED 40
static_assert(8 * 32 * STAGED * sizeof(float) <= sizeof(Slabs), "the sums fit where the factors were");

__device__ __forceinline__ void clear(Sums& sums) {
#pragma unroll
    for (u32 i = 0; i < 4; i++)
#pragma unroll
        for (u32 j = 0; j < 4; j++)
#pragma unroll
            for (u32 e = 0; e < 4; e++) sums[i][j][e] = 0.0f;
}

// Sums as they are.
struct Unscaled {
    __device__ __forceinline__ Two operator()(u64, u64, float2 sums) const { return {sums.x, sums.y}; }
};

// Stores the block's elements of c in rows below `rows`, each pair of sums as `scaled` changes it; the slabs are free. Half of a warp's rows at a time, so that whole
// rows are written and the epilogue's code is there twice, not once for each fragment.
template <class Scaled = Unscaled>
__device__ __forceinline__ void store_sums(void* c, u32 c_is_bf16, Sums& sums, Slabs& slabs, u64 rows, u64 columns,
                                           u64 row, u64 column, const Epilogue& then, Scaled scaled = Scaled()) {
    float(*tile)[STAGED] = (float(*)[STAGED])slabs + threadIdx.x / 32 * 32;
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                float(&of)[4] = sums[2 * half + i][j];
                float* to = &tile[16 * i + lane / 4][8 * j + lane % 4 * 2];
                *(float2*)to = make_float2(of[0], of[1]);
                *(float2*)(to + 8 * STAGED) = make_float2(of[2], of[3]);
            }
        }
        __syncwarp();
        u64 top = row + warp_row() + 32 * half, left = column + warp_column() + lane % 16 * 2;
#pragma unroll 1
        for (u32 r = lane / 16; r < 32 && top + r < rows; r += 2) {
            float2 of = *(const float2*)&tile[r][lane % 16 * 2];
            finish_two(c, c_is_bf16, top + r, left, columns, scaled(top + r, left, of), then);
        }
        __syncwarp();
    }
}
