// Products of each expert's rows and its matrix on tensor cores, and the gradients of the matrices. Experts' rows follow
// each other (cuda/groups.cuh); their matrices are separate, at the addresses of a table.
//
// Mapping: a block makes 128 x 128 elements (cuda/mma_product.cuh) of one expert's rows, or of one expert's gradient, whose k
// are the expert's rows: one chain of mma.sync, whatever the leaves are. Tensor cores or the L2 cache bound it.
#include "groups.cuh"
#include "mma_store.cuh"

// y: [rows, n], a: rows in lines along k, w: an address per expert.
template <u32 FACTORS, bool W_ALONG_K>
__device__ __forceinline__ void products(void* y, u32 y_is_bf16, const u8* x, u64 x_line, const Groups& groups,
                                         const u64* w, u64 n, u64 w_line, u64 k) {
    __shared__ __align__(128) Slabs slabs;
    u64 columns = (n + MMA_TILE - 1) / MMA_TILE, column = blockIdx.x % columns * MMA_TILE;
    Group group = group_of(groups, blockIdx.x / columns, MMA_TILE);
    if (group.row >= group.end) return;
    Sums sums;
    clear(sums);
    // padding is zeros, the sums of no products
    bool is_padding = group.expert == groups.experts;
    Lines a = {x, group.end, x_line}, b = {is_padding ? x : (const u8*)w[group.expert], n, w_line};
    add_products<FACTORS, true, W_ALONG_K>(sums, slabs, a, b, group.row, column, 0, is_padding ? 0 : k);
    store_sums(y, y_is_bf16, sums, slabs, group.end, n, group.row, column, {0, nullptr, 0, 0, nullptr});
}

// The letters: whether the lines of x and of w run along k or along the rows.
#define PRODUCTS(NAME, FACTORS, W_ALONG_K)                                                                           \
    extern "C" __global__ void __launch_bounds__(MMA_THREADS, 2)                                                     \
        NAME(void* y, u32 y_is_bf16, const u8* x, u64 x_line, const u32* offsets, u64 experts, u64 rows,             \
             const u64* w, u64 n, u64 w_line, u64 k) {                                                               \
        products<FACTORS, W_ALONG_K>(y, y_is_bf16, x, x_line, {offsets, experts, rows}, w, n, w_line, k);            \
    }

PRODUCTS(grouped_mma_bf16_kk, BF16, true)
PRODUCTS(grouped_mma_bf16_kr, BF16, false)
PRODUCTS(grouped_mma_f16_kk, F16, true)
PRODUCTS(grouped_mma_f16_kr, F16, false)

// dw += a^T b over an expert's rows. a and b: lines along the features; dw: an address per expert.
template <u32 FACTORS>
__device__ __forceinline__ void weights(const u64* dw, const Lines& a, const Lines& b, const u32* offsets) {
    __shared__ __align__(128) Slabs slabs;
    u64 start = offsets[blockIdx.y], end = offsets[blockIdx.y + 1], row, column;
    if (start == end) return;
    tile_of_block(row, column, a.rows, b.rows);
    Sums sums;
    clear(sums);
    add_products<FACTORS, false, false>(sums, slabs, a, b, row, column, start, end);
    store_sums((void*)dw[blockIdx.y], 0, sums, slabs, a.rows, b.rows, row, column, {1, nullptr, 0, 0, nullptr});
}

#define WEIGHTS(NAME, FACTORS)                                                                                       \
    extern "C" __global__ void __launch_bounds__(MMA_THREADS, 2)                                                     \
        NAME(const u64* dw, const u8* a, u64 height, u64 a_line, const u8* b, u64 width, u64 b_line,                 \
             const u32* offsets) {                                                                                   \
        weights<FACTORS>(dw, {a, height, a_line}, {b, width, b_line}, offsets);                                      \
    }

WEIGHTS(grouped_mma_weights_bf16, BF16)
WEIGHTS(grouped_mma_weights_f16, F16)
