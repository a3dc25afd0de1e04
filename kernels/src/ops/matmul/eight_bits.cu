// c = a b^T of factors of 8 bits in lines along k (cuda/mma_product.cuh), times the inverse scales of the rows of each. From
// sm_89 on. Half the bytes of 16-bit factors for a product, and twice the products of an instruction; the tensor cores or the
// L2 cache bound it.
#include "mma_store.cuh"

// Inverse scales: of each row, or one.
struct Back {
    const float* of;
    u32 rows;

    __device__ __forceinline__ float at(u64 row) const { return of[rows == 1 ? 0 : row]; }
};

// Sums times the inverse scales of their row and columns.
struct ScaledBack {
    Back a, b;
    u64 columns;

    __device__ __forceinline__ Two operator()(u64 row, u64 column, float2 sums) const {
        float of_row = a.at(row);
        float first = column < columns ? b.at(column) : 0.0f, second = column + 1 < columns ? b.at(column + 1) : 0.0f;
        return {sums.x * (of_row * first), sums.y * (of_row * second)};
    }
};

template <u32 FACTORS>
__device__ __forceinline__ void multiply(void* c, u32 c_is_bf16, const Lines& a, const Back& of_a, const Lines& b,
                                         const Back& of_b, u64 k, const Epilogue& then) {
    __shared__ __align__(128) Slabs slabs;
    u64 row, column;
    tile_of_block(row, column, a.rows, b.rows);
    Sums sums;
    clear(sums);
    add_products<FACTORS, true, true>(sums, slabs, a, b, row, column, 0, k);
    store_sums(c, c_is_bf16, sums, slabs, a.rows, b.rows, row, column, then, ScaledBack{of_a, of_b, b.rows});
}

// Lines of both factors are `line` bytes apart. Sizes are of 32 bits, which saves registers.
#define PRODUCT(NAME, FACTORS)                                                                                        \
    extern "C" __global__ void __launch_bounds__(MMA_THREADS, 2)                                                      \
        NAME(void* c, u32 c_is_bf16, const u8* a, u32 m, const float* a_back, u32 a_scales, const u8* b, u32 n,       \
             const float* b_back, u32 b_scales, u32 k, u32 line, u32 accumulate, const float* bias, u32 then,         \
             u32 kind, void* second) {                                                                                \
        multiply<FACTORS>(c, c_is_bf16, {a, m, line}, {a_back, a_scales}, {b, n, line}, {b_back, b_scales}, k,        \
                          {accumulate, bias, then, kind, second});                                                    \
    }

PRODUCT(product_e4m3_e4m3, E4M3_E4M3)
PRODUCT(product_e4m3_e5m2, E4M3_E5M2)
PRODUCT(product_e5m2_e4m3, E5M2_E4M3)
