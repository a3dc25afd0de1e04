// Rounding to a smaller number format, kept as f32: elementwise, in integers, as cpu.rs. 8 bytes of memory per number
// bound it; rows and blocks with a scale of their own are read twice.
#include "millrace.cuh"

struct Grid {
    u32 dropped, least;
    float steps;
    u32 largest, beyond;
};

__device__ __forceinline__ float nearest(float x, Grid grid) {
    u32 size = __float_as_uint(x) & 0x7fffffffu;
    u32 is_odd = (size >> grid.dropped) & 1;
    u32 half = (1u << (grid.dropped - 1)) - 1 + is_odd;
    u32 normal = (size + half) & ~((1u << grid.dropped) - 1);
    float small = (__uint_as_float(size) + grid.steps) - grid.steps;
    u32 near = size < grid.least ? __float_as_uint(small) : normal;
    if (near > grid.largest) near = grid.beyond;
    if (size > 0x7f800000u) near = 0x7fc00000u;
    return __uint_as_float((__float_as_uint(x) & 0x80000000u) | near);
}

// The largest power of two by which amax may be multiplied; 1 where there is nothing to scale.
__device__ __forceinline__ float scale_of(float amax, Grid grid) {
    u32 bits = __float_as_uint(amax);
    if (amax == 0.0f || (bits & 0x7f800000u) == 0x7f800000u) return 1.0f;
    int power = (int)(grid.largest >> 23) - (int)(bits >> 23) - ((bits & 0x7fffffu) > (grid.largest & 0x7fffffu));
    power = power < -126 ? -126 : power > 126 ? 126 : power;
    return __uint_as_float((u32)(127 + power) << 23);
}

// A grid as a kernel's arguments.
#define GRID_ARGS u32 dropped, u32 least, float steps, u32 largest, u32 beyond
#define GRID const Grid grid = {dropped, least, steps, largest, beyond};

// The size of x if it is larger; NaN does not count.
__device__ __forceinline__ float with(float most, float x) {
    float size = fabsf(x);
    return size > most ? size : most;
}

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
