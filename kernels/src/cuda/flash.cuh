// What the tensor-core kernels of attention share (FlashAttention-2, Dao 2023, arXiv:2307.08691): tiles of queries, keys
// and gradients in shared memory, and the keys that rows attend to.
//
// A block has four warps. A warp has 16 rows of the first factor (query rows, or keys in the gradients of keys and
// values); its sums stay in registers. WIDTH is the width of a head, rounded up to 64 or 128 and filled with zeros.
// Sums run in the order of the loops and of `mma.sync`, so two runs have the same bits.
#pragma once
#include "attention.cuh"
#include "mma.cuh"

#define WARPS 4
#define THREADS (32 * WARPS)
// Rows of the first factor.
#define ROWS (16 * WARPS)

// Element (row, column) of a tile. Its 16-byte chunks are swizzled, so that the eight rows of a matrix of ldmatrix come
// from different banks.
template <u32 WIDTH>
__device__ __forceinline__ u32 swizzled(u32 row, u32 column) {
    return row * WIDTH + ((column / 8) ^ (row % 8)) * 8 + column % 8;
}

// The first factor: rows row .. row + 15 and columns column .. column + 15 of a tile.
template <u32 WIDTH>
__device__ __forceinline__ void load_rows(u32 (&a)[4], const u16* tile, u32 row, u32 column) {
    u32 lane = threadIdx.x % 32;
    load_matrices<false>(a, tile + swizzled<WIDTH>(row + lane % 16, column + lane / 16 * 8));
}

// Two second factors side by side, [0] with [1] and [2] with [3]: of the product with a tile's transpose, columns row ..
// row + 15 of it, features column .. column + 15.
template <u32 WIDTH>
__device__ __forceinline__ void load_transpose(u32 (&b)[4], const u16* tile, u32 row, u32 column) {
    u32 lane = threadIdx.x % 32;
    load_matrices<false>(b, tile + swizzled<WIDTH>(row + lane / 16 * 8 + lane % 8, column + lane / 8 % 2 * 8));
}

// The same of the product with a tile: its rows row .. row + 15 and columns column .. column + 15.
template <u32 WIDTH>
__device__ __forceinline__ void load_columns(u32 (&b)[4], const u16* tile, u32 row, u32 column) {
    u32 lane = threadIdx.x % 32;
    load_matrices<true>(b, tile + swizzled<WIDTH>(row + lane / 8 % 2 * 8 + lane % 8, column + lane / 16 * 8));
}

// e^x of a score less the largest one.
__device__ __forceinline__ float exp_of(float x) { return exp2_approx(x * 1.44269504089f); }

// Copies rows row .. row + rows of a matrix to a tile of `size` rows, zeros beyond. Waits for nobody.
template <u32 FACTORS, u32 WIDTH>
__device__ __forceinline__ void load_tile(u16* tile, u32 size, const Matrix& from, u64 row, u32 rows, u64 width) {
    const u16* halves = (const u16*)from.x + from.first;
    // chunks of bf16 can be copied as they are, if they start at multiples of 16 bytes
    bool is_aligned = ((u64)halves | from.stride * 2 | width * 2) % 16 == 0;
    bool is_copied = FACTORS == BF16 && from.is_bf16 && is_aligned;
    for (u32 i = threadIdx.x; i < size * (WIDTH / 8); i += THREADS) {
        u32 r = i / (WIDTH / 8), column = i % (WIDTH / 8) * 8;
        u16* to = tile + swizzled<WIDTH>(r, column);
        bool is_there = r < rows && column < width;
        u64 at = (row + r) * from.stride + column;
        if (is_copied) {
            copy_16(to, is_there ? halves + at : halves, is_there ? 16 : 0);
            continue;
        }
        float x[8];
        for (u32 j = 0; j < 8; j++)
            x[j] = is_there && column + j < width ? number(from.x, from.is_bf16, from.first + at + j) : 0.0f;
        for (u32 j = 0; j < 8; j += 2) *(u32*)(to + j) = factor_pair<FACTORS>(x[j], x[j + 1]);
    }
}

// The keys that each of a tile's rows attends to; none if start and end are equal. Positions are below 2^32.
template <u32 COUNT>
struct Seen {
    u32 start[COUNT], end[COUNT];
};

// Fills `seen` for rows first .. first + count and returns the keys from the first to the last that any attends to.
// All threads take part; waits for them before and after.
template <u32 COUNT>
__device__ __forceinline__ Range seen_by_rows(Seen<COUNT>& seen, const Call& call, u64 sequence, u64 first, u32 count) {
    __syncthreads();
    for (u32 i = threadIdx.x; i < COUNT; i += THREADS) {
        Range range = {0, 0};
        if (i < count) range = seen_by(call, sequence, first + i);
        seen.start[i] = (u32)range.start;
        seen.end[i] = (u32)range.end;
    }
    __syncthreads();
    u64 from = ~0ull, to = 0;
    for (u32 i = threadIdx.x % 32; i < COUNT; i += 32) {
        if (seen.start[i] == seen.end[i]) continue;
        from = least_of(from, seen.start[i]);
        to = most_of(to, seen.end[i]);
    }
    for (int width = 16; width > 0; width /= 2) {
        from = least_of(from, __shfl_xor_sync(0xffffffffu, from, width));
        to = most_of(to, __shfl_xor_sync(0xffffffffu, to, width));
    }
    if (to == 0) return {0, 0};
    // tiles of keys start at multiples of their size
    return {call.start + (from - call.start) / ROWS * ROWS, to};
}

// The score of a product before the mask.
__device__ __forceinline__ float scaled_score(const Call& call, u64 head, u64 row, u64 key, float product) {
    if (call.slopes) return fmaf(product, call.scale, linear_bias(call, head, row, key));
    if (!call.table) return product * call.scale;
    return fmaf(product, call.scale, call.table[head * call.buckets + call.numbers[row + call.total - 1 - key]]);
}

// Dropout's factor of a probability.
__device__ __forceinline__ float kept_factor(const Call& call, const Head& of, u64 row, u64 key) {
    return dropout_factor_at(of.dropout, key, (u32)(call.position + row), call.first_sequence + of.sequence);
}

// Largest of the four lanes that share a row of a product's sums; their sum.
__device__ __forceinline__ float largest_of_quad(float x) {
    x = larger(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return larger(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float sum_of_quad(float x) {
    x = x + __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// sums = a tile's 16 rows (in registers, all WIDTH columns) times the transpose of N * 8 rows of another.
template <u32 FACTORS, u32 WIDTH, u32 N>
__device__ __forceinline__ void products_of_rows(float (&sums)[N][4], const u32 (&rows)[WIDTH / 16][4], const u16* tile) {
#pragma unroll
    for (u32 n = 0; n < N; n++)
        for (u32 e = 0; e < 4; e++) sums[n][e] = 0.0f;
#pragma unroll
    for (u32 k = 0; k < WIDTH / 16; k++) {
#pragma unroll
        for (u32 n = 0; n < N; n += 2) {
            u32 b[4];
            load_transpose<WIDTH>(b, tile, n * 8, k * 16);
            mma<FACTORS>(sums[n], rows[k], b[0], b[1]);
            mma<FACTORS>(sums[n + 1], rows[k], b[2], b[3]);
        }
    }
}

// sums += weights (16 x N * 8, sums of a product) times N * 8 rows of a tile.
template <u32 FACTORS, u32 WIDTH, u32 N>
__device__ __forceinline__ void add_products(float (&sums)[WIDTH / 8][4], const float (&weights)[N][4], const u16* tile) {
#pragma unroll
    for (u32 k = 0; k < N / 2; k++) {
        // the sums of two tiles of 8 columns are where the first factor of the next product is to be
        u32 a[4];
        const float(&left)[4] = weights[2 * k], (&right)[4] = weights[2 * k + 1];
        a[0] = factor_pair<FACTORS>(left[0], left[1]), a[1] = factor_pair<FACTORS>(left[2], left[3]);
        a[2] = factor_pair<FACTORS>(right[0], right[1]), a[3] = factor_pair<FACTORS>(right[2], right[3]);
#pragma unroll
        for (u32 n = 0; n < WIDTH / 8; n += 2) {
            u32 b[4];
            load_columns<WIDTH>(b, tile, k * 16, n * 8);
            mma<FACTORS>(sums[n], a, b[0], b[1]);
            mma<FACTORS>(sums[n + 1], a, b[2], b[3]);
        }
    }
}
