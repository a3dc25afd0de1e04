// Number formats of at most 16 bits (kernels/src/ops/cast/format.rs): nearest numbers, scales, and the bits that store them.
#pragma once
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

// Bits of a number of the grid in a format with `bits` bits, as torch has them.
__device__ __forceinline__ u32 encoded(float x, Grid grid, u32 bits) {
    u32 size = __float_as_uint(x) & 0x7fffffffu, sign = __float_as_uint(x) >> 31 << (bits - 1), code;
    u32 normal = 1u << (23 - grid.dropped);
    if (size > 0x7f800000u) {
        code = bits == 8 ? 0x7f : 0x7e00;
    } else if (size < grid.least) {
        // the steps from 0 are in the low bits
        code = __float_as_uint(__uint_as_float(size) + grid.steps) - __float_as_uint(grid.steps);
    } else {
        u32 finite = size > grid.largest ? grid.largest : size;
        code = ((finite - grid.least) >> grid.dropped) + normal + (size > grid.largest ? 1 : 0);
    }
    return sign | code;
}

__device__ __forceinline__ float decoded(u32 code, Grid grid, u32 bits) {
    u32 sign = code >> (bits - 1) << 31, normal = 1u << (23 - grid.dropped), size;
    code &= (1u << (bits - 1)) - 1;
    if (code < normal) {
        size = __float_as_uint(__uint_as_float(__float_as_uint(grid.steps) + code) - grid.steps);
    } else {
        size = ((code - normal) << grid.dropped) + grid.least;
        if (size > grid.largest)
            size = grid.beyond == 0x7f800000u && size == grid.largest + (1u << grid.dropped) ? 0x7f800000u : 0x7fc00000u;
    }
    return __uint_as_float(sign | size);
}
