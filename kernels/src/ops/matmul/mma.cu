// c = a b^T on tensor cores (cuda/mma_product.cuh), and the copies of factors that it reads. Operands of 16 bits whose
// lines begin at multiples of 16 bytes are read as they are.
//
// Reads 2 * 128 * k factors for 128 * 128 * k products a block: 64 products a byte from the L2 cache, at most a card's
// balance, so the tensor cores or the cache bound it.
#include "mma_store.cuh"

template <u32 FACTORS, bool A_ALONG_K, bool B_ALONG_K>
__device__ __forceinline__ void multiply(void* c, u32 c_is_bf16, Lines a, Lines b, u64 k, Epilogue then) {
    __shared__ __align__(128) Slabs slabs;
    u64 row, column;
    tile_of_block(row, column, a.rows, b.rows);
    Sums sums;
    clear(sums);
    add_products<FACTORS, A_ALONG_K, B_ALONG_K>(sums, slabs, a, b, row, column, 0, k);
    store_sums(c, c_is_bf16, sums, slabs, a.rows, b.rows, row, column, then);
}

#define PRODUCT(NAME, FACTORS, A_ALONG_K, B_ALONG_K)                                                                 \
    extern "C" __global__ void __launch_bounds__(MMA_THREADS, 2)                                                     \
        NAME(void* c, u32 c_is_bf16, const u8* a, u64 m, u64 a_line, const u8* b, u64 n, u64 b_line, u64 k,          \
             u32 accumulate, const float* bias, u32 then, u32 kind, void* second) {                                  \
        multiply<FACTORS, A_ALONG_K, B_ALONG_K>(c, c_is_bf16, {a, m, a_line}, {b, n, b_line}, k,                     \
                                                {accumulate, bias, then, kind, second});                             \
    }

// The letters: whether the lines of a and of b run along k or along the rows.
PRODUCT(product_mma_bf16_kk, BF16, true, true)
PRODUCT(product_mma_bf16_kr, BF16, true, false)
PRODUCT(product_mma_bf16_rk, BF16, false, true)
PRODUCT(product_mma_bf16_rr, BF16, false, false)
PRODUCT(product_mma_f16_kk, F16, true, true)
PRODUCT(product_mma_f16_kr, F16, true, false)
PRODUCT(product_mma_f16_rk, F16, false, true)
PRODUCT(product_mma_f16_rr, F16, false, false)

// Factors of 16 bits from lines of `width` numbers, `line` apart, in lines of `padded`, a multiple of 8, the rest zeros. A thread
// makes 8. Reads 4 or 2 bytes and writes 2 a number: memory bounds it.
template <u32 FACTORS>
__device__ __forceinline__ void pack(uint4* to, const void* x, u32 is_bf16, u64 lines, u64 width, u64 line,
                                     u64 padded) {
    u64 chunks = padded / 8;
    bool whole = width % 8 == 0 && line % 8 == 0 && (u64)x % 16 == 0;
    for (u64 i = first(); i < lines * chunks; i += stride()) {
        u64 column = i % chunks * 8, at = i / chunks * line + column;
        float of[8];
        if (whole && !is_bf16) {
            float4 low = ((const float4*)x)[at / 4], high = ((const float4*)x)[at / 4 + 1];
            of[0] = low.x, of[1] = low.y, of[2] = low.z, of[3] = low.w;
            of[4] = high.x, of[5] = high.y, of[6] = high.z, of[7] = high.w;
        } else {
#pragma unroll
            for (u32 e = 0; e < 8; e++) of[e] = column + e < width ? number(x, is_bf16, at + e) : 0.0f;
        }
        u32 words[4];
#pragma unroll
        for (u32 e = 0; e < 4; e++) {
            u16 low = FACTORS == F16 ? to_f16(of[2 * e]) : to_bf16(of[2 * e]);
            u16 high = FACTORS == F16 ? to_f16(of[2 * e + 1]) : to_bf16(of[2 * e + 1]);
            words[e] = (u32)low | (u32)high << 16;
        }
        to[i] = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

extern "C" __global__ void mma_pack_bf16(uint4* to, const void* x, u32 is_bf16, u64 lines, u64 width, u64 line,
                                         u64 padded) {
    pack<BF16>(to, x, is_bf16, lines, width, line, padded);
}

extern "C" __global__ void mma_pack_f16(uint4* to, const void* x, u32 is_bf16, u64 lines, u64 width, u64 line,
                                         u64 padded) {
    pack<F16>(to, x, is_bf16, lines, width, line, padded);
}
