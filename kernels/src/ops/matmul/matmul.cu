// c = op(a) op(b) with the sums of matmul/mod.rs: leaves of `leaf` k, each one chain of fused multiply-adds, merged by
// the binary-counter tree.
//
// Mapping: a block of 16 x 16 threads makes 64 x 64 elements of c, a thread 4 x 4 of them. Operands go through shared
// memory in slabs of 16 k. Reads 2 * 64 * 16 numbers for 64 * 64 * 16 products, so arithmetic bounds it.
#include "activation.cuh"

#define TILE 64
#define SLAB 16
#define EACH 4

// An operand: element (row, k) is at row * row_stride + k * k_stride.
struct Side {
    const void* x;
    u32 is_bf16;
    u64 rows, row_stride, k_stride;
};

struct Epilogue {
    u32 accumulate;
    const float* bias;
    // what follows the bias: 0 nothing, 1 an activation, 2 a factor
    u32 then, kind;
    void* second;
};

// (a b + c), a result that is tiny after rounding with an unbounded exponent becomes a zero of its sign: the arithmetic
// of vdpbf16ps (kernels/src/cpu/bf16.rs).
__device__ __forceinline__ float flushed_fma(float a, float b, float c) {
    const float scale = 18446744073709551616.0f;
    float result = fmaf(a, b, c);
    float scaled = fmaf(a * scale, b, c * scale);
    float size = larger(scaled, 0.0f - scaled);
    return size < 1.17549435e-38f * scale ? result * 0.0f : result;
}

template <bool PAIRS>
__device__ __forceinline__ void load_slab(float (*to)[TILE + 1], const Side& side, u64 row, u64 k, u64 end) {
    u32 thread = threadIdx.x;
    for (u32 i = thread; i < SLAB * TILE; i += 256) {
        // neighbouring threads read neighbouring numbers
        u32 r = side.k_stride == 1 ? i / SLAB : i % TILE, p = side.k_stride == 1 ? i % SLAB : i / TILE;
        float x = 0.0f;
        if (row + r < side.rows && k + p < end)
            x = number(side.x, side.is_bf16, (row + r) * side.row_stride + (k + p) * side.k_stride);
        to[p][r] = PAIRS ? widen(to_bf16(x)) : x;
    }
}

template <bool PAIRS>
__device__ void multiply(void* c, u32 c_is_bf16, Side a, Side b, u64 k, u64 leaf, Epilogue then) {
    __shared__ float as[SLAB][TILE + 1], bs[SLAB][TILE + 1];
    u64 row = (u64)blockIdx.y * TILE, column = (u64)blockIdx.x * TILE;
    u32 tr = threadIdx.x / 16, tc = threadIdx.x % 16;
    Tree tree[EACH][EACH];
    for (u64 start = 0; start < k; start += leaf) {
        u64 end = start + leaf < k ? start + leaf : k;
        float sums[EACH][EACH] = {};
        for (u64 p = start; p < end; p += SLAB) {
            load_slab<PAIRS>(as, a, row, p, end);
            load_slab<PAIRS>(bs, b, column, p, end);
            __syncthreads();
            u32 count = end - p < SLAB ? (u32)(end - p) : SLAB;
            // a pair is two k, the odd one first; the last one of an odd leaf is filled with zeros
            for (u32 q = 0; q < count; q += PAIRS ? 2 : 1) {
                float x[EACH], y[EACH];
                if (PAIRS) {
                    for (u32 i = 0; i < EACH; i++) x[i] = as[q + 1][tr * EACH + i], y[i] = bs[q + 1][tc * EACH + i];
                    for (u32 i = 0; i < EACH; i++)
                        for (u32 j = 0; j < EACH; j++) sums[i][j] = flushed_fma(x[i], y[j], sums[i][j]);
                }
                for (u32 i = 0; i < EACH; i++) x[i] = as[q][tr * EACH + i], y[i] = bs[q][tc * EACH + i];
                for (u32 i = 0; i < EACH; i++)
                    for (u32 j = 0; j < EACH; j++)
                        sums[i][j] = PAIRS ? flushed_fma(x[i], y[j], sums[i][j]) : fmaf(x[i], y[j], sums[i][j]);
            }
            __syncthreads();
        }
        for (u32 i = 0; i < EACH; i++)
            for (u32 j = 0; j < EACH; j++) tree[i][j].push(sums[i][j]);
    }
    for (u32 i = 0; i < EACH; i++) {
        for (u32 j = 0; j < EACH; j++) {
            u64 r = row + tr * EACH + i, n = column + tc * EACH + j;
            if (r >= a.rows || n >= b.rows) continue;
            u64 at = r * b.rows + n;
            float x = tree[i][j].finish();
            if (then.accumulate) x = ((float*)c)[at] + x;
            if (then.bias) x = x + then.bias[n];
            if (then.then == 1) {
                Activated both = activated(then.kind, x);
                set_number(then.second, c_is_bf16, at, both.value);
                x = both.derivative;
            } else if (then.then == 2) {
                x = x * number(then.second, c_is_bf16, at);
            }
            set_number(c, c_is_bf16, at, x);
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

PRODUCT(product_f32, false)
PRODUCT(product_bf16_pairs, true)
