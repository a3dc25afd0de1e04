// Sums of a product on tensor cores: a block of 8 warps makes 128 x 128 elements, a warp 64 x 32 of them. Factors go
// through shared memory in slabs of 64 bytes of k per row; while one is multiplied, the next two are on their way.
//
// Each element is one chain of mma.sync in ascending k, 16 factors of 16 bits or 32 of 8 an instruction: nothing but k,
// the factors and the card's arithmetic touches its bits.
//
// In shared memory the 16-byte chunks of a slab's lines are swizzled, so that ldmatrix reads eight lines without
// conflicts of banks.
#pragma once
#include "mma.cuh"

#define MMA_TILE 128
#define MMA_STAGES 3
#define MMA_THREADS 256
#define MMA_SLAB_BYTES 8192

// A factor with rows and k: lines that begin at multiples of 16 bytes, along k or along the rows.
struct Lines {
    const u8* x;
    u64 rows, bytes_a_line;
};

// Bytes of a chunk of 16 at `at` that are before `end`.
__device__ __forceinline__ u32 bytes_before(u64 end, u64 at) { return at >= end ? 0 : end - at < 16 ? (u32)(end - at) : 16; }

// Chunk `chunk` of line `line` of a slab: four chunks of k a row, or 16 chunks of rows a k.
template <bool ALONG_K>
__device__ __forceinline__ u32 place(u32 line, u32 chunk) {
    return ALONG_K ? line * 64 + ((chunk ^ (line >> 1 & 3)) << 4) : line * 256 + ((chunk ^ (line & 7)) << 4);
}

// Starts the copy of the slab at k; depth: the number of k.
template <bool ALONG_K, u32 FACTOR_BYTES>
__device__ __forceinline__ void load_slab(u8* to, const Lines& from, u64 row, u64 k, u64 depth) {
    for (u32 i = threadIdx.x; i < MMA_SLAB_BYTES / 16; i += MMA_THREADS) {
        u32 line = ALONG_K ? i / 4 : i / 16, chunk = ALONG_K ? i % 4 : i % 16;
        u64 at_line = (ALONG_K ? row : k) + line;
        u64 at = (ALONG_K ? k : row) * FACTOR_BYTES + chunk * 16;
        u64 lines = ALONG_K ? from.rows : depth, end = (ALONG_K ? depth : from.rows) * FACTOR_BYTES;
        u32 bytes = at_line < lines ? bytes_before(end, at) : 0;
        // nothing is read where there is nothing, but the address has to be one
        copy_16(to + place<ALONG_K>(line, chunk), bytes ? from.x + at_line * from.bytes_a_line + at : from.x, bytes);
    }
}

// 16 rows from `row` of the slab's 32 bytes of k from `step`: rows 0 to 7 and 8 to 15 of the first 16 bytes, then of the
// second. That is the fragment of a; of b two fragments, [0] with [2] and [1] with [3].
template <bool ALONG_K>
__device__ __forceinline__ void fragment(u32 (&to)[4], const u8* slab, u32 row, u32 step) {
    u32 lane = threadIdx.x % 32;
    if (ALONG_K) {
        load_matrices<false>(to, slab + place<true>(row + lane % 16, step * 2 + lane / 16));
    } else {
        load_matrices<true>(to, slab + place<false>(step * 16 + lane % 8 + lane / 16 * 8, row / 8 + lane / 8 % 2));
    }
}

// A warp's elements: [i][j] is the fragment of rows 16 i and columns 8 j of its tile.
typedef float Sums[4][4][4];

// The first row and column of the warp's tile in the block's.
__device__ __forceinline__ u32 warp_row() { return threadIdx.x / 128 * 64; }
__device__ __forceinline__ u32 warp_column() { return threadIdx.x / 32 % 4 * 32; }

typedef u8 Slabs[MMA_STAGES][2][MMA_SLAB_BYTES];

// Adds to sums the products of k from `start` to below `end`. Ends with a barrier, after which the slabs are free.
template <u32 FACTORS, bool A_ALONG_K, bool B_ALONG_K>
__device__ __forceinline__ void add_products(Sums& sums, Slabs& slabs, const Lines& a, const Lines& b, u64 row,
                                             u64 column, u64 start, u64 end) {
    const u32 factor_bytes = bytes_of(FACTORS), depth = 64 / factor_bytes;
    static_assert(factor_bytes == 2 || (A_ALONG_K && B_ALONG_K), "ldmatrix transposes factors of 16 bits alone");
    u64 count = (end - start + depth - 1) / depth;
    // tiles past the matrix take part in copies and barriers alone
    bool has_work = row + warp_row() < a.rows && column + warp_column() < b.rows;
    for (u32 stage = 0; stage < MMA_STAGES - 1; stage++) {
        if (stage < count) {
            load_slab<A_ALONG_K, factor_bytes>(slabs[stage][0], a, row, start + stage * depth, end);
            load_slab<B_ALONG_K, factor_bytes>(slabs[stage][1], b, column, start + stage * depth, end);
        }
        copies_end();
    }
    u32 stage = 0, free = MMA_STAGES - 1;
    for (u64 slab = 0; slab < count; slab++) {
        copies_left<MMA_STAGES - 2>();
        // this slab is there, and all threads are done with the one whose place the next copy takes
        __syncthreads();
        u64 next = slab + MMA_STAGES - 1;
        if (next < count) {
            load_slab<A_ALONG_K, factor_bytes>(slabs[free][0], a, row, start + next * depth, end);
            load_slab<B_ALONG_K, factor_bytes>(slabs[free][1], b, column, start + next * depth, end);
        }
        copies_end();
        if (has_work) {
#pragma unroll(bytes_of(FACTORS))
            for (u32 step = 0; step < 2; step++) {
                u32 of_a[4], of_b[2][4];
#pragma unroll
                for (u32 j = 0; j < 2; j++) fragment<B_ALONG_K>(of_b[j], slabs[stage][1], warp_column() + 16 * j, step);
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    fragment<A_ALONG_K>(of_a, slabs[stage][0], warp_row() + 16 * i, step);
#pragma unroll
                    for (u32 j = 0; j < 4; j++)
                        mma<FACTORS>(sums[i][j], of_a, of_b[j / 2][j % 2], of_b[j / 2][j % 2 + 2]);
                }
            }
        }
        stage = stage + 1 == MMA_STAGES ? 0 : stage + 1;
        free = free + 1 == MMA_STAGES ? 0 : free + 1;
    }
    copies_left<0>();
    __syncthreads();
}

// The block's tile: eight rows of tiles share the columns' factors while these are in the L2 cache.
__device__ __forceinline__ void tile_of_block(u64& row, u64& column, u64 rows, u64 columns) {
    u64 down = (rows + MMA_TILE - 1) / MMA_TILE, across = (columns + MMA_TILE - 1) / MMA_TILE;
    u64 band = blockIdx.x / (8 * across), within = blockIdx.x % (8 * across), height = down - band * 8;
    if (height > 8) height = 8;
    row = (band * 8 + within % height) * MMA_TILE;
    column = within / height * MMA_TILE;
}
