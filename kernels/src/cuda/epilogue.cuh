// What follows the sums of a product, in f32: bias, an activation with its derivative or a factor, rounding last.
#pragma once
#include "activation.cuh"

struct Epilogue {
    u32 accumulate;
    const float* bias;
    // what follows the bias: 0 nothing, 1 an activation, 2 a factor
    u32 then, kind;
    void* second;
};

// c[at], in column `column`, from its sum x.
__device__ __forceinline__ void finish(void* c, u32 c_is_bf16, u64 at, u64 column, float x, const Epilogue& then) {
    if (then.accumulate) x = ((float*)c)[at] + x;
    if (then.bias) x = x + then.bias[column];
    if (then.then == 1) {
        Activated both = activated(then.kind, x);
        set_number(then.second, c_is_bf16, at, both.value);
        x = both.derivative;
    } else if (then.then == 2) {
        x = x * number(then.second, c_is_bf16, at);
    }
    set_number(c, c_is_bf16, at, x);
}

// Two numbers of one row at an even place, in one access.
struct Two {
    float x, y;
};

__device__ __forceinline__ Two two(const void* from, u32 is_bf16, u64 at) {
    if (is_bf16) {
        u32 both = *(const u32*)((const u16*)from + at);
        return {widen((u16)both), widen((u16)(both >> 16))};
    }
    float2 both = *(const float2*)((const float*)from + at);
    return {both.x, both.y};
}

__device__ __forceinline__ void set_two(void* to, u32 is_bf16, u64 at, Two value) {
    if (is_bf16) {
        *(u32*)((u16*)to + at) = (u32)to_bf16(value.x) | (u32)to_bf16(value.y) << 16;
    } else {
        *(float2*)((float*)to + at) = make_float2(value.x, value.y);
    }
}

// finish of c[row][column] and its right neighbour, of which those in the matrix are stored; column is even.
__device__ __forceinline__ void finish_two(void* c, u32 c_is_bf16, u64 row, u64 column, u64 width, Two x,
                                           const Epilogue& then) {
    u64 at = row * width + column;
    if (width % 2) {
        if (column < width) finish(c, c_is_bf16, at, column, x.x, then);
        if (column + 1 < width) finish(c, c_is_bf16, at + 1, column + 1, x.y, then);
        return;
    }
    if (column >= width) return;
    if (then.accumulate) {
        Two old = two(c, 0, at);
        x = {old.x + x.x, old.y + x.y};
    }
    if (then.bias) x = {x.x + then.bias[column], x.y + then.bias[column + 1]};
    if (then.then == 1) {
        Activated first = activated(then.kind, x.x), second = activated(then.kind, x.y);
        set_two(then.second, c_is_bf16, at, {first.value, second.value});
        x = {first.derivative, second.derivative};
    } else if (then.then == 2) {
        Two by = two(then.second, c_is_bf16, at);
        x = {x.x * by.x, x.y * by.y};
    }
    set_two(c, c_is_bf16, at, x);
}
