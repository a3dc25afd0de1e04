// Sums and maxima of the numbers of several ranks, a thread per element: 4 bytes read for each rank and 4 written bound them.
// The numbers of the ranks are anywhere (up to 8), or one behind the other.
#include "millrace.cuh"

// Parts by rank.
struct Parts {
    const float* at[8];
    const float* rows;
    u64 stride;

    __device__ __forceinline__ float part(u32 rank, u64 i) const {
        return rows ? rows[rank * stride + i] : at[rank][i];
    }
};

__device__ __forceinline__ void add(float* out, const Parts& parts, u32 count, u64 n) {
    for (u64 i = first(); i < n; i += stride()) {
        Tree tree;
        for (u32 rank = 0; rank < count; rank++) tree.push(parts.part(rank, i));
        out[i] = tree.finish();
    }
}

// NaN if one is, as kernels/src/comm/sum.rs has it.
__device__ __forceinline__ void maximum(float* out, const Parts& parts, u32 count, u64 n) {
    for (u64 i = first(); i < n; i += stride()) {
        float most = parts.part(0, i);
        for (u32 rank = 1; rank < count; rank++) {
            float x = parts.part(rank, i);
            most = x > most || x != x ? x : most;
        }
        out[i] = most;
    }
}

extern "C" __global__ void add_parts(float* out, const float* a, const float* b, const float* c, const float* d,
                                     const float* e, const float* f, const float* g, const float* h, u32 count, u64 n) {
    add(out, Parts{{a, b, c, d, e, f, g, h}, 0, 0}, count, n);
}

extern "C" __global__ void add_rows(float* out, const float* rows, u64 step, u32 count, u64 n) {
    add(out, Parts{{}, rows, step}, count, n);
}

extern "C" __global__ void largest_of_parts(float* out, const float* a, const float* b, const float* c, const float* d,
                                            const float* e, const float* f, const float* g, const float* h, u32 count,
                                            u64 n) {
    maximum(out, Parts{{a, b, c, d, e, f, g, h}, 0, 0}, count, n);
}

extern "C" __global__ void largest_of_rows(float* out, const float* rows, u64 step, u32 count, u64 n) {
    maximum(out, Parts{{}, rows, step}, count, n);
}
