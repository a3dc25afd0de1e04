// The simulator's side of the PTX instructions that kernels wrap:
//
//     __device__ void mma_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
//     #ifdef MILLRACE_SIMULATOR
//         sim_mma_m16n8k16_bf16(d, a, b, d);
//     #else
//         asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 ...");
//     #endif
//     }
//
// Registers hold what the PTX ISA says they hold; with g = lane / 4 and t = lane % 4:
//
//   instruction        A (row, column)                          B (row, column)             C, D (row, column)
//   m16n8k16 bf16/f16  a[0] (g,2t) a[1] (g+8,2t)                b[0] (2t,g) b[1] (2t+8,g)   [0],[1] (g,2t),(g,2t+1)
//                      a[2] (g,2t+8) a[3] (g+8,2t+8)            two rows a register         [2],[3] (g+8,2t),(g+8,2t+1)
//   m16n8k8 bf16/f16   a[0] (g,2t) a[1] (g+8,2t)                b[0] (2t,g)                 the same
//   m16n8k8 tf32       a[0] (g,t) a[1] (g+8,t)                  b[0] (t,g) b[1] (t+4,g)     the same
//                      a[2] (g,t+4) a[3] (g+8,t+4)
//   m16n8k32 fp8, s8   a[0] (g,4t) a[1] (g+8,4t)                b[0] (4t,g) b[1] (4t+16,g)  the same
//                      a[2] (g,4t+16) a[3] (g+8,4t+16)          four rows a register
//
// Lower elements are in lower bits. Arithmetic: d = c, then for k = 0, 1, ... d = fma(a_k, b_k, d) in f32, so each
// product is exact and each addition rounds once to nearest. A card adds several products at once and truncates: its
// last bits differ. Tf32 ignores the lower 13 bits of its operands. All 32 lanes must take part.
#pragma once

#include "mma_arguments.h"

extern "C" {
void millrace_sim_mma_m16n8k16_bf16(void* const[32], unsigned);
void millrace_sim_mma_m16n8k16_f16(void* const[32], unsigned);
void millrace_sim_mma_m16n8k8_bf16(void* const[32], unsigned);
void millrace_sim_mma_m16n8k8_f16(void* const[32], unsigned);
void millrace_sim_mma_m16n8k8_tf32(void* const[32], unsigned);
void millrace_sim_mma_m16n8k32_e4m3_e4m3(void* const[32], unsigned);
void millrace_sim_mma_m16n8k32_e4m3_e5m2(void* const[32], unsigned);
void millrace_sim_mma_m16n8k32_e5m2_e4m3(void* const[32], unsigned);
void millrace_sim_mma_m16n8k32_e5m2_e5m2(void* const[32], unsigned);
void millrace_sim_mma_m16n8k32_s8(void* const[32], unsigned);
void millrace_sim_ldmatrix_x1(void* const[32], unsigned);
void millrace_sim_ldmatrix_x2(void* const[32], unsigned);
void millrace_sim_ldmatrix_x4(void* const[32], unsigned);
void millrace_sim_ldmatrix_x1_trans(void* const[32], unsigned);
void millrace_sim_ldmatrix_x2_trans(void* const[32], unsigned);
void millrace_sim_ldmatrix_x4_trans(void* const[32], unsigned);
void millrace_sim_stmatrix_x1(void* const[32], unsigned);
void millrace_sim_stmatrix_x2(void* const[32], unsigned);
void millrace_sim_stmatrix_x4(void* const[32], unsigned);
void millrace_sim_stmatrix_x1_trans(void* const[32], unsigned);
void millrace_sim_stmatrix_x2_trans(void* const[32], unsigned);
void millrace_sim_stmatrix_x4_trans(void* const[32], unsigned);
}

// sim_mma_SHAPE_TYPE(d, a, b, c): d and c may be the same array.
#define MILLRACE_MMA(name, ACCUMULATOR)                                                                    \
    inline void sim_mma_##name(ACCUMULATOR* d, const unsigned* a, const unsigned* b, const ACCUMULATOR* c, \
                               int line = __builtin_LINE()) {                                              \
        millrace_sim::MmaArguments arguments{d, a, b, c};                                                  \
        millrace_sim_warp(0xffffffffu, millrace_sim::warp_mma, millrace_sim_mma_##name, &arguments, line); \
    }
MILLRACE_MMA(m16n8k16_bf16, float)
MILLRACE_MMA(m16n8k16_f16, float)
MILLRACE_MMA(m16n8k8_bf16, float)
MILLRACE_MMA(m16n8k8_f16, float)
MILLRACE_MMA(m16n8k8_tf32, float)
MILLRACE_MMA(m16n8k32_e4m3_e4m3, float)
MILLRACE_MMA(m16n8k32_e4m3_e5m2, float)
MILLRACE_MMA(m16n8k32_e5m2_e4m3, float)
MILLRACE_MMA(m16n8k32_e5m2_e5m2, float)
MILLRACE_MMA(m16n8k32_s8, int)
#undef MILLRACE_MMA

// sim_ldmatrix_xN[_trans](registers, row): lane 8 * i + r passes the address of row r (16 bytes, aligned, in shared
// memory) of matrix i; lanes beyond 8 * N pass anything. Register i of a lane receives row g, columns 2t and 2t + 1 of
// matrix i, or with `_trans` rows 2t and 2t + 1 of column g. sim_stmatrix_xN[_trans](row, registers) stores the same.
#define MILLRACE_MATRIX(name)                                                                                        \
    inline void sim_ldmatrix_##name(unsigned* registers, const void* row, int line = __builtin_LINE()) {             \
        millrace_sim::MatrixArguments arguments{registers, nullptr, const_cast<void*>(row)};                         \
        millrace_sim_warp(0xffffffffu, millrace_sim::warp_ldmatrix, millrace_sim_ldmatrix_##name, &arguments, line); \
    }                                                                                                                \
    inline void sim_stmatrix_##name(void* row, const unsigned* registers, int line = __builtin_LINE()) {             \
        millrace_sim::MatrixArguments arguments{nullptr, registers, row};                                            \
        millrace_sim_warp(0xffffffffu, millrace_sim::warp_stmatrix, millrace_sim_stmatrix_##name, &arguments, line); \
    }
MILLRACE_MATRIX(x1)
MILLRACE_MATRIX(x2)
MILLRACE_MATRIX(x4)
MILLRACE_MATRIX(x1_trans)
MILLRACE_MATRIX(x2_trans)
MILLRACE_MATRIX(x4_trans)
#undef MILLRACE_MATRIX

// cp.async.ca/cg.shared.global: 4, 8 or 16 bytes, both addresses aligned to as many. `source_bytes` below `bytes`
// fills the rest with zeros. Until the issuing thread waits, the target holds poison.
inline void sim_cp_async(void* shared, const void* global, int bytes, int line = __builtin_LINE()) {
    millrace_sim_copy_async(shared, global, bytes, bytes, line);
}
inline void sim_cp_async_zfill(void* shared, const void* global, int bytes, int source_bytes,
                               int line = __builtin_LINE()) {
    millrace_sim_copy_async(shared, global, bytes, source_bytes, line);
}
inline void sim_cp_async_commit() { millrace_sim_copy_commit(); }
// Waits until at most `groups_left` of the latest groups are under way.
inline void sim_cp_async_wait_group(int groups_left) { millrace_sim_copy_wait(groups_left); }
inline void sim_cp_async_wait_all() { millrace_sim_copy_wait_all(); }
