// Wrappers of the PTX instructions of products on tensor cores: mma.sync, conversions, ldmatrix and cp.async. PTX stands here alone;
// under the simulator they call its functions (kernels/sim/include/mma.h, which has the layout of fragments).
#pragma once
#include "millrace.cuh"

// Formats of the two factors of a product; those of 8 bits name that of a, then that of b.
enum Factors : u32 { BF16, F16, E4M3_E4M3, E4M3_E5M2, E5M2_E4M3 };

__device__ constexpr u32 bytes_of(u32 factors) { return factors < E4M3_E4M3 ? 2 : 1; }

// d += a b: 16 x 16 times 16 x 8 factors of 16 bits, or 16 x 32 times 32 x 8 of 8 bits (from sm_89 on); sums in f32.
template <u32 FACTORS>
__device__ __forceinline__ void mma(float (&d)[4], const u32 (&a)[4], u32 b_first, u32 b_second) {
#ifdef MILLRACE_SIMULATOR
    u32 b[2] = {b_first, b_second};
    if (FACTORS == BF16) sim_mma_m16n8k16_bf16(d, a, b, d);
    if (FACTORS == F16) sim_mma_m16n8k16_f16(d, a, b, d);
    if (FACTORS == E4M3_E4M3) sim_mma_m16n8k32_e4m3_e4m3(d, a, b, d);
    if (FACTORS == E4M3_E5M2) sim_mma_m16n8k32_e4m3_e5m2(d, a, b, d);
    if (FACTORS == E5M2_E4M3) sim_mma_m16n8k32_e5m2_e4m3(d, a, b, d);
#else
#define MMA(INSTRUCTION)                                                                     \
    asm(INSTRUCTION " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"       \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                     \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_first), "r"(b_second))
    if (FACTORS == BF16) MMA("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32");
    if (FACTORS == F16) MMA("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32");
#if __CUDA_ARCH__ >= 890
    if (FACTORS == E4M3_E4M3) MMA("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32");
    if (FACTORS == E4M3_E5M2) MMA("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32");
    if (FACTORS == E5M2_E4M3) MMA("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32");
#else
    // never started there: the file is compiled for every card
    if (bytes_of(FACTORS) == 1) __trap();
#endif
#undef MMA
#endif
}

// Two numbers as factors of 16 bits, rounded to the nearest, ties to even; the first is in the lower half.
template <u32 FACTORS>
__device__ __forceinline__ u32 factor_pair(float low, float high) {
#ifdef MILLRACE_SIMULATOR
    u32 first = FACTORS == F16 ? to_f16(low) : to_bf16(low), second = FACTORS == F16 ? to_f16(high) : to_bf16(high);
    return first | second << 16;
#else
    u32 pair;
    if (FACTORS == F16)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#endif
}

// A number rounded to a factor, in f32.
template <u32 FACTORS>
__device__ __forceinline__ float as_factor(float x) {
    if (FACTORS == BF16) return widen((u16)factor_pair<BF16>(x, 0.0f));
#ifdef MILLRACE_SIMULATOR
    // a half's steps: 2^-24 below 2^-14, else 2^-10 of its power of two
    u32 half = to_f16(x), size = half & 0x7fffu;
    float value = (float)size * 5.9604644775390625e-8f;
    if (size >= 0x7c00u) value = __uint_as_float(size == 0x7c00u ? 0x7f800000u : 0x7fc00000u);
    if (size >= 0x0400u && size < 0x7c00u) value = __uint_as_float((size << 13) + 0x38000000u);
    return half & 0x8000u ? 0.0f - value : value;
#else
    float value;
    asm("{ .reg .b16 half; cvt.rn.f16.f32 half, %1; cvt.f32.f16 %0, half; }" : "=f"(value) : "f"(x));
    return value;
#endif
}

// 2^x to a few units of the last place; 0 for -infinity.
__device__ __forceinline__ float exp2_approx(float x) {
#ifdef MILLRACE_SIMULATOR
    return exp2f(x);
#else
    float value;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
    return value;
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

// Waits for all copies of this thread.
__device__ __forceinline__ void copies_done() {
#ifdef MILLRACE_SIMULATOR
    sim_cp_async_wait_all();
#else
    asm volatile("cp.async.wait_all;" ::: "memory");
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
