// Self-tests of the simulator: memory, streams, graphs, devices and the stand-in NVRTC. Tests of kernels are in
// selftest_kernels.cpp. Run by selftest.sh.

#include "selftest.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>

namespace {

struct Failure {
    std::string what;
};

}  // namespace

std::vector<Test>& tests() {
    static std::vector<Test> all;
    return all;
}

void fail(const char* file, int line, const std::string& what) {
    const char* name = strrchr(file, '/');
    throw Failure{std::string(name ? name + 1 : file) + ":" + std::to_string(line) + ": " + what +
                  "; last error: " + millrace_sim_last_error()};
}

bool mentions(const char* word) { return strstr(millrace_sim_last_error(), word) != nullptr; }

Compiled compile(const std::string& source, std::vector<const char*> options) {
    Handle program;
    OK(nvrtcCreateProgram(&program, source.c_str(), "test.cu", 0, nullptr, nullptr));
    Compiled out;
    out.code = nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data());
    size_t bytes;
    OK(nvrtcGetProgramLogSize(program, &bytes));
    out.log.resize(bytes);
    OK(nvrtcGetProgramLog(program, &out.log[0]));
    if (out.code == 0) {
        OK(nvrtcGetCUBINSize(program, &bytes));
        out.image.resize(bytes);
        OK(nvrtcGetCUBIN(program, out.image.data()));
    }
    OK(nvrtcDestroyProgram(&program));
    return out;
}

Device::Device(int number) : number(number) {
    OK(cuDevicePrimaryCtxRetain(&context, number));
    OK(cuCtxSetCurrent(context));
}
Device::~Device() { cuDevicePrimaryCtxRelease_v2(number); }

Module::Module(const std::string& source) {
    Compiled compiled = compile(source);
    if (compiled.code) fail(__FILE__, __LINE__, compiled.log);
    OK(cuModuleLoadData(&handle, compiled.image.data()));
}

Handle Module::function(const char* name) const {
    Handle function;
    OK(cuModuleGetFunction(&function, handle, name));
    return function;
}

CUdeviceptr fresh(size_t bytes) {
    CUdeviceptr at;
    OK(cuMemAlloc_v2(&at, bytes));
    return at;
}

static const char* add_one = R"(
extern "C" __global__ void add_one(int* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1;
}
extern "C" __global__ void copy(int* to, const int* from, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = from[i];
}
extern "C" __global__ void set(int* x, int value, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = value;
}
)";

TEST(a_call_without_a_context_fails) {
    OK(cuCtxSetCurrent(nullptr));
    CUdeviceptr at;
    CHECK_EQUAL(cuMemAlloc_v2(&at, 16), 201);
}

TEST(memory_beyond_the_device_is_refused) {
    Device device;
    size_t free_bytes, total, before;
    OK(cuMemGetInfo_v2(&before, &total));
    CUdeviceptr half = fresh(total / 2), more;
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    CHECK_EQUAL(before - free_bytes, total / 2);
    CHECK_EQUAL(cuMemAlloc_v2(&more, total / 2 + 4096), 2);
    OK(cuMemFree_v2(half));
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    CHECK_EQUAL(before, free_bytes);
}

TEST(fresh_memory_is_poisoned) {
    Device device;
    for (size_t bytes : {size_t(1000), size_t(100) << 20}) {
        CUdeviceptr at = fresh(bytes);
        for (size_t offset : {size_t(0), bytes / 2, bytes - 8}) {
            uint64_t value = 0;
            OK(cuMemcpyDtoH_v2(&value, at + offset, 8));
            CHECK_EQUAL(value, 0xcbcbcbcbcbcbcbcbULL);
        }
        OK(cuMemFree_v2(at));
    }
}

TEST(double_and_unknown_frees_are_refused) {
    Device device;
    CUdeviceptr at = fresh(100);
    CHECK_EQUAL(cuMemFree_v2(at + 4), 1);
    OK(cuMemFree_v2(at));
    CHECK_EQUAL(cuMemFree_v2(at), 1);
    CHECK_EQUAL(cuMemFree_v2(0x1234000), 1);
}

TEST(copies_outside_an_allocation_are_refused) {
    Device device;
    CUdeviceptr at = fresh(100);
    char host[300] = {};
    CHECK_EQUAL(cuMemcpyHtoD_v2(at, host, 101), 1);
    CHECK_EQUAL(cuMemcpyHtoD_v2(at + 90, host, 11), 1);
    CHECK_EQUAL(cuMemcpyDtoH_v2(host, at - 1, 4), 1);
    OK(cuMemcpyHtoD_v2(at + 90, host, 10));
    OK(cuMemFree_v2(at));
    CHECK_EQUAL(cuMemcpyDtoH_v2(host, at, 4), 1);
    CHECK(mentions("freed"));
}

TEST(memory_of_another_device_needs_a_peer_copy) {
    Device first(0);
    CUdeviceptr a = upload(std::vector<int>{1, 2, 3, 4});
    Device second(1);
    CUdeviceptr b = fresh(16);
    int host[4];
    CHECK_EQUAL(cuMemcpyDtoH_v2(host, a, 16), 1);
    CHECK(mentions("device 0"));
    OK(cuMemcpyPeerAsync(b, second.context, a, first.context, 16, nullptr));
    CHECK_EQUAL(download<int>(b, 4)[3], 4);
}

TEST(a_missing_wait_for_a_pinned_copy_shows_stale_data) {
    int stale = 0;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        millrace_sim_set_seed(seed);
        Device device;
        Module module(add_one);
        Handle stream;
        OK(cuStreamCreate(&stream, 1));
        CUdeviceptr x = upload(std::vector<int>(64, 41));
        void* pinned;
        OK(cuMemHostAlloc(&pinned, 256, 0));
        OK(launch(module.function("add_one"), 1, 64, 0, stream, x, 64));
        OK(cuMemcpyDtoHAsync_v2(pinned, x, 256, stream));
        stale += static_cast<volatile int*>(pinned)[5] != 42;
        OK(cuStreamSynchronize(stream));
        CHECK_EQUAL(static_cast<int*>(pinned)[5], 42);
    }
    CHECK(stale >= 1);
}

TEST(a_missing_event_between_streams_shows_stale_data) {
    int wrong[2] = {0, 0};
    for (int with_event = 0; with_event < 2; with_event++) {
        Device device;
        Module module(add_one);
        Handle one, two, event;
        OK(cuStreamCreate(&one, 1));
        OK(cuStreamCreate(&two, 1));
        OK(cuEventCreate(&event, 2));
        for (uint64_t seed = 1; seed <= 16; seed++) {
            millrace_sim_set_seed(seed);
            CUdeviceptr x = upload(std::vector<int>(64, 0)), y = fresh(256);
            OK(launch(module.function("set"), 1, 64, 0, one, x, 7, 64));
            if (with_event) {
                OK(cuEventRecord(event, one));
                OK(cuStreamWaitEvent(two, event, 0));
            }
            OK(launch(module.function("copy"), 1, 64, 0, two, y, x, 64));
            OK(cuStreamSynchronize(two));
            wrong[with_event] += download<int>(y, 64)[9] != 7;
            OK(cuCtxSynchronize());
        }
    }
    CHECK(wrong[0] >= 1);
    CHECK_EQUAL(wrong[1], 0);
}

TEST(the_default_stream_waits_for_blocking_streams) {
    for (uint64_t seed = 1; seed <= 16; seed++) {
        millrace_sim_set_seed(seed);
        Device device;
        static const Compiled compiled = compile(add_one);
        Handle module, set, stream;
        OK(cuModuleLoadData(&module, compiled.image.data()));
        OK(cuModuleGetFunction(&set, module, "set"));
        OK(cuStreamCreate(&stream, 0));
        CUdeviceptr x = upload(std::vector<int>(64, 0));
        OK(launch(set, 1, 64, 0, stream, x, 1, 64));
        OK(launch(set, 1, 64, 0, nullptr, x, 2, 64));
        OK(launch(set, 1, 64, 0, stream, x, 3, 64));
        OK(cuStreamSynchronize(stream));
        CHECK_EQUAL(download<int>(x, 64)[1], 3);
    }
}

TEST(stream_ordered_memory_is_used_in_order_only) {
    int faults = 0;
    for (uint64_t seed = 1; seed <= 16; seed++) {
        millrace_sim_set_seed(seed);
        Device device;
        Handle one, two;
        OK(cuStreamCreate(&one, 1));
        OK(cuStreamCreate(&two, 1));
        CUdeviceptr x;
        OK(cuMemAllocAsync(&x, 4096, one));
        OK(cuMemsetD32Async(x, 1, 1024, one));
        OK(cuStreamSynchronize(one));
        // In order on one stream: right. On another without an event: the free may come first.
        int code = cuMemsetD32Async(x, 2, 1024, two);
        if (!code) code = cuMemFreeAsync(x, one);
        if (!code) code = cuCtxSynchronize();
        faults += code == 700 && mentions("freed");
        CHECK(code == 0 || code == 700);
        cuDevicePrimaryCtxReset_v2(0);
    }
    CHECK(faults >= 1);
}

// Another process may wait for work that this one has only queued.
TEST(work_before_a_host_function_goes_on_while_the_host_is_away) {
    static std::atomic<int> reached{0};
    Device device(0);
    Handle stream = nullptr;
    OK(cuStreamCreate(&stream, 1));
    CUdeviceptr x = fresh(64);
    for (int round = 0; round < 4; round++) {
        for (unsigned i = 0; i < 16; i++) OK(cuMemsetD32Async(x, i, 16, stream));
        OK(cuLaunchHostFunc(stream, [](void*) { reached++; }, nullptr));
    }
    for (int i = 0; i < 60000 && reached < 4; i++) usleep(1000);
    CHECK_EQUAL(reached.load(), 4);
    OK(cuStreamSynchronize(stream));
}

TEST(events_tell_time_and_order) {
    Device device;
    Handle stream, start, end;
    OK(cuStreamCreate(&stream, 1));
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuEventQuery(start));
    float ms = -1;
    CHECK_EQUAL(cuEventElapsedTime_v2(&ms, start, end), 400);
    OK(cuEventRecord(start, stream));
    OK(cuLaunchHostFunc(stream, [](void*) { usleep(2000); }, nullptr));
    OK(cuEventRecord(end, stream));
    OK(cuEventSynchronize(end));
    OK(cuEventElapsedTime_v2(&ms, start, end));
    CHECK(ms >= 1.9f && ms < 1e6);
}

TEST(a_graph_replays_what_was_recorded) {
    for (uint64_t seed = 1; seed <= 8; seed++) {
        millrace_sim_set_seed(seed);
        Device device;
        Module module(add_one);
        Handle one, two, fork, join, graph, exec;
        OK(cuStreamCreate(&one, 1));
        OK(cuStreamCreate(&two, 1));
        OK(cuEventCreate(&fork, 2));
        OK(cuEventCreate(&join, 2));
        CUdeviceptr x = upload(std::vector<int>(64, 0)), y = upload(std::vector<int>(64, 10));
        int n = 64;
        OK(cuStreamBeginCapture_v2(one, 1));
        CHECK_EQUAL(cuEventQuery(fork), 900);  // breaks the capture
        CHECK_EQUAL(cuStreamEndCapture(one, &graph), 901);
        OK(cuStreamBeginCapture_v2(one, 1));
        OK(launch(module.function("add_one"), 1, 64, 0, one, x, n));
        OK(cuEventRecord(fork, one));
        OK(cuStreamWaitEvent(two, fork, 0));
        OK(launch(module.function("copy"), 1, 64, 0, two, y, x, n));
        OK(cuEventRecord(join, two));
        OK(cuStreamWaitEvent(one, join, 0));
        OK(launch(module.function("add_one"), 1, 64, 0, one, y, n));
        n = 0;  // parameters are taken when they are recorded
        OK(cuStreamEndCapture(one, &graph));
        OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
        CHECK_EQUAL(download<int>(x, 64)[0], 0);
        for (int i = 0; i < 3; i++) OK(cuGraphLaunch(exec, one));
        OK(cuStreamSynchronize(one));
        CHECK_EQUAL(download<int>(x, 64)[63], 3);
        CHECK_EQUAL(download<int>(y, 64)[63], 4);
    }
}

TEST(a_capture_refuses_what_cuda_refuses) {
    Device device;
    Handle one, two, event, graph;
    OK(cuStreamCreate(&one, 1));
    OK(cuStreamCreate(&two, 1));
    OK(cuEventCreate(&event, 2));
    CUdeviceptr x = fresh(64);
    OK(cuStreamBeginCapture_v2(one, 0));
    CHECK_EQUAL(cuStreamSynchronize(one), 900);
    CHECK_EQUAL(cuStreamEndCapture(one, &graph), 901);
    OK(cuStreamBeginCapture_v2(one, 0));
    CUdeviceptr more;
    CHECK_EQUAL(cuMemAlloc_v2(&more, 64), 900);
    CHECK_EQUAL(cuStreamEndCapture(one, &graph), 901);
    // Another thread's thread-local capture does not concern this one.
    std::thread([&] {
        cuCtxSetCurrent(device.context);
        cuStreamBeginCapture_v2(one, 1);
    }).join();
    OK(cuMemAlloc_v2(&more, 64));
    CHECK_EQUAL(cuStreamEndCapture(one, &graph), 908);
    std::thread([&] {
        cuCtxSetCurrent(device.context);
        Handle ended;
        cuStreamEndCapture(one, &ended);
    }).join();
    // A stream that joined and did not come back.
    OK(cuStreamBeginCapture_v2(one, 2));
    OK(cuEventRecord(event, one));
    OK(cuStreamWaitEvent(two, event, 0));
    OK(cuMemsetD32Async(x, 1, 4, two));
    CHECK_EQUAL(cuStreamEndCapture(one, &graph), 904);
    // Work outside the capture.
    OK(cuEventRecord(event, two));
    OK(cuStreamBeginCapture_v2(one, 2));
    CHECK_EQUAL(cuStreamWaitEvent(one, event, 0), 905);
    CHECK_EQUAL(cuStreamEndCapture(one, &graph), 901);
}

static const char* block_sum = R"(
extern "C" __global__ void block_sum(int* out, const int* in, int rounds) {
    __shared__ int values[256];
    for (int round = 0; round < rounds; round++) {
        values[threadIdx.x] = in[blockIdx.x * 256 + threadIdx.x] + round;
        for (int half = 128; half; half /= 2) {
            __syncthreads();
            if (threadIdx.x < half) values[threadIdx.x] += values[threadIdx.x + half];
        }
        if (threadIdx.x == 0) out[blockIdx.x] = values[0];
        __syncthreads();
    }
}
)";

TEST(devices_run_on_host_threads_side_by_side) {
    const int devices = 4;
    std::string problems[devices];
    std::vector<std::thread> threads;
    static const Compiled compiled = compile(block_sum);
    for (int number = 0; number < devices; number++)
        threads.emplace_back([number, &problems] {
            try {
                Device device(number);
                Handle module, function, stream;
                OK(cuModuleLoadData(&module, compiled.image.data()));
                OK(cuModuleGetFunction(&function, module, "block_sum"));
                OK(cuStreamCreate(&stream, 1));
                std::vector<int> values(256 * 16, number + 1);
                CUdeviceptr in = upload(values), out = fresh(64);
                for (int i = 0; i < 5; i++) OK(launch(function, 16, 256, 0, stream, out, in, 4));
                OK(cuStreamSynchronize(stream));
                for (int sum : download<int>(out, 16)) CHECK_EQUAL(sum, 256 * (number + 1 + 3));
            } catch (const Failure& failure) {
                problems[number] = failure.what;
            }
        });
    for (auto& thread : threads) thread.join();
    for (const std::string& problem : problems)
        if (!problem.empty()) throw Failure{problem};
}

TEST(events_order_work_across_devices) {
    for (uint64_t seed = 1; seed <= 8; seed++) {
        millrace_sim_set_seed(seed);
        Device first(0);
        static const Compiled compiled = compile(add_one);
        Handle module, set, one, two, event;
        OK(cuModuleLoadData(&module, compiled.image.data()));
        OK(cuModuleGetFunction(&set, module, "set"));
        OK(cuStreamCreate(&one, 1));
        OK(cuEventCreate(&event, 2));
        CUdeviceptr a = upload(std::vector<int>(64, 0));
        OK(launch(set, 1, 64, 0, one, a, 5, 64));
        OK(cuEventRecord(event, one));
        Device second(1);
        OK(cuStreamCreate(&two, 1));
        CUdeviceptr b = fresh(256);
        OK(cuStreamWaitEvent(two, event, 0));
        OK(cuMemcpyPeerAsync(b, second.context, a, first.context, 256, two));
        OK(cuStreamSynchronize(two));
        CHECK_EQUAL(download<int>(b, 64)[3], 5);
    }
}

TEST(launches_beyond_the_limits_are_refused) {
    Device device;
    Module module(
        "extern \"C\" __global__ void __launch_bounds__(128) k(int* x) { extern __shared__ int s[];\n"
        "    s[threadIdx.x] = 1; x[0] = s[0]; }");
    Handle k = module.function("k");
    CUdeviceptr x = fresh(4);
    CHECK_EQUAL(launch(k, 0, 32, 0, nullptr, x), 1);
    CHECK_EQUAL(launch(k, 1, 0, 0, nullptr, x), 1);
    CHECK_EQUAL(launch(k, 1, 1025, 0, nullptr, x), 1);
    CHECK_EQUAL(launch(k, 1, 160, 4096, nullptr, x), 1);
    CHECK(mentions("launch bounds"));
    CHECK_EQUAL(launch(k, 1, 128, 49153, nullptr, x), 1);
    CHECK_EQUAL(cuFuncSetAttribute(k, 8, 232449), 1);
    OK(cuFuncSetAttribute(k, 8, 232448));
    OK(launch(k, 1, 128, 232448, nullptr, x));
    OK(cuCtxSynchronize());
    CHECK_EQUAL(launch(reinterpret_cast<Handle>(&device), 1, 1, 0, nullptr, x), 400);
}

TEST(damaged_images_are_refused) {
    Device device;
    Compiled compiled = compile(add_one);
    Handle module;
    CHECK_EQUAL(cuModuleLoadData(&module,
                                 "\x7f"
                                 "ELF no cubin of ours, whatever it may hold instead"),
                200);
    compiled.image[compiled.image.size() / 2] ^= 1;
    CHECK_EQUAL(cuModuleLoadData(&module, compiled.image.data()), 200);
    compiled.image[compiled.image.size() / 2] ^= 1;
    compiled.image[24] ^= 64;
    CHECK_EQUAL(cuModuleLoadData(&module, compiled.image.data()), 200);
    compiled.image[24] ^= 64;
    OK(cuModuleLoadData(&module, compiled.image.data()));
    Handle function;
    CHECK_EQUAL(cuModuleGetFunction(&function, module, "absent"), 500);
    OK(cuModuleUnload(module));
    CHECK_EQUAL(cuModuleGetFunction(&function, module, "copy"), 1);
}

TEST(the_compiler_reports_lines_and_refuses_options) {
    Compiled bad = compile("extern \"C\" __global__ void k(int* p) {\n\n    p[0] = missing;\n}\n");
    CHECK_EQUAL(bad.code, 6);
    CHECK(bad.log.find("test.cu:3:") != std::string::npos && bad.log.find("missing") != std::string::npos);
    CHECK_EQUAL(compile(add_one, {"--no-such-option"}).code, 5);
    CHECK_EQUAL(compile(add_one, {"--gpu-architecture=sm_12"}).code, 5);
    CHECK_EQUAL(compile(add_one, {"-arch=sm_80", "--fmad=false", "--std=c++17", "-DX=1", "-I/tmp",
                                  "--device-as-default-execution-space", "--include-path=/tmp"})
                    .code,
                0);
    CHECK_EQUAL(compile("__global__ void k(int* x) { __shared__ int s = 1; x[0] = s; }").code, 6);
    CHECK_EQUAL(compile("__global__ void a(float* x) { extern __shared__ float s[]; x[0] = s[0]; }\n"
                        "__global__ void b(int* x) { extern __shared__ int s[]; x[0] = s[0]; }")
                    .code,
                6);
    // As with NVRTC, there are no headers of the system.
    CHECK_EQUAL(compile("#include <stdint.h>\n").code, 6);
}

TEST(kernels_are_found_wherever_they_are) {
    Device device;
    Module module(R"(
#define KERNEL(name, T) extern "C" __global__ void name(T* x) { x[threadIdx.x] = (T)threadIdx.x; }
KERNEL(fill_int, int)
KERNEL(fill_float, float)
#if 0
extern "C" __global__ void absent(int* x) { this does not compile }
#endif
// extern "C" __global__ void commented(int* x) {}
const char* text = "extern \"C\" __global__ void quoted() {";
namespace a { namespace { constexpr int threads = 64;
extern "C" __global__ void __launch_bounds__(threads, 2) inner(int* x) { x[0] = 3; } } }
extern "C" { __global__ void linked(int* x, const int2 pair) { x[0] = pair.y; } }
extern "C" __global__ void declared(int* x);
__global__ void mangled(int* x) { x[0] = 9; }
__device__ int table[5] = {1, 2, 3, 4, 5};
extern "C" __global__ void declared(int* x) { x[0] = table[4]; }
)");
    CUdeviceptr x = fresh(256);
    OK(launch(module.function("fill_float"), 1, 64, 0, nullptr, x));
    CHECK_EQUAL(download<float>(x, 64)[63], 63.0f);
    OK(launch(module.function("inner"), 1, 1, 0, nullptr, x));
    CHECK_EQUAL(download<int>(x, 1)[0], 3);
    struct {
        int x, y;
    } pair = {6, 8};
    OK(launch(module.function("linked"), 1, 1, 0, nullptr, x, pair));
    CHECK_EQUAL(download<int>(x, 1)[0], 8);
    OK(launch(module.function("_Z7mangledPi"), 1, 1, 0, nullptr, x));
    CHECK_EQUAL(download<int>(x, 1)[0], 9);
    int threads;
    OK(cuFuncGetAttribute(&threads, 0, module.function("inner")));
    CHECK_EQUAL(threads, 64);
    CUdeviceptr table;
    size_t bytes;
    OK(cuModuleGetGlobal_v2(&table, &bytes, module.handle, "table"));
    CHECK_EQUAL(bytes, 20u);
    int value = 50;
    OK(cuMemcpyHtoD_v2(table + 16, &value, 4));
    OK(launch(module.function("declared"), 1, 1, 0, nullptr, x));
    CHECK_EQUAL(download<int>(x, 1)[0], 50);
}

TEST(templates_are_reached_by_name_expressions) {
    Device device;
    Handle program, module, function;
    const char* header = "template <class T> __global__ void twice(T* x) { x[threadIdx.x] *= 2; }\n";
    const char* header_name = "ops/twice.cuh";
    OK(nvrtcCreateProgram(&program, "#include \"ops/twice.cuh\"\n", nullptr, 1, &header, &header_name));
    OK(nvrtcAddNameExpression(program, "&twice<float>"));
    const char* option = "-arch=sm_90";
    OK(nvrtcCompileProgram(program, 1, &option));
    const char* lowered;
    OK(nvrtcGetLoweredName(program, "&twice<float>", &lowered));
    size_t bytes;
    OK(nvrtcGetCUBINSize(program, &bytes));
    std::vector<char> image(bytes);
    OK(nvrtcGetCUBIN(program, image.data()));
    OK(cuModuleLoadData(&module, image.data()));
    OK(cuModuleGetFunction(&function, module, lowered));
    OK(nvrtcDestroyProgram(&program));
    CUdeviceptr x = upload(std::vector<float>{1, 2, 3});
    OK(launch(function, 1, 3, 0, nullptr, x));
    CHECK_EQUAL(download<float>(x, 3)[2], 6.0f);
}

TEST(functions_are_found_by_name) {
    void* function = nullptr;
    int status;
    OK(cuGetProcAddress_v2("cuMemAlloc", &function, 13000, 0, &status));
    CHECK(function == reinterpret_cast<void*>(&cuMemAlloc_v2));
    CHECK_EQUAL(cuGetProcAddress_v2("cuNothing", &function, 13000, 0, &status), 500);
}

// Tests that need an environment of their own run in a child of this program.
static int child(const char* argument, const char* variable, const char* value) {
    pid_t pid = fork();
    if (pid == 0) {
        setenv(variable, value, 1);
        freopen("/dev/null", "w", stderr);
        execl("/proc/self/exe", "selftest", argument, nullptr);
        _exit(99);
    }
    int status;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(a_lost_card_fails_from_its_launch_on) { CHECK_EQUAL(child("--lose", "MILLRACE_SIM_LOSE", "1:3"), 0); }
TEST(a_card_is_lost_after_the_kernel_that_another_thread_executes) {
    CHECK_EQUAL(child("--lose-busy", "MILLRACE_SIM_LOSE", "1:2"), 0);
}
TEST(visible_devices_are_chosen) { CHECK_EQUAL(child("--visible", "CUDA_VISIBLE_DEVICES", "2,0,9,1"), 0); }
TEST(no_devices_is_an_error_of_cuinit) { CHECK_EQUAL(child("--init", "MILLRACE_SIM_DEVICES", "0"), 100); }
TEST(an_endless_kernel_is_ended) { CHECK_EQUAL(child("--endless", "MILLRACE_SIM_TIMEOUT_SECS", "1"), 0); }
TEST(faults_of_the_host_stay_faults) { CHECK_EQUAL(child("--crash", "MILLRACE_SIM_DEVICES", "1"), 128 + 11); }

static int run_child(const std::string& what) {
    if (what == "--init") return cuInit(0);
    OK(cuInit(0));
    if (what == "--visible") {
        int count;
        char bus[32];
        OK(cuDeviceGetCount(&count));
        CHECK_EQUAL(count, 2);
        OK(cuDeviceGetPCIBusId(bus, sizeof(bus), 0));
        CHECK(std::string(bus) == "0000:12:00.0");
        return 0;
    }
    if (what == "--crash") {
        Device device;
        fresh(16);
        *reinterpret_cast<volatile int*>(16) = 1;
        return 0;
    }
    if (what == "--endless") {
        Device device;
        Module module("extern \"C\" __global__ void kernel(volatile int* x) { while (x[0] == 0) {} }");
        CUdeviceptr x = upload(std::vector<int>{0});
        int code = launch(module.function("kernel"), 1, 1, 0, nullptr, x);
        CHECK_EQUAL(code ? code : cuCtxSynchronize(), 702);
        return 0;
    }
    if (what == "--lose-busy") {
        Device device(1);
        Module module(
            "extern \"C\" __global__ void kernel(volatile int* x, int n) {"
            " x[0] = 1; for (int i = 0; i < n; i++) x[1] = i; x[2] = 1; }");
        CUdeviceptr x = upload(std::vector<int>{0, 0, 0});
        volatile int* seen = reinterpret_cast<volatile int*>(x);
        OK(launch(module.function("kernel"), 1, 1, 0, nullptr, x, 300000000));
        std::thread executes([&] {
            cuCtxSetCurrent(device.context);
            cuCtxSynchronize();
        });
        while (!seen[0]) std::this_thread::yield();
        int code = launch(module.function("kernel"), 1, 1, 0, nullptr, x, 1), ended = seen[2];
        executes.join();
        CHECK_EQUAL(code, 719);
        CHECK_EQUAL(ended, 1);
        return 0;
    }
    Device kept(0);
    Module other(add_one);
    CUdeviceptr y = fresh(256);
    Device lost(1);
    Module module(add_one);
    Handle set = module.function("set"), again;
    CUdeviceptr x = fresh(256);
    for (int i = 1; i <= 5; i++) CHECK_EQUAL(launch(set, 1, 64, 0, nullptr, x, 1, 64), i < 3 ? 0 : 719);
    CHECK_EQUAL(cuMemFree_v2(x), 719);
    CHECK_EQUAL(cuDevicePrimaryCtxRetain(&again, 1), 46);
    OK(cuCtxSetCurrent(kept.context));
    OK(launch(other.function("set"), 1, 64, 0, nullptr, y, 1, 64));
    OK(cuCtxSynchronize());
    return 0;
}

int main(int count, char** arguments) {
    setenv("MILLRACE_SIM_DEVICES", "4", 0);
    if (count == 2 && arguments[1][0] == '-') {
        try {
            return run_child(arguments[1]);
        } catch (const Failure& failure) {
            printf("%s\n", failure.what.c_str());
            return 98;
        }
    }
    if (cuInit(0)) return 1;
    int passed = 0, failed = 0;
    for (const Test& test : tests()) {
        if (count == 2 && !strstr(test.name, arguments[1])) continue;
        millrace_sim_set_seed(1);
        try {
            test.run();
            passed++;
            printf("ok      %s\n", test.name);
        } catch (const Failure& failure) {
            failed++;
            printf("FAILED  %s: %s\n", test.name, failure.what.c_str());
        }
        fflush(stdout);
        for (int device = 0; device < 4; device++) cuDevicePrimaryCtxReset_v2(device);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
