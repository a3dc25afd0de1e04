// Rounding to a smaller number format, kept as f32: elementwise, in integers, as cpu.rs. 8 bytes of memory per number
// bound it; rows and blocks with a scale of their own are read twice.
#include "grid.cuh"

extern "C" __global__ void cast_round(float* y, const float* x, u64 n, GRID_ARGS) {
    GRID
    for (u64 i = first(); i < n; i += stride()) y[i] = nearest(x[i], grid);
}

extern "C" __global__ void cast_to_bf16(u16* y, const float* x, u64 n) {
    for (u64 i = first(); i < n; i += stride()) y[i] = to_bf16(x[i]);
}

// A warp per row.
extern "C" __global__ void cast_row_amax(float* amax, const float* x, u64 rows, u64 columns) {
    u32 lane = threadIdx.x % 32;
    for (u64 row = first() / 32; row < rows; row += stride() / 32) {
        float most = 0.0f;
        for (u64 c = lane; c < columns; c += 32) most = with(most, x[row * columns + c]);
        for (int width = 16; width > 0; width /= 2) most = with(most, __shfl_xor_sync(0xffffffffu, most, width));
        if (lane == 0) amax[row] = most;
    }
}

// amax: of each row, or one of all.
extern "C" __global__ void cast_scaled_rows(float* y, const float* x, u64 n, u64 columns, const float* amax,
                                            u64 amax_count, GRID_ARGS) {
    GRID
    for (u64 i = first(); i < n; i += stride()) {
        u64 row = i / columns;
        float scale = scale_of(amax[row < amax_count ? row : amax_count - 1], grid);
        y[i] = nearest(x[i] * scale, grid) * (1.0f / scale);
    }
}

extern "C" __global__ void cast_scaled(float* y, const float* x, u64 n, GRID_ARGS, float scale) {
    GRID
    float back = 1.0f / scale;
    for (u64 i = first(); i < n; i += stride()) y[i] = nearest(x[i] * scale, grid) * back;
}

// Blocks between borders of rows and of columns; a warp per block.
extern "C" __global__ void cast_scaled_blocks(float* y, const float* x, u64 width, const u32* rows, u64 row_blocks,
                                              const u32* columns, u64 column_blocks, GRID_ARGS) {
    GRID
    u32 lane = threadIdx.x % 32;
    for (u64 block = first() / 32; block < row_blocks * column_blocks; block += stride() / 32) {
        u64 r = block / column_blocks, c = block % column_blocks;
        u32 top = rows[r], height = rows[r + 1] - top, left = columns[c], across = columns[c + 1] - left;
        u64 count = (u64)height * across;
        float most = 0.0f;
        for (u64 i = lane; i < count; i += 32) most = with(most, x[(top + i / across) * width + left + i % across]);
        for (int half = 16; half > 0; half /= 2) most = with(most, __shfl_xor_sync(0xffffffffu, most, half));
        float scale = scale_of(most, grid), back = 1.0f / scale;
        for (u64 i = lane; i < count; i += 32) {
            u64 at = (top + i / across) * width + left + i % across;
            y[at] = nearest(x[at] * scale, grid) * back;
        }
    }
}
