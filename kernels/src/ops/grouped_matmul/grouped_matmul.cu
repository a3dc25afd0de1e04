// Products of each expert's rows and its matrix, and the gradients of the matrices, in f32 and in bf16 pairs. Experts' rows
// follow each other (cuda/groups.cuh); their matrices are separate, at the addresses of a table.
//
// Mapping: forward a block makes a tile of one expert's rows, as matmul.cu does, and the sums are those of its kernels:
// the tree over leaves of k, or one chain. Of a gradient, dw += the tree over leaves of a^T b, whose leaves are runs of rows
// of any length, a block makes 64 x 64 elements (cuda/product.cuh). Arithmetic bounds all.
#include "chain_store.cuh"
#include "groups.cuh"

// Zeros where the rows of a tile are padding.
__device__ __forceinline__ void clear_rows(void* y, u32 y_is_bf16, const Group& group, u32 tile, u64 column, u64 n) {
    u64 rows = group.end - group.row < tile ? group.end - group.row : tile;
    for (u64 i = threadIdx.x; i < rows * tile; i += blockDim.x)
        if (column + i % tile < n) set_number(y, y_is_bf16, (group.row + i / tile) * n + column + i % tile, 0.0f);
}

// Address of element `at` of f32 or bf16.
__device__ __forceinline__ void* moved(const void* x, u32 is_bf16, u64 at) { return (u8*)x + at * (is_bf16 ? 2 : 4); }

// A matrix of a table of addresses: w[expert], element (column n, k) at n * row + k * k_stride.
struct Matrices {
    const u64* w;
    u32 is_bf16;
    u64 n, row_stride, k_stride;

    __device__ __forceinline__ Side of(u64 expert) const {
        return {(const void*)w[expert], is_bf16, n, row_stride, k_stride};
    }
};

// y: [rows, n], x: [rows, k].
template <bool PAIRS>
__device__ __forceinline__ void products(void* y, u32 y_is_bf16, const void* x, u32 x_is_bf16, const Groups& groups,
                                         const Matrices& w, u64 k, u64 leaf) {
    __shared__ Slab as, bs;
    u64 columns = (w.n + TILE - 1) / TILE, column = blockIdx.x % columns * TILE;
    Group group = group_of(groups, blockIdx.x / columns, TILE);
    if (group.row >= group.end) return;
    if (group.expert == groups.experts) return clear_rows(y, y_is_bf16, group, TILE, column, w.n);
    u64 rows = group.end - group.row;
    Side a = {moved(x, x_is_bf16, group.row * k), x_is_bf16, rows, k, 1}, b = w.of(group.expert);
    y = moved(y, y_is_bf16, group.row * w.n);
    Tree tree[EACH][EACH];
    for (u64 start = 0; start < k; start += leaf) {
        float sums[EACH][EACH];
        chains<PAIRS>(sums, as, bs, a, b, 0, column, start, start + leaf < k ? start + leaf : k);
        for (u32 i = 0; i < EACH; i++)
            for (u32 j = 0; j < EACH; j++) tree[i][j].push(sums[i][j]);
    }
    for (u32 i = 0; i < EACH; i++) {
        for (u32 j = 0; j < EACH; j++) {
            u64 r = threadIdx.x / 16 * EACH + i, c = column + threadIdx.x % 16 * EACH + j;
            if (r < rows && c < w.n) set_number(y, y_is_bf16, r * w.n + c, tree[i][j].finish());
        }
    }
}

#define PRODUCTS(NAME, PAIRS)                                                                                         \
    extern "C" __global__ void __launch_bounds__(256, 3)                                                              \
        NAME(void* y, u32 y_is_bf16, const void* x, u32 x_is_bf16, const u32* offsets, u64 experts, u64 rows,         \
             const u64* w, u32 w_is_bf16, u64 n, u64 w_row, u64 w_k, u64 k, u64 leaf) {                               \
        products<PAIRS>(y, y_is_bf16, x, x_is_bf16, {offsets, experts, rows}, {w, w_is_bf16, n, w_row, w_k}, k,       \
                        leaf);                                                                                        \
    }

PRODUCTS(grouped_f32, false)
PRODUCTS(grouped_bf16_pairs, true)

// The numbers of grouped_f32 with one leaf.
extern "C" __global__ void __launch_bounds__(256, 2)
    grouped_f32_chain(void* y, u32 y_is_bf16, const void* x, u32 x_is_bf16, const u32* offsets, u64 experts, u64 rows,
                      const u64* w, u32 w_is_bf16, u64 n, u64 w_row, u64 w_k, u64 k) {
    __shared__ __align__(16) ChainSlabs slabs;
    u64 columns = (n + CHAIN_TILE - 1) / CHAIN_TILE, column = blockIdx.x % columns * CHAIN_TILE;
    Group group = group_of({offsets, experts, rows}, blockIdx.x / columns, CHAIN_TILE);
    if (group.row >= group.end) return;
    if (group.expert == experts) return clear_rows(y, y_is_bf16, group, CHAIN_TILE, column, n);
    Matrices matrices = {w, w_is_bf16, n, w_row, w_k};
    Side a = {moved(x, x_is_bf16, group.row * k), x_is_bf16, group.end - group.row, k, 1};
    y = moved(y, y_is_bf16, group.row * n);
    ChainSums sums;
    one_chain(sums, slabs, a, matrices.of(group.expert), 0, column, k);
    store_chains(y, y_is_bf16, sums, slabs, a.rows, n, 0, column, {0, nullptr, 0, 0, nullptr});
}

// The tree in which empty leaves are left out, for all of a thread's elements: SparseTree of cuda/millrace.cuh.
struct Trees {
    float waiting[40][EACH][EACH];
    u64 numbers[40];
    u32 count = 0;

    __device__ __forceinline__ void merge_last() {
        count--;
        for (u32 i = 0; i < EACH; i++)
            for (u32 j = 0; j < EACH; j++)
                waiting[count - 1][i][j] = waiting[count - 1][i][j] + waiting[count][i][j];
    }

    __device__ __forceinline__ void push(u64 number, const float (&leaf)[EACH][EACH]) {
        while (count > 1 && (numbers[count - 2] ^ numbers[count - 1]) < (numbers[count - 1] ^ number)) merge_last();
        for (u32 i = 0; i < EACH; i++)
            for (u32 j = 0; j < EACH; j++) waiting[count][i][j] = leaf[i][j];
        numbers[count++] = number;
    }
};

// a: [rows, height], b: [rows, width]; leaves: [experts, count], the rows of each; dw: an address per expert.
template <bool PAIRS>
__device__ __forceinline__ void weights(const u64* dw, Side a, Side b, const u32* offsets, const u32* leaves,
                                        u64 count) {
    __shared__ Slab as, bs;
    u64 row = (u64)blockIdx.y * TILE, column = (u64)blockIdx.x * TILE, start = offsets[blockIdx.z];
    float* to = (float*)dw[blockIdx.z];
    a.x = moved(a.x, a.is_bf16, start * a.rows), b.x = moved(b.x, b.is_bf16, start * b.rows);
    leaves += blockIdx.z * count;
    start = 0;
    Trees trees;
    for (u64 leaf = 0; leaf < count; leaf++) {
        u64 end = start + leaves[leaf];
        if (end == start) continue;
        float sums[EACH][EACH];
        chains<PAIRS>(sums, as, bs, a, b, row, column, start, end);
        trees.push(leaf, sums);
        start = end;
    }
    if (trees.count == 0) return;
    while (trees.count > 1) trees.merge_last();
    for (u32 i = 0; i < EACH; i++) {
        for (u32 j = 0; j < EACH; j++) {
            u64 r = row + threadIdx.x / 16 * EACH + i, n = column + threadIdx.x % 16 * EACH + j;
            if (r >= a.rows || n >= b.rows) continue;
            to[r * b.rows + n] = to[r * b.rows + n] + trees.waiting[0][i][j];
        }
    }
}

#define WEIGHTS(NAME, PAIRS)                                                                                          \
    extern "C" __global__ void __launch_bounds__(256, 3)                                                              \
        NAME(const u64* dw, const void* a, u32 a_is_bf16, u64 height, const void* b, u32 b_is_bf16, u64 width,        \
             const u32* offsets, const u32* leaves, u64 count) {                                                      \
        weights<PAIRS>(dw, {a, a_is_bf16, height, 1, height}, {b, b_is_bf16, width, 1, width}, offsets, leaves,       \
                       count);                                                                                        \
    }

WEIGHTS(grouped_weights_f32, false)
WEIGHTS(grouped_weights_bf16_pairs, true)
