// Products of fragments and matrix moves; include/mma.h documents the layouts and the arithmetic.

#include <immintrin.h>

#include <cstring>

#include "include/bf16.h"
#include "include/mma_arguments.h"
#include "runner.h"

namespace millrace_sim {
namespace {

constexpr int rows = 16, columns = 8;

void need_all_lanes(void* const arguments[32], const char* what) {
    for (int lane = 0; lane < 32; lane++)
        if (!arguments[lane]) millrace_sim_fail(failure_launch, what, nullptr, 0);
}

const MmaArguments& mma_of(void* const arguments[32], int lane) {
    return *static_cast<const MmaArguments*>(arguments[lane]);
}

// Elements of `bits` bits in registers; element i of a fragment is in register i / (32 / bits).
template <int bits>
unsigned element(const unsigned* registers, int i) {
    constexpr int per_register = 32 / bits;
    unsigned value = registers[i / per_register] >> i % per_register * bits;
    return bits == 32 ? value : value & ((1ULL << bits) - 1);
}

// Where the elements of a fragment go: with e elements in a register, the registers of A are the four (or two)
// quadrants of rows g, g + 8 and column groups of 4 * e; those of B are the column groups' rows.
template <int k, int bits, class Convert, class T>
void gather(void* const arguments[32], T (&a)[rows][k], T (&b)[k][columns], Convert convert_a, Convert convert_b) {
    constexpr int e = 32 / bits, groups = k / (4 * e);
    for (int lane = 0; lane < 32; lane++) {
        const MmaArguments& from = mma_of(arguments, lane);
        int g = lane / 4, t = lane % 4;
        for (int group = 0; group < groups; group++)
            for (int i = 0; i < e; i++) {
                int at = group * 4 * e + t * e + i;
                a[g][at] = convert_a(element<bits>(from.a, (2 * group) * e + i));
                a[g + 8][at] = convert_a(element<bits>(from.a, (2 * group + 1) * e + i));
                b[at][g] = convert_b(element<bits>(from.b, group * e + i));
            }
    }
}

using Widen = float (*)(unsigned);

template <int k, int bits>
void multiply(void* const arguments[32], Widen widen_a, Widen widen_b) {
    need_all_lanes(arguments, "mma.sync needs all 32 lanes of the warp");
    alignas(32) float a[rows][k], b[k][columns], d[rows][columns];
    gather<k, bits, Widen>(arguments, a, b, widen_a, widen_b);
    for (int lane = 0; lane < 32; lane++) {
        const float* c = static_cast<const float*>(mma_of(arguments, lane).c);
        int g = lane / 4, t = lane % 4;
        memcpy(&d[g][2 * t], c, 8);
        memcpy(&d[g + 8][2 * t], c + 2, 8);
    }
    for (int row = 0; row < rows; row++) {
        __m256 sum = _mm256_load_ps(d[row]);
        for (int i = 0; i < k; i++) sum = _mm256_fmadd_ps(_mm256_set1_ps(a[row][i]), _mm256_load_ps(b[i]), sum);
        _mm256_store_ps(d[row], sum);
    }
    for (int lane = 0; lane < 32; lane++) {
        float* out = static_cast<float*>(mma_of(arguments, lane).d);
        int g = lane / 4, t = lane % 4;
        memcpy(out, &d[g][2 * t], 8);
        memcpy(out + 2, &d[g + 8][2 * t], 8);
    }
}

float widen_bf16(unsigned bits) { return bf16_to_float(static_cast<unsigned short>(bits)); }
float widen_f16(unsigned bits) { return half_to_float(static_cast<unsigned short>(bits)); }
float widen_tf32(unsigned bits) { return reinterpret<float>(bits & ~0x1fffu); }
float widen_e4m3(unsigned bits) { return e4m3_to_float(static_cast<unsigned char>(bits)); }
float widen_e5m2(unsigned bits) { return e5m2_to_float(static_cast<unsigned char>(bits)); }

void multiply_s8(void* const arguments[32]) {
    need_all_lanes(arguments, "mma.sync needs all 32 lanes of the warp");
    constexpr int k = 32;
    int a[rows][k], b[k][columns];
    using Convert = int (*)(unsigned);
    Convert widen = [](unsigned bits) -> int { return static_cast<signed char>(bits); };
    gather<k, 8, Convert>(arguments, a, b, widen, widen);
    for (int lane = 0; lane < 32; lane++) {
        const MmaArguments& from = mma_of(arguments, lane);
        int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; i++) {
            int row = g + i / 2 * 8, column = 2 * t + i % 2;
            unsigned sum = static_cast<const unsigned*>(from.c)[i];
            for (int at = 0; at < k; at++) sum += static_cast<unsigned>(a[row][at] * b[at][column]);
            static_cast<unsigned*>(from.d)[i] = sum;
        }
    }
}

// The rows of matrix `i`, checked.
char* matrix_row(void* const arguments[32], int matrix, int row, const char* name, AccessKind kind) {
    char* at = static_cast<char*>(static_cast<const MatrixArguments*>(arguments[8 * matrix + row])->row);
    if (reinterpret_cast<uintptr_t>(at) % 16)
        millrace_sim_fail(failure_misaligned, (std::string(name) + " row is not aligned to 16 bytes").c_str(), nullptr,
                          0);
    if (!runner().in_shared(at, 16))
        millrace_sim_fail(failure_illegal_address, (std::string(name) + " row is not in shared memory").c_str(),
                          nullptr, 0);
    Runner& r = runner();
    if (r.observer)
        observe_access(r.observer, r.now / 32 * 32 + 8 * matrix + row, at, 16, kind, __builtin_return_address(0));
    return at;
}

template <int matrices, bool transposed>
void load_matrices(void* const arguments[32]) {
    need_all_lanes(arguments, "ldmatrix needs all 32 lanes of the warp");
    uint16_t values[8][8];
    for (int i = 0; i < matrices; i++) {
        for (int row = 0; row < 8; row++)
            memcpy(values[row], matrix_row(arguments, i, row, "ldmatrix", access_load), 16);
        for (int lane = 0; lane < 32; lane++) {
            int g = lane / 4, t = lane % 4;
            uint16_t low = transposed ? values[2 * t][g] : values[g][2 * t];
            uint16_t high = transposed ? values[2 * t + 1][g] : values[g][2 * t + 1];
            static_cast<const MatrixArguments*>(arguments[lane])->registers[i] = low | static_cast<unsigned>(high)
                                                                                           << 16;
        }
    }
}

template <int matrices, bool transposed>
void store_matrices(void* const arguments[32]) {
    need_all_lanes(arguments, "stmatrix needs all 32 lanes of the warp");
    uint16_t values[8][8];
    for (int i = 0; i < matrices; i++) {
        for (int lane = 0; lane < 32; lane++) {
            int g = lane / 4, t = lane % 4;
            unsigned pair = static_cast<const MatrixArguments*>(arguments[lane])->values[i];
            (transposed ? values[2 * t][g] : values[g][2 * t]) = static_cast<uint16_t>(pair);
            (transposed ? values[2 * t + 1][g] : values[g][2 * t + 1]) = static_cast<uint16_t>(pair >> 16);
        }
        for (int row = 0; row < 8; row++)
            memcpy(matrix_row(arguments, i, row, "stmatrix", access_store), values[row], 16);
    }
}

}  // namespace
}  // namespace millrace_sim

using namespace millrace_sim;

#define MILLRACE_MMA(name, k, bits, a, b) \
    extern "C" void millrace_sim_mma_##name(void* const arguments[32], unsigned) { multiply<k, bits>(arguments, a, b); }
MILLRACE_MMA(m16n8k16_bf16, 16, 16, widen_bf16, widen_bf16)
MILLRACE_MMA(m16n8k16_f16, 16, 16, widen_f16, widen_f16)
MILLRACE_MMA(m16n8k8_bf16, 8, 16, widen_bf16, widen_bf16)
MILLRACE_MMA(m16n8k8_f16, 8, 16, widen_f16, widen_f16)
MILLRACE_MMA(m16n8k8_tf32, 8, 32, widen_tf32, widen_tf32)
MILLRACE_MMA(m16n8k32_e4m3_e4m3, 32, 8, widen_e4m3, widen_e4m3)
MILLRACE_MMA(m16n8k32_e4m3_e5m2, 32, 8, widen_e4m3, widen_e5m2)
MILLRACE_MMA(m16n8k32_e5m2_e4m3, 32, 8, widen_e5m2, widen_e4m3)
MILLRACE_MMA(m16n8k32_e5m2_e5m2, 32, 8, widen_e5m2, widen_e5m2)
extern "C" void millrace_sim_mma_m16n8k32_s8(void* const arguments[32], unsigned) { multiply_s8(arguments); }

#define MILLRACE_MATRIX(suffix, matrices, transposed)                                     \
    extern "C" void millrace_sim_ldmatrix_##suffix(void* const arguments[32], unsigned) { \
        load_matrices<matrices, transposed>(arguments);                                   \
    }                                                                                     \
    extern "C" void millrace_sim_stmatrix_##suffix(void* const arguments[32], unsigned) { \
        store_matrices<matrices, transposed>(arguments);                                  \
    }
MILLRACE_MATRIX(x1, 1, false)
MILLRACE_MATRIX(x2, 2, false)
MILLRACE_MATRIX(x4, 4, false)
MILLRACE_MATRIX(x1_trans, 1, true)
MILLRACE_MATRIX(x2_trans, 2, true)
MILLRACE_MATRIX(x4_trans, 4, true)
