// Wrappers of the PTX instructions of products on tensor cores: mma.sync, ldmatrix and cp.async. PTX stands here alone;
// under the simulator they call its functions (kernels/sim/include/mma.h, which has the layout of fragments).
#pragma once
#include "millrace.cuh"

// Formats of the two factors of a product.
enum Factors : u32 { BF16, F16 };

// d += a b: 16 x 16 times 16 x 8 factors of 16 bits, sums in f32.
template <u32 FACTORS>
__device__ __forceinline__ void mma(float (&d)[4], const u32 (&a)[4], u32 b_first, u32 b_second) {
#ifdef MILLRACE_SIMULATOR
    u32 b[2] = {b_first, b_second};
    if (FACTORS == BF16) sim_mma_m16n8k16_bf16(d, a, b, d);
    if (FACTORS == F16) sim_mma_m16n8k16_f16(d, a, b, d);
#else
#define MMA(INSTRUCTION)                                                                     \
    asm(INSTRUCTION " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"       \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                     \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_first), "r"(b_second))
    if (FACTORS == BF16) MMA("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32");
    if (FACTORS == F16) MMA("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32");
#undef MMA
#endif
}

// Four 8 x 8 matrices of 16 bits from shared memory; lane 8 i + r has the address of row r of matrix i.
template <bool TRANSPOSED>
__device__ __forceinline__ void load_matrices(u32 (&to)[4], const void* row) {
#ifdef MILLRACE_SIMULATOR
    if (TRANSPOSED) sim_ldmatrix_x4_trans(to, row);
    if (!TRANSPOSED) sim_ldmatrix_x4(to, row);
#else
    u32 from = (u32)__cvta_generic_to_shared(row);
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(from)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(from)
                     : "memory");
#endif
}

// 16 bytes to shared memory, of which the first `bytes` come from global memory and the rest are zeros. They are there
// after copies_left, and for other threads after a barrier.
__device__ __forceinline__ void copy_16(void* shared, const void* global, u32 bytes) {
#ifdef MILLRACE_SIMULATOR
    sim_cp_async_zfill(shared, global, 16, (int)bytes);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((u32)__cvta_generic_to_shared(shared)),
                 "l"(global), "r"(bytes)
                 : "memory");
#endif
}

// Ends a group of copies.
__device__ __forceinline__ void copies_end() {
#ifdef MILLRACE_SIMULATOR
    sim_cp_async_commit();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most `LEFT` of the latest groups are under way.
template <int LEFT>
__device__ __forceinline__ void copies_left() {
#ifdef MILLRACE_SIMULATOR
    sim_cp_async_wait_group(LEFT);
#else
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}
