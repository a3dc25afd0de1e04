// Self-tests of the counters and of the search for races.

#include <cstdlib>

#include "selftest.h"

namespace {

// Sets a variable of the simulator while a test compiles and launches.
struct Environment {
    const char* name;
    explicit Environment(const char* name) : name(name) { setenv(name, "1", 1); }
    ~Environment() { unsetenv(name); }
};

// The number behind "key": after the part of the counts that `path` leads to.
uint64_t counted(const std::string& kernel, const char* group, const char* key) {
    std::string text = millrace_sim_counts();
    size_t at = text.find("\"" + kernel + "\"");
    if (at != std::string::npos) at = text.find(std::string("\"") + group + "\"", at);
    if (at != std::string::npos) at = text.find(std::string("\"") + key + "\": ", at);
    if (at == std::string::npos) fail(__FILE__, __LINE__, "no " + kernel + "." + group + "." + key + " in " + text);
    return strtoull(text.c_str() + at + strlen(key) + 4, nullptr, 10);
}

int race_code(const std::string& source, unsigned grid, unsigned block, unsigned shared = 0) {
    Environment races("MILLRACE_SIM_RACES");
    int code = 0;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        millrace_sim_set_seed(seed);
        Device device;
        Module module(source);
        CUdeviceptr x = upload(std::vector<int>(1024, 0));
        code = launch(module.function("kernel"), grid, block, shared, nullptr, x);
        if (!code) code = cuCtxSynchronize();
        cuDevicePrimaryCtxReset_v2(0);
        if (code) break;
    }
    return code;
}

}  // namespace

TEST(sectors_bytes_and_bank_conflicts_are_counted) {
    Environment count("MILLRACE_SIM_COUNT");
    millrace_sim_reset_counts();
    Device device;
    Module module(R"(
extern "C" __global__ void dense(float* out, const float* in) { out[threadIdx.x] = in[threadIdx.x]; }
extern "C" __global__ void strided(float* out, const float* in) { out[threadIdx.x] = in[threadIdx.x * 16]; }
extern "C" __global__ void wide(float4* out, const float4* in) { out[threadIdx.x] = in[threadIdx.x % 32]; }
extern "C" __global__ void half_full(float* out) { if (threadIdx.x < 16) out[threadIdx.x] = 1; }
extern "C" __global__ void banks(float* out) {
    __shared__ float padded[32][33], plain[32][32];
    padded[threadIdx.x][0] = 1;
    plain[0][threadIdx.x] = 2;
    __syncwarp();
    out[threadIdx.x] = plain[threadIdx.x][5] + padded[threadIdx.x ^ 1][0];
}
extern "C" __global__ void adds(int* out) { atomicAdd(out, 1); }
)");
    CUdeviceptr out = upload(std::vector<float>(4096, 0)), in = upload(std::vector<float>(4096, 0));
    OK(launch(module.function("dense"), 1, 64, 0, nullptr, out, in));
    OK(launch(module.function("strided"), 1, 64, 0, nullptr, out, in));
    OK(launch(module.function("wide"), 1, 64, 0, nullptr, out, in));
    OK(launch(module.function("half_full"), 1, 32, 0, nullptr, out));
    OK(launch(module.function("banks"), 1, 32, 0, nullptr, out));
    OK(launch(module.function("adds"), 2, 32, 0, nullptr, out));
    OK(cuCtxSynchronize());
    CHECK_EQUAL(counted("dense", "load", "requests"), 2u);
    CHECK_EQUAL(counted("dense", "load", "sectors"), 8u);
    CHECK_EQUAL(counted("dense", "load", "bytes"), 256u);
    CHECK_EQUAL(counted("dense", "store", "unique_bytes"), 256u);
    CHECK_EQUAL(counted("strided", "load", "sectors"), 64u);
    CHECK_EQUAL(counted("strided", "load", "unique_bytes"), 256u);
    // Four words to a lane are one request of 512 bytes; both warps read the same ones.
    CHECK_EQUAL(counted("wide", "load", "bytes"), 1024u);
    CHECK_EQUAL(counted("wide", "load", "unique_bytes"), 512u);
    CHECK_EQUAL(counted("wide", "store", "unique_bytes"), 1024u);
    CHECK_EQUAL(counted("half_full", "store", "requests"), 1u);
    CHECK_EQUAL(counted("half_full", "store", "partial_requests"), 1u);
    // Columns of the padded array and a row of the plain one: one pass each; a column of the plain one: 32.
    CHECK_EQUAL(counted("banks", "shared", "requests"), 4u);
    CHECK_EQUAL(counted("banks", "shared", "passes"), 35u);
    CHECK_EQUAL(counted("banks", "shared", "least_passes"), 4u);
    CHECK_EQUAL(counted("adds", "atomic", "requests"), 2u);
    CHECK_EQUAL(counted("adds", "atomic", "sectors"), 2u);
    CHECK_EQUAL(counted("adds", "load", "requests"), 0u);
}

TEST(images_of_other_settings_are_refused) {
    Device device;
    Compiled plain = compile("extern \"C\" __global__ void kernel(int* x) { x[0] = 1; }");
    Handle module;
    OK(cuModuleLoadData(&module, plain.image.data()));
    Environment count("MILLRACE_SIM_COUNT");
    CHECK_EQUAL(cuModuleLoadData(&module, plain.image.data()), 200);
    CHECK(mentions("other MILLRACE_SIM_ settings"));
}

TEST(matrix_loads_and_async_copies_are_counted) {
    Environment count("MILLRACE_SIM_COUNT");
    millrace_sim_reset_counts();
    Device device;
    Module module(R"(
extern "C" __global__ void kernel(unsigned* out, const unsigned* in) {
    __shared__ __align__(16) unsigned tile[32 * 32];
    for (int i = threadIdx.x * 4; i < 1024; i += 128) sim_cp_async(tile + i, in + i, 16);
    sim_cp_async_wait_all();
    __syncwarp();
    unsigned r[4];
    sim_ldmatrix_x4(r, tile + threadIdx.x * 32);
    out[threadIdx.x] = r[0] + r[1] + r[2] + r[3];
}
)");
    CUdeviceptr out = fresh(128), in = upload(std::vector<unsigned>(1024, 1));
    OK(launch(module.function("kernel"), 1, 32, 0, nullptr, out, in));
    OK(cuCtxSynchronize());
    CHECK_EQUAL(counted("kernel", "load", "requests"), 8u);
    CHECK_EQUAL(counted("kernel", "load", "unique_bytes"), 4096u);
    // Eight stores of four passes, and a load whose rows are all in the same four banks: eight passes a matrix.
    CHECK_EQUAL(counted("kernel", "shared", "passes"), 8u * 4 + 4 * 8);
}

TEST(races_on_shared_memory_are_found_under_every_seed) {
    const char* start =
        "extern \"C\" __global__ void kernel(int* x) {\n    __shared__ int s[64];\n    s[threadIdx.x] = 1;\n    ";
    const char* end = ";\n    x[threadIdx.x] = s[threadIdx.x ^ 1];\n}";
    CHECK_EQUAL(race_code(start + std::string("") + end, 1, 64), 719);
    CHECK(mentions("race on shared memory") && mentions("test.cu:3") && mentions("test.cu:5"));
    CHECK_EQUAL(race_code(start + std::string("__syncthreads()") + end, 1, 64), 0);
    CHECK_EQUAL(race_code(start + std::string("__syncwarp()") + end, 1, 64), 0);
    // Not within the warp.
    const char* far = ";\n    x[threadIdx.x] = s[threadIdx.x ^ 32];\n}";
    CHECK_EQUAL(race_code(start + std::string("__syncwarp()") + far, 1, 64), 719);
    CHECK_EQUAL(race_code(start + std::string("__syncthreads()") + far, 1, 64), 0);
    // A shuffle orders no memory.
    CHECK_EQUAL(race_code(start + std::string("__shfl_sync(~0u, 1, 0)") + end, 1, 64), 719);
    // Overwriting what others still read.
    CHECK_EQUAL(
        race_code("extern \"C\" __global__ void kernel(int* x) { __shared__ int s; for (int i = 0; i < 3; i++) {\n"
                  "if (threadIdx.x == 0) s = i;\n__syncthreads();\nx[threadIdx.x] += s; } }",
                  1, 64),
        719);
    // Halves of one word are two places.
    CHECK_EQUAL(race_code("extern \"C\" __global__ void kernel(int* x) { extern __shared__ short h[]; h[threadIdx.x] = "
                          "1; x[threadIdx.x] = h[threadIdx.x]; }",
                          1, 64, 128),
                0);
    // Atomics and the reduction that every kernel has.
    CHECK_EQUAL(
        race_code("extern \"C\" __global__ void kernel(int* x) { __shared__ int s; if (threadIdx.x == 0) s = 0;\n"
                  "__syncthreads(); atomicAdd(&s, 1); __syncthreads(); x[threadIdx.x] = s; }",
                  2, 1),
        719);
    CHECK(mentions("another block"));
    CHECK_EQUAL(
        race_code("extern \"C\" __global__ void kernel(int* x) { __shared__ int s; if (threadIdx.x == 0) s = 0;\n"
                  "__syncthreads(); atomicAdd(&s, 1); __syncthreads(); if (threadIdx.x == 0) x[blockIdx.x] = s; }",
                  2, 64),
        0);
}

TEST(races_on_global_memory_are_found) {
    CHECK_EQUAL(race_code("extern \"C\" __global__ void kernel(int* x) { x[threadIdx.x / 2] = 1; }", 1, 64), 719);
    CHECK_EQUAL(race_code("extern \"C\" __global__ void kernel(int* x) { x[threadIdx.x] = 1; }", 2, 64), 719);
    CHECK_EQUAL(
        race_code("extern \"C\" __global__ void kernel(int* x) { x[threadIdx.x] = 1; x[100] = x[threadIdx.x ^ 1]; }", 1,
                  2),
        719);
    CHECK_EQUAL(race_code("extern \"C\" __global__ void kernel(int* x) { x[threadIdx.x] = 1; __syncthreads(); "
                          "x[threadIdx.x + 100] = x[threadIdx.x ^ 1]; }",
                          1, 64),
                0);
    CHECK_EQUAL(race_code("extern \"C\" __global__ void kernel(int* x) { atomicAdd(x, 1); }", 4, 64), 0);
}
