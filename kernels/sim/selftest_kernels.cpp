// Self-tests of kernels: right results under several orders of threads, and mistakes that must be caught.

#include <algorithm>
#include <cmath>

#include "include/bf16.h"
#include "selftest.h"

namespace {

constexpr uint64_t seeds = 6;

template <class F>
void for_seeds(F run) {
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        millrace_sim_set_seed(seed);
        run();
    }
}

// A stand-in for random numbers that needs no seed.
float noise(unsigned i) { return static_cast<float>((i * 2654435761u >> 8) % 2001) / 1000.0f - 1.0f; }

// Runs `kernel` of the source once and returns the code of the synchronisation.
int run_once(const char* source, unsigned block, unsigned shared = 0, size_t bytes = 4096) {
    Device device;
    Module module(source);
    CUdeviceptr x = fresh(bytes);
    int code = launch(module.function("kernel"), 1, block, shared, nullptr, x);
    if (!code) code = cuCtxSynchronize();
    cuDevicePrimaryCtxReset_v2(0);
    return code;
}

}  // namespace

TEST(a_reduction_with_shuffles_and_shared_memory_is_right) {
    for_seeds([] {
        Device device;
        static const Compiled compiled = compile(R"(
__device__ __forceinline__ float warp_sum(float v) {
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}
extern "C" __global__ void __launch_bounds__(256) row_sum(float* out, const float* x, int n) {
    __shared__ float part[8];
    float s = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) s += x[(size_t)blockIdx.x * n + i];
    s = warp_sum(s);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x < 32) {
        s = threadIdx.x < 8 ? part[threadIdx.x] : 0;
        s = warp_sum(s);
        if (threadIdx.x == 0) out[blockIdx.x] = s;
    }
}
)");
        Handle module, function;
        OK(cuModuleLoadData(&module, compiled.image.data()));
        OK(cuModuleGetFunction(&function, module, "row_sum"));
        const int rows = 7, n = 1003;
        std::vector<float> x(rows * n);
        for (size_t i = 0; i < x.size(); i++) x[i] = static_cast<float>(i % 11);
        CUdeviceptr in = upload(x), out = fresh(rows * 4);
        OK(launch(function, rows, 256, 0, nullptr, out, in, n));
        std::vector<float> sums = download<float>(out, rows);
        for (int row = 0; row < rows; row++) {
            float want = 0;
            for (int i = 0; i < n; i++) want += x[row * n + i];
            CHECK_EQUAL(sums[row], want);
        }
    });
}

static std::string transpose(const char* barrier) {
    return std::string("#define BARRIER ") + barrier + R"(
extern "C" __global__ void transpose(int* out, const int* in) {
    extern __shared__ __align__(1024) int tile[];
    tile[threadIdx.x] = in[threadIdx.x];
    BARRIER;
    out[threadIdx.x] = tile[threadIdx.x % 16 * 16 + threadIdx.x / 16];
}
)";
}

TEST(a_deleted_barrier_gives_wrong_results) {
    int wrong[2] = {0, 0};
    for (int with = 0; with < 2; with++)
        for_seeds([&] {
            Device device;
            Module module(transpose(with ? "__syncthreads()" : "0"));
            std::vector<int> values(256);
            for (int i = 0; i < 256; i++) values[i] = i;
            CUdeviceptr in = upload(values), out = fresh(1024);
            OK(launch(module.function("transpose"), 1, 256, 1024, nullptr, out, in));
            std::vector<int> got = download<int>(out, 256);
            bool bad = false;
            for (int i = 0; i < 256; i++) bad = bad || got[i] != i % 16 * 16 + i / 16;
            wrong[with] += bad;
        });
    CHECK(wrong[0] >= 1);
    CHECK_EQUAL(wrong[1], 0);
}

// A buffer that the next round overwrites while slow warps still read: needs warps far apart to show.
static std::string rounds(const char* barrier) {
    return std::string("#define BARRIER ") + barrier + R"(
extern "C" __global__ void rounds(int* out) {
    __shared__ int value;
    int sum = 0;
    for (int round = 0; round < 8; round++) {
        if (threadIdx.x == 0) value = round;
        __syncthreads();
        sum += value;
        BARRIER;
    }
    out[threadIdx.x] = sum;
}
)";
}

TEST(a_deleted_barrier_at_the_end_of_a_loop_gives_wrong_results) {
    int wrong[2] = {0, 0};
    for (int with = 0; with < 2; with++)
        for_seeds([&] {
            Device device;
            Module module(rounds(with ? "__syncthreads()" : "0"));
            CUdeviceptr out = fresh(1024);
            OK(launch(module.function("rounds"), 1, 256, 0, nullptr, out));
            std::vector<int> got = download<int>(out, 256);
            wrong[with] += std::any_of(got.begin(), got.end(), [](int sum) { return sum != 28; });
        });
    CHECK(wrong[0] >= 1);
    CHECK_EQUAL(wrong[1], 0);
}

TEST(wrong_indices_are_caught) {
    // In the red zone behind, in the one before, and far away; a read far away too.
    CHECK_EQUAL(run_once("extern \"C\" __global__ void kernel(int* x) { x[threadIdx.x + 1] = 1; }", 25, 0, 100), 700);
    CHECK(mentions("offset 100"));
    CHECK_EQUAL(run_once("extern \"C\" __global__ void kernel(int* x) { x[-1] = 1; }", 1, 0, 100), 700);
    CHECK(mentions("offset -4"));
    CHECK_EQUAL(run_once("extern \"C\" __global__ void kernel(int* x) { x[1024 + threadIdx.x] = 1; }", 1), 700);
    CHECK(mentions("offset 4096") && mentions("kernel kernel, block (0,0,0), thread (0,0,0)"));
    CHECK_EQUAL(run_once("extern \"C\" __global__ void kernel(int* x) { x[0] = x[100000]; }", 1), 700);
    CHECK_EQUAL(run_once("extern \"C\" __global__ void kernel(int* x) { x[0] = *(volatile int*)8; }", 1), 700);
}

TEST(wrong_indices_of_shared_memory_are_caught) {
    CHECK_EQUAL(run_once("extern \"C\" __global__ void kernel(int* x) { __shared__ int s[32]; s[threadIdx.x] = 1;\n"
                         "__syncthreads(); x[threadIdx.x] = s[threadIdx.x]; }",
                         33),
                700);
    CHECK(mentions("index 32 is outside 'int [32]'") && mentions("test.cu:1"));
    const char* dynamic =
        "extern \"C\" __global__ void kernel(int* x) { extern __shared__ int s[]; s[threadIdx.x] = 1; }";
    CHECK_EQUAL(run_once(dynamic, 32, 128), 0);
    CHECK_EQUAL(run_once(dynamic, 33, 128), 700);
    CHECK_EQUAL(run_once(dynamic, 33, 124), 700);
    CHECK(mentions("dynamic shared memory"));
}

TEST(uninitialised_memory_shows) {
    Device device;
    Module module(R"(
extern "C" __global__ void read(float* out, const float* in) {
    __shared__ float s[32];
    out[0] = in[3];
    out[1] = s[5];
    s[5] = 1;
}
)");
    CUdeviceptr out = fresh(8), in = fresh(64);
    OK(launch(module.function("read"), 4, 1, 0, nullptr, out, in));
    std::vector<float> got = download<float>(out, 2);
    CHECK(got[0] < -2.6e7f && got[0] > -2.7e7f);
    CHECK_EQUAL(got[0], got[1]);
}

TEST(use_after_free_is_caught) {
    Device device;
    Module module("extern \"C\" __global__ void kernel(int* x) { x[threadIdx.x] = 1; }");
    CUdeviceptr x = fresh(4096);
    OK(cuMemFree_v2(x));
    int code = launch(module.function("kernel"), 1, 32, 0, nullptr, x);
    CHECK_EQUAL(code ? code : cuCtxSynchronize(), 700);
    CHECK(mentions("freed allocation"));
    // Sticky, as on a card.
    CHECK_EQUAL(cuCtxSynchronize(), 700);
    CHECK_EQUAL(cuMemAlloc_v2(&x, 16), 700);
}

TEST(barrier_divergence_is_caught) {
    CHECK_EQUAL(
        run_once("extern \"C\" __global__ void kernel(int* x) { if (threadIdx.x == 3) return; __syncthreads(); }", 64),
        719);
    CHECK(mentions("1 threads have exited") && mentions("63 threads wait at a block barrier"));
    CHECK_EQUAL(run_once("extern \"C\" __global__ void kernel(int* x) {\nif (threadIdx.x < "
                         "32)\n__syncthreads();\nelse\n__syncthreads(); }",
                         64),
                719);
    CHECK(mentions("line 3") && mentions("line 5"));
    CHECK_EQUAL(
        run_once(
            "extern \"C\" __global__ void kernel(int* x) { if (threadIdx.x < 16) __syncwarp(); else __syncthreads(); }",
            32),
        719);
    CHECK_EQUAL(run_once("extern \"C\" __global__ void kernel(int* x) { if (threadIdx.x < 16) x[0] = __shfl_sync(~0u, "
                         "1, 0); else x[1] = __any_sync(~0u, 1); }",
                         32),
                719);
    CHECK_EQUAL(run_once("extern \"C\" __global__ void kernel(int* x) { x[0] = __shfl_sync(2, 1, 0); }", 32), 719);
    CHECK(mentions("lacks the calling lane"));
    // Lanes that have exited, or never were, are not waited for.
    CHECK_EQUAL(
        run_once("extern \"C\" __global__ void kernel(int* x) { if (threadIdx.x == 3) return; __syncwarp(); }", 40), 0);
}

TEST(mistakes_of_arithmetic_and_alignment_are_caught) {
    CHECK_EQUAL(run_once("extern \"C\" __global__ void kernel(int* x) { __trap(); }", 1), 715);
    CHECK_EQUAL(run_once("extern \"C\" __global__ void kernel(int* x) { assert(threadIdx.x < 3); }", 4), 710);
    CHECK(mentions("threadIdx.x < 3") && mentions("thread (3,0,0)"));
    CHECK_EQUAL(
        run_once("extern \"C\" __global__ void kernel(int* x) { *(float4*)(x + 1) = make_float4(1, 2, 3, 4); }", 1),
        716);
    CHECK_EQUAL(run_once("extern \"C\" __global__ void kernel(int* x) { *(int2*)(x + 1) = make_int2(1, 2); }", 1), 716);
    CHECK_EQUAL(run_once("extern \"C\" __global__ void kernel(int* x) { x[0] = 5 / threadIdx.x; }", 1), 719);
    CHECK_EQUAL(run_once("extern \"C\" __global__ void kernel(int* x) { x[0] = 1 << (threadIdx.x + 31); }", 2), 719);
    CHECK_EQUAL(run_once("extern \"C\" __global__ void kernel(int* x) { x[0] = (int)(3e9f + threadIdx.x); }", 1), 719);
    CHECK(mentions("outside the range of 'int'") && mentions("test.cu:1"));
    CHECK_EQUAL(run_once("__device__ __noinline__ int deep(int n) { volatile int a[999]; a[n % 999] = n; return n ? "
                         "deep(n - 1) + a[0] : 0; }\n"
                         "extern \"C\" __global__ void kernel(int* x) { x[0] = deep(1000000); }",
                         1),
                700);
    CHECK(mentions("stack overflow"));
}

TEST(cp_async_is_seen_after_its_wait_only) {
    const char* source = R"(
extern "C" __global__ void pipeline(float* out, const float* in, int wait, int rounds) {
    __shared__ __align__(16) float stage[2][128];
    auto load = [&](int round) {
        sim_cp_async(&stage[round % 2][threadIdx.x * 4], in + round * 128 + threadIdx.x * 4, 16);
        sim_cp_async_commit();
    };
    load(0);
    float sum = 0;
    for (int round = 0; round < rounds; round++) {
        if (round + 1 < rounds) load(round + 1); else sim_cp_async_commit();
        if (wait >= 0) sim_cp_async_wait_group(wait);
        __syncthreads();
        for (int i = 0; i < 4; i++) sum += stage[round % 2][(threadIdx.x * 4 + 17 + i) % 128];
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}
extern "C" __global__ void zero_fill(unsigned* out, const unsigned* in) {
    __shared__ __align__(16) unsigned stage[4];
    sim_cp_async_zfill(stage, in, 16, 4);
    sim_cp_async_wait_all();
    for (int i = 0; i < 4; i++) out[i] = stage[i];
}
)";
    for_seeds([&] {
        Device device;
        static const Compiled compiled = compile(source);
        Handle module, pipeline, zero_fill;
        OK(cuModuleLoadData(&module, compiled.image.data()));
        OK(cuModuleGetFunction(&pipeline, module, "pipeline"));
        OK(cuModuleGetFunction(&zero_fill, module, "zero_fill"));
        const int rounds = 5;
        std::vector<float> x(128 * rounds);
        for (size_t i = 0; i < x.size(); i++) x[i] = static_cast<float>(i);
        CUdeviceptr in = upload(x), out = fresh(128);
        for (int wait : {1, 0, 2, -1}) {
            OK(launch(pipeline, 1, 32, 0, nullptr, out, in, wait, rounds));
            std::vector<float> got = download<float>(out, 32);
            bool right = true;
            for (int t = 0; t < 32; t++) {
                float want = 0;
                for (int round = 0; round < rounds; round++)
                    for (int i = 0; i < 4; i++) want += x[round * 128 + (t * 4 + 17 + i) % 128];
                right = right && got[t] == want;
            }
            CHECK_EQUAL(right, wait == 0 || wait == 1);
        }
        OK(launch(zero_fill, 1, 1, 0, nullptr, out, in + 16));
        std::vector<unsigned> filled = download<unsigned>(out, 4);
        CHECK(filled[0] == 0x40800000u && filled[1] == 0 && filled[3] == 0);
    });
}

// C = A * B with A (16, 64) row-major and B (64, 8) column by column, through cp.async, ldmatrix and mma.sync.
TEST(a_product_by_mma_sync_equals_the_naive_loop) {
    const char* source = R"(
typedef unsigned short u16;
template <bool half>
__device__ void product(float* c, const u16* a, const u16* b) {
    __shared__ __align__(16) u16 sa[16 * 64], sb[8 * 64];
    for (int i = threadIdx.x * 8; i < 16 * 64; i += 32 * 8) sim_cp_async(sa + i, a + i, 16);
    for (int i = threadIdx.x * 8; i < 8 * 64; i += 32 * 8) sim_cp_async(sb + i, b + i, 16);
    sim_cp_async_commit();
    sim_cp_async_wait_group(0);
    __syncthreads();
    float d[4] = {0, 0, 0, 0};
    int lane = threadIdx.x;
    for (int k = 0; k < 64; k += 16) {
        unsigned fa[4], fb[2];
        sim_ldmatrix_x4(fa, sa + lane % 16 * 64 + k + lane / 16 * 8);
        sim_ldmatrix_x2(fb, sb + lane % 8 * 64 + k + lane / 8 % 2 * 8);
        if (half) sim_mma_m16n8k16_f16(d, fa, fb, d);
        else sim_mma_m16n8k16_bf16(d, fa, fb, d);
    }
    int g = lane / 4, t = lane % 4;
    c[g * 8 + 2 * t] = d[0], c[g * 8 + 2 * t + 1] = d[1];
    c[(g + 8) * 8 + 2 * t] = d[2], c[(g + 8) * 8 + 2 * t + 1] = d[3];
}
extern "C" __global__ void product_bf16(float* c, const u16* a, const u16* b) { product<false>(c, a, b); }
extern "C" __global__ void product_f16(float* c, const u16* a, const u16* b) { product<true>(c, a, b); }
// B row by row, so its fragments need the transposed load.
extern "C" __global__ void product_trans(float* c, const u16* a, const u16* b) {
    __shared__ __align__(16) u16 sb[16 * 8];
    for (int i = threadIdx.x; i < 128; i += 32) sb[i] = b[i];
    __syncwarp();
    int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    unsigned fa[4], fb[2];
    for (int i = 0; i < 4; i++) fa[i] = *(const unsigned*)(a + (g + i % 2 * 8) * 16 + 2 * t + i / 2 * 8);
    sim_ldmatrix_x2_trans(fb, sb + lane % 16 * 8);
    float d[4] = {0, 0, 0, 0};
    sim_mma_m16n8k16_bf16(d, fa, fb, d);
    for (int i = 0; i < 4; i++) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}
)";
    Device device;
    Module module(source);
    for (int kind = 0; kind < 3; kind++) {
        bool half = kind == 1, trans = kind == 2;
        int k = trans ? 16 : 64;
        std::vector<uint16_t> a(16 * k), b(k * 8);
        auto narrow = half ? millrace_sim::float_to_half : millrace_sim::float_to_bf16;
        auto widen = half ? millrace_sim::half_to_float : millrace_sim::bf16_to_float;
        for (size_t i = 0; i < a.size(); i++) a[i] = narrow(noise(static_cast<unsigned>(i)));
        for (size_t i = 0; i < b.size(); i++) b[i] = narrow(noise(static_cast<unsigned>(i) + 5000));
        CUdeviceptr da = upload(a), db = upload(b), dc = fresh(512);
        const char* names[] = {"product_bf16", "product_f16", "product_trans"};
        OK(launch(module.function(names[kind]), 1, 32, 0, nullptr, dc, da, db));
        std::vector<float> c = download<float>(dc, 128);
        for (int m = 0; m < 16; m++)
            for (int n = 0; n < 8; n++) {
                float want = 0;
                for (int i = 0; i < k; i++)
                    want = std::fma(widen(a[m * k + i]), widen(trans ? b[i * 8 + n] : b[n * k + i]), want);
                CHECK_EQUAL(c[m * 8 + n], want);
            }
    }
}

TEST(products_of_tf32_fp8_and_integers_equal_the_naive_loop) {
    const char* source = R"(
extern "C" __global__ void product(float* c, const unsigned* a, const unsigned* b, int kind) {
    int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    // Both matrices in words of one register: A (16, 8) words, B (8, 8) words with n first.
    unsigned fa[4], fb[2];
    for (int i = 0; i < 4; i++) fa[i] = a[(g + i % 2 * 8) * 8 + t + i / 2 * 4];
    for (int i = 0; i < 2; i++) fb[i] = b[g * 8 + t + i * 4];
    float d[4] = {1, 2, 3, 4};
    int e[4] = {1, 2, 3, 4};
    if (kind == 0) sim_mma_m16n8k8_tf32(d, fa, fb, d);
    if (kind == 1) sim_mma_m16n8k32_e4m3_e4m3(d, fa, fb, d);
    if (kind == 2) sim_mma_m16n8k32_e5m2_e4m3(d, fa, fb, d);
    if (kind == 3) sim_mma_m16n8k32_s8(e, fa, fb, e);
    for (int i = 0; i < 4; i++) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = kind == 3 ? (float)e[i] : d[i];
}
)";
    Device device;
    Module module(source);
    for (int kind = 0; kind < 4; kind++) {
        std::vector<unsigned> a(128), b(64);
        auto word = [kind](unsigned i) {
            if (kind == 0) return millrace_sim::reinterpret<unsigned>(noise(i));
            // Any bytes but the NaNs and infinities of the two formats.
            return (i * 2654435761u) & 0xbbbbbbbbu;
        };
        for (unsigned i = 0; i < 128; i++) a[i] = word(i);
        for (unsigned i = 0; i < 64; i++) b[i] = word(i + 777);
        auto value = [kind](unsigned word, int i, bool left) -> float {
            unsigned byte = word >> 8 * (i % 4) & 0xff;
            if (kind == 0) return millrace_sim::reinterpret<float>(word & ~0x1fffu);
            if (kind == 3) return static_cast<signed char>(byte);
            auto widen = kind == 2 && left ? millrace_sim::e5m2_to_float : millrace_sim::e4m3_to_float;
            return widen(static_cast<unsigned char>(byte));
        };
        int k = kind == 0 ? 8 : 32, per = kind == 0 ? 1 : 4;
        CUdeviceptr da = upload(a), db = upload(b), dc = fresh(512);
        OK(launch(module.function("product"), 1, 32, 0, nullptr, dc, da, db, kind));
        std::vector<float> c = download<float>(dc, 128);
        for (int m = 0; m < 16; m++)
            for (int n = 0; n < 8; n++) {
                float want = static_cast<float>(1 + n % 2 + m / 8 * 2);
                for (int i = 0; i < k; i++)
                    want = std::fma(value(a[m * 8 + i / per], i, true), value(b[n * 8 + i / per], i, false), want);
                CHECK_EQUAL(c[m * 8 + n], want);
            }
    }
}

TEST(narrow_floats_convert_exactly) {
    // Against the definition: sign, exponent and fraction, over all bit patterns.
    auto define = [](unsigned bits, int e, int m, int bias) {
        int exponent = static_cast<int>(bits >> m) & ((1 << e) - 1);
        double fraction = static_cast<double>(bits & ((1u << m) - 1)) / (1 << m);
        double magnitude = exponent ? std::ldexp(1 + fraction, exponent - bias) : std::ldexp(fraction, 1 - bias);
        return static_cast<float>(bits >> (e + m) & 1 ? -magnitude : magnitude);
    };
    for (unsigned bits = 0; bits < 256; bits++) {
        if ((bits & 0x7f) != 0x7f)
            CHECK_EQUAL(millrace_sim::e4m3_to_float(static_cast<unsigned char>(bits)), define(bits, 4, 3, 7));
        if ((bits & 0x7c) != 0x7c)
            CHECK_EQUAL(millrace_sim::e5m2_to_float(static_cast<unsigned char>(bits)), define(bits, 5, 2, 15));
    }
    for (unsigned bits = 0; bits < 65536; bits++) {
        if ((bits & 0x7c00) == 0x7c00) continue;
        float value = millrace_sim::half_to_float(static_cast<uint16_t>(bits));
        CHECK_EQUAL(value, define(bits, 5, 10, 15));
        CHECK_EQUAL(millrace_sim::float_to_half(value), bits);
        // Halfway to the next value: to even.
        float next = millrace_sim::half_to_float(static_cast<uint16_t>(bits + 1));
        if ((bits & 0x7fff) < 0x7bff)
            CHECK_EQUAL(millrace_sim::float_to_half((value + next) / 2), bits % 2 ? bits + 1 : bits);
    }
    CHECK_EQUAL(millrace_sim::float_to_half(65520.0f), 0x7c00);
    CHECK_EQUAL(millrace_sim::float_to_bf16(1.00390625f), 0x3f80);
    CHECK_EQUAL(millrace_sim::float_to_bf16(1.01171875f), 0x3f82);
}

TEST(warp_operations_follow_ptx) {
    Device device;
    Module module(R"(
extern "C" __global__ void warp(int* out) {
    int lane = threadIdx.x, *o = out + lane * 16;
    o[0] = __shfl_up_sync(~0u, lane, 3);
    o[1] = __shfl_down_sync(~0u, lane, 3);
    o[2] = __shfl_xor_sync(~0u, lane, 5);
    o[3] = __shfl_sync(~0u, lane, 35);
    o[4] = __shfl_up_sync(~0u, lane, 2, 8);
    o[5] = __shfl_down_sync(~0u, lane, 2, 8);
    o[6] = __shfl_sync(~0u, lane, 9, 8);
    o[7] = __ballot_sync(~0u, lane % 3 == 0);
    o[8] = __match_any_sync(~0u, lane / 4);
    o[9] = __reduce_add_sync(~0u, lane);
    o[10] = (int)(__shfl_xor_sync(~0u, (unsigned long long)lane << 40, 1) >> 40);
    if (lane % 2) o[11] = __shfl_xor_sync(0xaaaaaaaau, lane, 2);
    else o[11] = __all_sync(0x55555555u, lane % 2 == 0) + 2 * __any_sync(0x55555555u, lane == 5);
    o[12] = __syncthreads_count(lane < 7);
    o[13] = __reduce_max_sync(~0u, -lane);
}
)");
    CUdeviceptr out = fresh(32 * 64);
    OK(launch(module.function("warp"), 1, 32, 0, nullptr, out));
    std::vector<int> got = download<int>(out, 512);
    for (int lane = 0; lane < 32; lane++) {
        const int* o = &got[static_cast<size_t>(lane) * 16];
        CHECK_EQUAL(o[0], lane < 3 ? lane : lane - 3);
        CHECK_EQUAL(o[1], lane > 28 ? lane : lane + 3);
        CHECK_EQUAL(o[2], lane ^ 5);
        CHECK_EQUAL(o[3], 3);
        CHECK_EQUAL(o[4], lane % 8 < 2 ? lane : lane - 2);
        CHECK_EQUAL(o[5], lane % 8 > 5 ? lane : lane + 2);
        CHECK_EQUAL(o[6], lane / 8 * 8 + 1);
        CHECK_EQUAL(o[7], 0x49249249);
        CHECK_EQUAL(o[8], static_cast<int>(0xfu << lane / 4 * 4));
        CHECK_EQUAL(o[9], 496);
        CHECK_EQUAL(o[10], lane ^ 1);
        CHECK_EQUAL(o[11], lane % 2 ? lane ^ 2 : 1);
        CHECK_EQUAL(o[12], 7);
        CHECK_EQUAL(o[13], 0);
    }
}

TEST(intrinsics_follow_cuda) {
    Device device;
    Module module(R"(
extern "C" __global__ void numbers(unsigned* o, float* f) {
    o[0] = __byte_perm(0x33221100, 0x77665544, 0x7c61);
    o[1] = __brev(0x1), o[2] = __clz(0), o[3] = __ffs(8), o[4] = __umulhi(0x80000000u, 6);
    o[5] = __float2int_rn(2.5f), o[6] = __float2int_rz(3e9f), o[7] = __float2uint_rn(-1.0f);
    o[8] = __float2int_rn(__int_as_float(0x7fc00000)), o[9] = __popc(0xff0f);
    o[10] = (unsigned)(__umul64hi(1ull << 63, 8));
    o[11] = __funnelshift_l(0x80000000u, 1, 1);
    // One rounding, no contraction, denormals kept.
    f[0] = fmaf(1.0f + 1.1920929e-7f, 1.0f + 1.1920929e-7f, -1.0f);
    float a = f[20] + 1.1920929e-7f;
    f[1] = a * a - 1.0f;
    f[2] = f[21] * 0.25f;
    f[3] = fmaxf(__int_as_float(0x7fc00000), 2.0f);
    f[4] = fmaxf(-0.0f, 0.0f);
    f[5] = __fdiv_rn(1.0f, 3.0f);
}
extern "C" __global__ void atomics(int* x, float* f, unsigned long long* u) {
    atomicAdd(x, 1);
    atomicMax(x + 1, (int)threadIdx.x);
    atomicMin(x + 2, -(int)threadIdx.x);
    atomicAdd(f, 0.5f);
    atomicAdd(u, 1ull << 32);
    atomicOr((unsigned*)x + 3, 1u << threadIdx.x % 32);
    int old = x[4], seen;
    do { seen = old; old = atomicCAS(x + 4, seen, seen + 2); } while (old != seen);
}
)");
    std::vector<float> f(32, 0);
    f[20] = 1.0f;
    f[21] = 1.1754944e-38f;
    CUdeviceptr o = fresh(64), df = upload(f);
    OK(launch(module.function("numbers"), 1, 1, 0, nullptr, o, df));
    std::vector<unsigned> u = download<unsigned>(o, 12);
    CHECK_EQUAL(u[0], 0x77006611u);
    CHECK(u[1] == 0x80000000u && u[2] == 32 && u[3] == 4 && u[4] == 3);
    CHECK(u[5] == 2 && u[6] == 0x7fffffffu && u[7] == 0 && u[8] == 0 && u[9] == 12 && u[10] == 4 && u[11] == 3);
    f = download<float>(df, 32);
    CHECK_EQUAL(f[0], std::fma(1.0f + 1.1920929e-7f, 1.0f + 1.1920929e-7f, -1.0f));
    CHECK_EQUAL(f[1], 2.3841858e-7f);
    CHECK_EQUAL(f[2], 2.938736e-39f);
    CHECK(f[3] == 2.0f && !std::signbit(f[4]) && f[5] == 1.0f / 3.0f);

    CUdeviceptr x = upload(std::vector<int>(8, 0)), sum = upload(std::vector<float>{0}),
                wide = upload(std::vector<uint64_t>{5});
    OK(launch(module.function("atomics"), 3, 100, 0, nullptr, x, sum, wide));
    std::vector<int> ints = download<int>(x, 8);
    CHECK(ints[0] == 300 && ints[1] == 99 && ints[2] == -99 && ints[3] == -1 && ints[4] == 600);
    CHECK_EQUAL(download<float>(sum, 1)[0], 150.0f);
    CHECK_EQUAL(download<uint64_t>(wide, 1)[0], (300ULL << 32) + 5);
}

TEST(the_same_seed_gives_the_same_order) {
    std::vector<std::vector<float>> results;
    for (uint64_t seed : {1, 1, 2, 3}) {
        millrace_sim_set_seed(seed);
        Device device;
        Module module(
            "extern \"C\" __global__ void kernel(float* x) { atomicAdd(x, 1.0f / (1 + threadIdx.x + 7 * blockIdx.x)); "
            "}");
        CUdeviceptr x = upload(std::vector<float>{0});
        OK(launch(module.function("kernel"), 8, 256, 0, nullptr, x));
        results.push_back(download<float>(x, 1));
    }
    CHECK_EQUAL(results[0][0], results[1][0]);
    CHECK(results[0][0] != results[2][0] || results[0][0] != results[3][0]);
}

TEST(grids_blocks_and_named_barriers_have_three_dimensions) {
    Device device;
    Module module(R"(
extern "C" __global__ void cells(int* out) {
    int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    out[block * (blockDim.x * blockDim.y * blockDim.z) + thread] += block * 1000 + thread;
}
extern "C" __global__ void halves(int* out) {
    __shared__ int box;
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0) box = 7;
        sim_bar_arrive(1, 64);
    } else {
        sim_bar_sync(1, 64);
        out[threadIdx.x] = box;
    }
}
)");
    CUdeviceptr out = upload(std::vector<int>(3 * 2 * 2 * 5 * 4 * 3, 0));
    void* arguments[] = {&out};
    OK(cuLaunchKernel(module.function("cells"), 3, 2, 2, 5, 4, 3, 0, nullptr, arguments, nullptr));
    std::vector<int> got = download<int>(out, 720);
    for (int i = 0; i < 720; i++) CHECK_EQUAL(got[i], i / 60 * 1000 + i % 60);
    OK(launch(module.function("halves"), 1, 64, 0, nullptr, out));
    CHECK_EQUAL(download<int>(out, 64)[63], 7);
}

TEST(the_host_threads_rounding_does_not_reach_kernels) {
    unsigned mode = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(mode | 0x8040);  // flush denormals to zero, read them as zero
    Device device;
    Module module("extern \"C\" __global__ void kernel(float* x) { x[0] = x[1] * 0.5f; }");
    CUdeviceptr x = upload(std::vector<unsigned>{0, 0x00800000});
    OK(launch(module.function("kernel"), 1, 1, 0, nullptr, x));
    std::vector<unsigned> got = download<unsigned>(x, 1);
    CHECK((__builtin_ia32_stmxcsr() & 0x8040) == 0x8040);
    __builtin_ia32_ldmxcsr(mode);
    CHECK_EQUAL(got[0], 0x00400000u);
}
