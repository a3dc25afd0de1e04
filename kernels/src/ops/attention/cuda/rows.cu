// Rows of attention in other layouts: a thread per number, which is read and written once. Memory bounds all of it.
#include "millrace.cuh"

#define SIDE 32

// kv: [n, groups, 2 width] of packed rows [n, groups, (per + 2) width].
extern "C" __global__ void attention_take_kv(float* kv, const void* qkv, u32 is_bf16, u64 n, u64 per, u64 width) {
    for (u64 i = first(); i < n * 2 * width; i += stride())
        kv[i] = number(qkv, is_bf16, i / (2 * width) * (per + 2) * width + per * width + i % (2 * width));
}

extern "C" __global__ void attention_put_kv(float* qkv, const float* kv, u64 n, u64 per, u64 width) {
    for (u64 i = first(); i < n * 2 * width; i += stride())
        qkv[i / (2 * width) * (per + 2) * width + per * width + i % (2 * width)] = kv[i];
}

// rows: [sequences, t, groups, width2] of dkv: [sequences, groups, t, width2].
extern "C" __global__ void attention_dkv_rows(float* rows, const float* dkv, u64 n, u64 groups, u64 t, u64 width2) {
    for (u64 i = first(); i < n; i += stride()) {
        u64 c = i % width2, group = i / width2 % groups, row = i / width2 / groups;
        rows[i] = dkv[((row / t * groups + group) * t + row % t) * width2 + c];
    }
}

// -0.0 to 0.0.
extern "C" __global__ void attention_unsigned_zeros(float* x, u64 n) {
    for (u64 i = first(); i < n; i += stride()) x[i] = x[i] + 0.0f;
}

// dqkv: [sequences, t, row], its queries of dq: [sequences, heads, leaves, tiles, width, 32].
extern "C" __global__ void attention_write_queries(void* dqkv, u32 is_bf16, const float* dq, u64 sequences, u64 heads,
                                                   u64 per, u64 width, u64 t, u64 row, u64 leaf, u64 leaves, u64 tiles) {
    u64 group_width = row / (heads / per);
    for (u64 i = first(); i < sequences * t * heads * width; i += stride()) {
        u64 c = i % width, head = i / width % heads, r = i / width / heads % t, sequence = i / width / heads / t;
        u64 tile = ((sequence * heads + head) * leaves + r / leaf) * tiles + r % leaf / SIDE;
        float x = dq[(tile * width + c) * SIDE + r % leaf % SIDE];
        u64 to = (sequence * t + r) * row + head / per * group_width + head % per * width + c;
        set_number(dqkv, is_bf16, to, x + 0.0f);
    }
}

// The keys and values of dqkv, of dkv: [sequences, groups, t, 2 width], or 0 without.
extern "C" __global__ void attention_write_kv(void* dqkv, u32 is_bf16, const float* dkv, u64 sequences, u64 groups,
                                              u64 per, u64 width, u64 t) {
    for (u64 i = first(); i < sequences * t * groups * 2 * width; i += stride()) {
        u64 c = i % (2 * width), group = i / (2 * width) % groups, r = i / (2 * width) / groups;
        float x = dkv ? dkv[((r / t * groups + group) * t + r % t) * 2 * width + c] + 0.0f : 0.0f;
        set_number(dqkv, is_bf16, (r * groups + group) * (per + 2) * width + per * width + c, x);
    }
}

// Puts the keys and values of packed rows [tasks, (per + 2) width] at `position` of the caches [tasks, length, width].
extern "C" __global__ void attention_append(float* k_cache, float* v_cache, const float* packed, u64 tasks, u64 per,
                                            u64 width, u64 length, u64 position) {
    for (u64 i = first(); i < tasks * width; i += stride()) {
        u64 task = i / width, c = i % width, to = (task * length + position) * width + c;
        const float* from = packed + (task * (per + 2) + per) * width + c;
        k_cache[to] = from[0];
        v_cache[to] = from[width];
    }
}

// Puts the keys and values of packed rows [n / (groups 2 width), groups, (per + 2) width] in rows `slots` of the cache
// [rows, groups, 2 width].
extern "C" __global__ void attention_put_pages(float* cache, const float* packed, const u32* slots, u64 n, u64 groups,
                                               u64 per, u64 width) {
    for (u64 i = first(); i < n; i += stride()) {
        u64 c = i % (2 * width), group = i / (2 * width) % groups, row = i / (2 * width) / groups;
        cache[((u64)slots[row] * groups + group) * 2 * width + c] =
            packed[(row * groups + group) * (per + 2) * width + per * width + c];
    }
}

// kv: [n / width, width], rows `slots` of the cache [rows, width].
extern "C" __global__ void attention_take_pages(float* kv, const float* cache, const u32* slots, u64 n, u64 width) {
    for (u64 i = first(); i < n; i += stride()) kv[i] = cache[slots[i / width] * width + i % width];
}
