// Self-tests of mbarriers, bulk copies of tensors and wgmma.

#include <cmath>
#include <string>

#include "selftest.h"

extern "C" int cuTensorMapEncodeTiled(void*, int, uint32_t, void*, const uint64_t*, const uint64_t*, const uint32_t*,
                                      const uint32_t*, int, int, int, int);

namespace {

struct alignas(64) Map {
    uint64_t words[16];
};

constexpr int bf16 = 9, swizzle_128 = 3;

// What a test changes of a good call: a 2-D tensor of bf16 in boxes of 64 columns.
struct Encoding {
    int type = bf16;
    uint32_t rank = 2;
    uint64_t address = 1 << 20;
    uint64_t dims[3] = {64, 64, 1}, strides[2] = {128, 128 * 64};
    uint32_t box[3] = {64, 64, 1}, steps[3] = {1, 1, 1};
    int interleave = 0, swizzle = swizzle_128, promotion = 0, fill = 0;

    int into(Map* map) const {
        return cuTensorMapEncodeTiled(map, type, rank, reinterpret_cast<void*>(address), dims, strides, box, steps,
                                      interleave, swizzle, promotion, fill);
    }
    int code() const {
        Map map;
        return into(&map);
    }
};

Map map_of(CUdeviceptr at, uint64_t rows, uint64_t columns, uint32_t box_rows, int swizzle = swizzle_128) {
    Encoding encoding;
    encoding.address = at;
    encoding.dims[0] = columns;
    encoding.dims[1] = rows;
    encoding.strides[0] = columns * 2;
    encoding.box[1] = box_rows;
    encoding.swizzle = swizzle;
    Map map;
    OK(encoding.into(&map));
    return map;
}

uint16_t to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return static_cast<uint16_t>(bits >> 16);
}

// Small whole numbers, so that products are exact.
std::vector<uint16_t> numbers(size_t count, unsigned seed) {
    std::vector<uint16_t> all(count);
    for (size_t i = 0; i < count; i++) all[i] = to_bf16(static_cast<float>((i * 37 + seed + i / 64 * 11) % 13) - 6.0f);
    return all;
}
float widen(uint16_t x) {
    uint32_t bits = static_cast<uint32_t>(x) << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

// c = a b^T of 64 x k and N x k, in slabs of 64 of k through two stages. Each letter of `mistakes` breaks one thing.
const char* product = R"(
typedef unsigned long long u64;
struct __align__(64) Map { u64 words[16]; };
__device__ u64 descriptor(const void* at) {
    return (u64)(sim_shared_address(at) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
template <int N>
__device__ void multiply(float* c, const Map& a, const Map& b, int slabs, int mistake) {
    extern __shared__ __align__(1024) char memory[];
    __shared__ u64 full[2], empty[2];
    const int bytes = 64 * 128 + N * 128;
    if (threadIdx.x == 0) for (int i = 0; i < 2; i++) sim_mbarrier_init(&full[i], 1), sim_mbarrier_init(&empty[i], 128);
    __syncthreads();
    if (threadIdx.x >= 128) {
        for (int slab = 0; threadIdx.x == 128 && slab < slabs; slab++) {
            char* to = memory + slab % 2 * bytes;
            if (slab > 1 && mistake != 'r') sim_mbarrier_wait_parity(&empty[slab % 2], (slab / 2 - 1) & 1);
            if (mistake == 'e') sim_mbarrier_arrive(&full[slab % 2]);
            else sim_mbarrier_arrive_expect_tx(&full[slab % 2], mistake == 'b' ? bytes + 16 : bytes);
            sim_tma_load_2d(to, &a, &full[slab % 2], slab * 64, 0);
            sim_tma_load_2d(to + 64 * 128, &b, &full[slab % 2], slab * 64, 0);
        }
        return;
    }
    float d[N / 2];
    for (int i = 0; i < N / 2; i++) d[i] = 0.0f;
    for (int slab = 0; slab < slabs; slab++) {
        char* from = memory + slab % 2 * bytes;
        if (mistake != 'm') sim_mbarrier_wait_parity(&full[slab % 2], slab / 2 & 1);
        if (mistake != 'f') sim_wgmma_fence();
        for (int k = 0; k < 4; k++) sim_wgmma(d, N, descriptor(from + 32 * k), descriptor(from + 64 * 128 + 32 * k), 1, 0);
        sim_wgmma_commit();
        if (mistake == 'o') sim_mbarrier_arrive(&empty[slab % 2]);
        if (mistake != 'w' && mistake != 'o') sim_wgmma_wait(0);
        if (mistake == 'o') { sim_mbarrier_wait_parity(&full[(slab + 1) % 2], (slab + 1) / 2 & 1); sim_wgmma_wait(0); }
        else sim_mbarrier_arrive(&empty[slab % 2]);
    }
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (int j = 0; j < N / 8; j++)
        for (int e = 0; e < 4; e++) c[(16 * warp + g + e / 2 * 8) * N + 8 * j + 2 * t + e % 2] = d[4 * j + e];
    if (mistake == 'w') sim_wgmma_wait(0);
}
extern "C" __global__ void product_8(float* c, const Map a, const Map b, int slabs, int mistake) { multiply<8>(c, a, b, slabs, mistake); }
extern "C" __global__ void product_64(float* c, const Map a, const Map b, int slabs, int mistake) { multiply<64>(c, a, b, slabs, mistake); }
extern "C" __global__ void product_256(float* c, const Map a, const Map b, int slabs, int mistake) { multiply<256>(c, a, b, slabs, mistake); }
)";

Handle product_of(int n) {
    static const Compiled compiled = compile(product);
    if (compiled.code) fail(__FILE__, __LINE__, compiled.log);
    Handle module, function;
    OK(cuModuleLoadData(&module, compiled.image.data()));
    OK(cuModuleGetFunction(&function, module, ("product_" + std::to_string(n)).c_str()));
    OK(cuFuncSetAttribute(function, 8, 200 << 10));
    return function;
}

// The launch's code; `right`: whether all numbers are.
int multiply(int n, int k, char mistake, bool* right, int swizzle = swizzle_128, int rows = 64) {
    std::vector<uint16_t> a = numbers(static_cast<size_t>(rows) * k, 1), b = numbers(static_cast<size_t>(n) * k, 5);
    CUdeviceptr c = fresh(static_cast<size_t>(64) * n * 4);
    Map of_a = map_of(upload(a), rows, k, 64, swizzle), of_b = map_of(upload(b), n, k, n, swizzle);
    int slabs = (k + 63) / 64;
    OK(launch(product_of(n), 1, 160, 2 * (64 + n) * 128, nullptr, c, of_a, of_b, slabs, static_cast<int>(mistake)));
    int code = cuCtxSynchronize();
    if (code) return code;
    std::vector<float> got = download<float>(c, static_cast<size_t>(64) * n);
    *right = true;
    for (int row = 0; row < 64; row++)
        for (int column = 0; column < n; column++) {
            double want = 0;
            for (int at = 0; at < k && row < rows; at++)
                want += static_cast<double>(widen(a[row * k + at])) * widen(b[column * k + at]);
            *right = *right && static_cast<double>(got[row * n + column]) == want;
        }
    return 0;
}

}  // namespace

TEST(hopper_products_of_every_width_are_right_with_rows_and_columns_that_are_not_there) {
    for (unsigned seed = 1; seed < 4; seed++) {
        millrace_sim_set_seed(seed);
        for (int n : {8, 64, 256})
            for (int k : {64, 200, 328}) {
                Device device;
                bool right = false;
                OK(multiply(n, k, 0, &right, swizzle_128, seed == 3 ? 50 : 64));
                CHECK(right);
            }
    }
}

TEST(hopper_mistakes_are_found) {
    struct {
        char mistake;
        const char* word;
    } fatal[] = {{'b', "mbarrier"}, {'e', "mbarrier"}, {'f', "fence"}, {'o', "changed"}};
    for (auto& one : fatal) {
        int failed = 0;
        for (unsigned seed = 1; seed < 9; seed++) {
            millrace_sim_set_seed(seed);
            Device device;
            bool right = false;
            int code = multiply(64, 328, one.mistake, &right);
            failed += code == 719 && mentions(one.word);
            // what runs to its end by chance has read too early
            CHECK(code == 719 || !right || one.mistake == 'o');
        }
        CHECK(failed > 0);
    }
    // no wait for the data, none for the sums, another swizzle, a slot used again too early
    for (char mistake : {'m', 'w', 's', 'r'}) {
        int wrong = 0;
        for (unsigned seed = 1; seed < 9; seed++) {
            millrace_sim_set_seed(seed);
            Device device;
            bool right = false;
            int code = multiply(64, 328, mistake, &right, mistake == 's' ? 0 : swizzle_128);
            wrong += code != 0 || !right;
        }
        CHECK(wrong >= 6);
    }
}

TEST(hopper_a_warpgroup_multiplies_as_a_whole_and_waits_before_it_ends) {
    const char* source = R"(
typedef unsigned long long u64;
extern "C" __global__ void some(int warps, int waits) {
    extern __shared__ __align__(1024) char memory[];
    for (int i = threadIdx.x; i < 16384; i += 128) memory[i] = 0;
    __syncthreads();
    u64 at = (u64)(sim_shared_address(memory) >> 4) | 64ull << 32 | 1ull << 62;
    float d[4] = {0, 0, 0, 0};
    if (threadIdx.x / 32 < warps) {
        sim_wgmma_fence();
        sim_wgmma(d, 8, at, at, 1, 0);
        sim_wgmma_commit();
        if (waits) sim_wgmma_wait(0);
    }
}
)";
    static const Compiled compiled = compile(source);
    OK(compiled.code);
    for (int warps : {3, 4})
        for (int waits : {0, 1}) {
            Device device;
            Handle module, some;
            OK(cuModuleLoadData(&module, compiled.image.data()));
            OK(cuModuleGetFunction(&some, module, "some"));
            OK(launch(some, 1, 128, 16384, nullptr, warps, waits));
            bool fine = warps == 4 && waits;
            CHECK_EQUAL(cuCtxSynchronize(), fine ? 0 : 719);
            CHECK(fine || mentions(waits ? "four warps" : "waited") || mentions("four warps"));
        }
}

TEST(hopper_tensor_maps_are_refused_as_by_the_driver) {
    Device device;
    CHECK_EQUAL(Encoding().code(), 0);
    auto refused = [](std::function<void(Encoding&)> change, int code = 1) {
        Encoding encoding;
        change(encoding);
        CHECK_EQUAL(encoding.code(), code);
    };
    refused([](Encoding& e) { e.address += 8; });                        // 16 bytes
    refused([](Encoding& e) { e.address = 0; });
    refused([](Encoding& e) { e.strides[0] = 136; });                    // 16 bytes
    refused([](Encoding& e) { e.strides[0] = 112; });                    // lines overlap
    refused([](Encoding& e) { e.strides[0] = 1ULL << 40; });
    refused([](Encoding& e) { e.dims[1] = 0; });
    refused([](Encoding& e) { e.dims[0] = (1ULL << 32) + 1, e.strides[0] = 1ULL << 34; });
    refused([](Encoding& e) { e.box[1] = 257; });
    refused([](Encoding& e) { e.box[1] = 0; });
    refused([](Encoding& e) { e.box[0] = 4; });                          // 8 bytes
    refused([](Encoding& e) { e.box[0] = 128; });                        // more than the swizzle
    refused([](Encoding& e) { e.steps[0] = 9; });
    refused([](Encoding& e) { e.steps[1] = 0; });
    refused([](Encoding& e) { e.type = 13; });
    refused([](Encoding& e) { e.rank = 0; });
    refused([](Encoding& e) { e.rank = 6; });
    refused([](Encoding& e) { e.interleave = 1; });                      // for three dims and more
    refused([](Encoding& e) { e.swizzle = 4; });
    refused([](Encoding& e) { e.type = 1, e.fill = 1; });                // NaN in whole numbers
    refused([](Encoding& e) { e.rank = 3, e.swizzle = 0; }, 801);        // taken by the driver, not simulated
    alignas(64) char bytes[192];
    CHECK_EQUAL(Encoding().into(reinterpret_cast<Map*>(bytes + 32)), 1);  // 64 bytes
}
