// Numbers as they are stored in 8 or 16 bits, the largest sizes of what was rounded, and turned copies. Reads 4 or 2 bytes
// and writes 1 or 2 a number; where a scale depends on the numbers they are read twice, the second time from a cache if
// the row or block fits.
#include "grid.cuh"

__device__ __forceinline__ void set_code(void* to, u32 bits, u64 at, u32 code) {
    if (bits == 8) {
        ((u8*)to)[at] = (u8)code;
    } else {
        ((u16*)to)[at] = (u16)code;
    }
}

// Codes of x times scale. Integer maxima have no order, so amax has the same bits always.
extern "C" __global__ void stored_scaled(void* to, u32 bits, u32* amax, const void* x, u32 is_bf16, u64 n, float scale,
                                         GRID_ARGS) {
    GRID
    float most = 0.0f;
    for (u64 i = first(); i < n; i += stride()) {
        float value = number(x, is_bf16, i);
        most = with(most, value);
        set_code(to, bits, i, encoded(nearest(value * scale, grid), grid, bits));
    }
    if (!amax) return;
    for (int width = 16; width > 0; width /= 2) most = with(most, __shfl_xor_sync(0xffffffffu, most, width));
    if (threadIdx.x % 32 == 0) atomicMax(amax, __float_as_uint(most));
}

// Blocks between borders of rows and of columns, a warp each; back: what gives their numbers back.
extern "C" __global__ void stored_blocks(void* to, u32 bits, float* back, const void* x, u32 is_bf16, u64 width,
                                         const u32* rows, u64 row_blocks, const u32* columns, u64 column_blocks,
                                         GRID_ARGS) {
    GRID
    u32 lane = threadIdx.x % 32;
    for (u64 block = first() / 32; block < row_blocks * column_blocks; block += stride() / 32) {
        u64 r = block / column_blocks, c = block % column_blocks;
        u32 top = rows[r], height = rows[r + 1] - top, left = columns[c], across = columns[c + 1] - left;
        u64 count = (u64)height * across;
        float most = 0.0f;
        for (u64 i = lane; i < count; i += 32)
            most = with(most, number(x, is_bf16, (top + i / across) * width + left + i % across));
        for (int half = 16; half > 0; half /= 2) most = with(most, __shfl_xor_sync(0xffffffffu, most, half));
        float scale = scale_of(most, grid);
        for (u64 i = lane; i < count; i += 32) {
            u64 at = (top + i / across) * width + left + i % across;
            set_code(to, bits, at, encoded(nearest(number(x, is_bf16, at) * scale, grid), grid, bits));
        }
        if (lane == 0) back[block] = 1.0f / scale;
    }
}

extern "C" __global__ void stored_widened(float* to, const void* x, u32 bits, u64 n, GRID_ARGS) {
    GRID
    for (u64 i = first(); i < n; i += stride())
        to[i] = decoded(bits == 8 ? ((const u8*)x)[i] : ((const u16*)x)[i], grid, bits);
}

// [rows, columns] of bytes to [columns, rows], in tiles of 32 x 32 by 256 threads; a fourth of a word more a line keeps
// columns in different banks.
extern "C" __global__ void __launch_bounds__(256) stored_turned(u8* to, const u8* x, u64 rows, u64 columns) {
    __shared__ u8 tile[32][36];
    u64 top = (u64)blockIdx.y * 32, left = (u64)blockIdx.x * 32;
    u32 line = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (u32 i = line; i < 32; i += 8)
        if (top + i < rows && left + lane < columns) tile[i][lane] = x[(top + i) * columns + left + lane];
    __syncthreads();
    for (u32 i = line; i < 32; i += 8)
        if (left + i < columns && top + lane < rows) to[(left + i) * rows + top + lane] = tile[lane][i];
}
