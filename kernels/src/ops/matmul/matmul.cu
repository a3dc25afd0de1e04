// c = op(a) op(b) with the sums of matmul/mod.rs: leaves of `leaf` k, each one chain of fused multiply-adds, merged by
// the binary-counter tree.
//
// product_f32_chain is for f32 with one leaf, where no tree is needed (cuda/chain.cuh); the others are for trees.
//
// Mapping of these: a block of 16 x 16 threads makes 64 x 64 elements of c, a thread 4 x 4 of them. Operands go through shared
// memory in slabs of 16 k. Reads 2 * 64 * 16 numbers for 64 * 64 * 16 products, so arithmetic bounds it.
#include "chain_store.cuh"

template <bool PAIRS>
__device__ void multiply(void* c, u32 c_is_bf16, Side a, Side b, u64 k, u64 leaf, Epilogue then) {
    __shared__ Slab as, bs;
    u64 row = (u64)blockIdx.y * TILE, column = (u64)blockIdx.x * TILE;
    u32 tr = threadIdx.x / 16, tc = threadIdx.x % 16;
    Tree tree[EACH][EACH];
    for (u64 start = 0; start < k; start += leaf) {
        float sums[EACH][EACH];
        chains<PAIRS>(sums, as, bs, a, b, row, column, start, start + leaf < k ? start + leaf : k);
        for (u32 i = 0; i < EACH; i++)
            for (u32 j = 0; j < EACH; j++) tree[i][j].push(sums[i][j]);
    }
    for (u32 i = 0; i < EACH; i++) {
        for (u32 j = 0; j < EACH; j++) {
            u64 r = row + tr * EACH + i, n = column + tc * EACH + j;
            if (r >= a.rows || n >= b.rows) continue;
            finish(c, c_is_bf16, r * b.rows + n, n, tree[i][j].finish(), then);
        }
    }
}

#define PRODUCT(NAME, PAIRS)                                                                                         \
    extern "C" __global__ void __launch_bounds__(256)                                                                \
        NAME(void* c, u32 c_is_bf16, const void* a, u32 a_is_bf16, u64 m, u64 a_row, u64 a_k, const void* b,         \
             u32 b_is_bf16, u64 n, u64 b_row, u64 b_k, u64 k, u64 leaf, u32 accumulate, const float* bias, u32 then, \
             u32 kind, void* second) {                                                                               \
        multiply<PAIRS>(c, c_is_bf16, {a, a_is_bf16, m, a_row, a_k}, {b, b_is_bf16, n, b_row, b_k}, k, leaf,         \
                        {accumulate, bias, then, kind, second});                                                     \
    }

// The same numbers as product_f32 with one leaf.
extern "C" __global__ void __launch_bounds__(256, 2)
    product_f32_chain(void* c, u32 c_is_bf16, const void* a, u32 a_is_bf16, u64 m, u64 a_row, u64 a_k, const void* b,
                      u32 b_is_bf16, u64 n, u64 b_row, u64 b_k, u64 k, u32 accumulate, const float* bias, u32 then,
                      u32 kind, void* second) {
    __shared__ __align__(16) ChainSlabs slabs;
    u64 row = (u64)blockIdx.y * CHAIN_TILE, column = (u64)blockIdx.x * CHAIN_TILE;
    ChainSums sums;
    one_chain(sums, slabs, {a, a_is_bf16, m, a_row, a_k}, {b, b_is_bf16, n, b_row, b_k}, row, column, k);
    store_chains(c, c_is_bf16, sums, slabs, m, n, row, column, {accumulate, bias, then, kind, second});
}

PRODUCT(product_f32, false)
PRODUCT(product_bf16_pairs, true)
