// Rotary positions of packed rows in place: a thread per pair of a query or key head; the operations are those of
// cpu/rotary.rs. 16 bytes of memory per pair bound it, cosines and sines come from the cache.
#include "millrace.cuh"

// table: per position `half` cosines, then as many sines. A row's position is positions[row], or row % t without.
// A group's slots are its `per` query heads, its key and its value, which stays.
extern "C" __global__ void rope_turn(float* qkv, const float* table, const u32* positions, u64 t, u64 rows, u64 groups,
                                     u64 per, u64 width, u64 half, float direction) {
    u64 heads = groups * (per + 1), packed = groups * (per + 2) * width;
    for (u64 i = first(); i < rows * heads * half; i += stride()) {
        u64 pair = i % half, head = i / half % heads, row = i / half / heads;
        const float* angles = table + (positions ? positions[row] : row % t) * 2 * half;
        float cosine = angles[pair], sine = angles[half + pair] * direction;
        float* left = qkv + row * packed + (head / (per + 1) * (per + 2) + head % (per + 1)) * width + pair;
        float a = left[0], b = left[half];
        left[0] = a * cosine - b * sine;
        left[half] = b * cosine + a * sine;
    }
}
