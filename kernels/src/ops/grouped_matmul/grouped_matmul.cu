// The gradient of one expert's weights: dw += the tree over leaves of a^T b, whose leaves are runs of rows of any length.
// The products forward are those of matmul.cu, one launch per expert.
//
// Mapping: tiles of 64 x 64 elements of dw (cuda/product.cuh). Arithmetic bounds it.
#include "product.cuh"

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

// a: [rows, height], b: [rows, width]; the expert's rows start at the pointers. leaves: the rows of each.
template <bool PAIRS>
__device__ __forceinline__ void weights(float* dw, const Side& a, const Side& b, const u32* leaves, u64 count) {
    __shared__ Slab as, bs;
    u64 row = (u64)blockIdx.y * TILE, column = (u64)blockIdx.x * TILE, start = 0;
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
            dw[r * b.rows + n] = dw[r * b.rows + n] + trees.waiting[0][i][j];
        }
    }
}

#define WEIGHTS(NAME, PAIRS)                                                                                          \
    extern "C" __global__ void __launch_bounds__(256) NAME(float* dw, const void* a, u32 a_is_bf16, u64 height,       \
                                                           const void* b, u32 b_is_bf16, u64 width,                   \
                                                           const u32* leaves, u64 count) {                            \
        weights<PAIRS>(dw, {a, a_is_bf16, height, 1, height}, {b, b_is_bf16, width, 1, width}, leaves, count);        \
    }

WEIGHTS(grouped_weights_f32, false)
WEIGHTS(grouped_weights_bf16_pairs, true)
