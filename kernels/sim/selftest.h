// What the self-tests share: a small driver over the same API that programs use.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

using CUdeviceptr = uint64_t;
using Handle = void*;

extern "C" {
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(Handle*, int);
int cuDevicePrimaryCtxRelease_v2(int);
int cuDevicePrimaryCtxReset_v2(int);
int cuDeviceGetCount(int*);
int cuDeviceGetPCIBusId(char*, int, int);
int cuCtxSetCurrent(Handle);
int cuCtxSynchronize();
int cuMemAlloc_v2(CUdeviceptr*, size_t);
int cuMemFree_v2(CUdeviceptr);
int cuMemAllocAsync(CUdeviceptr*, size_t, Handle);
int cuMemFreeAsync(CUdeviceptr, Handle);
int cuMemHostAlloc(void**, size_t, unsigned);
int cuMemFreeHost(void*);
int cuMemcpyHtoD_v2(CUdeviceptr, const void*, size_t);
int cuMemcpyDtoH_v2(void*, CUdeviceptr, size_t);
int cuMemcpyHtoDAsync_v2(CUdeviceptr, const void*, size_t, Handle);
int cuMemcpyDtoHAsync_v2(void*, CUdeviceptr, size_t, Handle);
int cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, size_t, Handle);
int cuMemcpyPeerAsync(CUdeviceptr, Handle, CUdeviceptr, Handle, size_t, Handle);
int cuMemsetD32Async(CUdeviceptr, unsigned, size_t, Handle);
int cuMemGetInfo_v2(size_t*, size_t*);
int cuStreamCreate(Handle*, unsigned);
int cuStreamDestroy_v2(Handle);
int cuStreamSynchronize(Handle);
int cuStreamWaitEvent(Handle, Handle, unsigned);
int cuStreamBeginCapture_v2(Handle, int);
int cuStreamEndCapture(Handle, Handle*);
int cuEventCreate(Handle*, unsigned);
int cuEventRecord(Handle, Handle);
int cuEventQuery(Handle);
int cuEventSynchronize(Handle);
int cuEventElapsedTime_v2(float*, Handle, Handle);
int cuLaunchHostFunc(Handle, void (*)(void*), void*);
int cuGraphInstantiateWithFlags(Handle*, Handle, unsigned long long);
int cuGraphLaunch(Handle, Handle);
int cuModuleLoadData(Handle*, const void*);
int cuModuleUnload(Handle);
int cuModuleGetFunction(Handle*, Handle, const char*);
int cuModuleGetGlobal_v2(CUdeviceptr*, size_t*, Handle, const char*);
int cuFuncSetAttribute(Handle, int, int);
int cuFuncGetAttribute(int*, int, Handle);
int cuLaunchKernel(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**,
                   void**);
int cuGetProcAddress_v2(const char*, void**, int, uint64_t, int*);
const char* millrace_sim_last_error();
void millrace_sim_set_seed(uint64_t);
const char* millrace_sim_counts();
void millrace_sim_reset_counts();

int nvrtcCreateProgram(Handle*, const char*, const char*, int, const char* const*, const char* const*);
int nvrtcCompileProgram(Handle, int, const char* const*);
int nvrtcAddNameExpression(Handle, const char*);
int nvrtcGetLoweredName(Handle, const char*, const char**);
int nvrtcGetCUBINSize(Handle, size_t*);
int nvrtcGetCUBIN(Handle, char*);
int nvrtcGetProgramLogSize(Handle, size_t*);
int nvrtcGetProgramLog(Handle, char*);
int nvrtcDestroyProgram(Handle*);
}

struct Test {
    const char* name;
    std::function<void()> run;
};
std::vector<Test>& tests();

struct Register {
    Register(const char* name, std::function<void()> run) { tests().push_back({name, std::move(run)}); }
};
#define TEST(name)                                \
    static void name();                           \
    static Register register_##name(#name, name); \
    static void name()

// Ends the running test with a message.
[[noreturn]] void fail(const char* file, int line, const std::string& what);
#define CHECK(condition)                                        \
    do {                                                        \
        if (!(condition)) fail(__FILE__, __LINE__, #condition); \
    } while (0)
#define CHECK_EQUAL(a, b)                                                                                          \
    do {                                                                                                           \
        auto a_ = (a);                                                                                             \
        decltype(a_) b_ = (b);                                                                                     \
        if (!(a_ == b_)) fail(__FILE__, __LINE__, #a " is " + std::to_string(a_) + ", not " + std::to_string(b_)); \
    } while (0)
#define OK(call) CHECK_EQUAL(call, 0)

bool mentions(const char* word);  // whether the last error's message has the word

// The result of compiling: a code, the log and, if the code is 0, the image.
struct Compiled {
    int code;
    std::string log;
    std::vector<char> image;
};
Compiled compile(const std::string& source,
                 std::vector<const char*> options = {"--gpu-architecture=sm_90a", "--fmad=false"});

// A fresh context of a device, the current one of the thread.
struct Device {
    Handle context;
    int number;
    explicit Device(int number = 0);
    ~Device();
};

struct Module {
    Handle handle = nullptr;
    explicit Module(const std::string& source);
    Handle function(const char* name) const;
};

template <class... A>
int launch(Handle function, unsigned grid, unsigned block, unsigned shared, Handle stream, A... arguments) {
    void* pointers[] = {&arguments..., nullptr};
    return cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared, stream, pointers, nullptr);
}

template <class T>
CUdeviceptr upload(const std::vector<T>& values) {
    CUdeviceptr at = 0;
    OK(cuMemAlloc_v2(&at, values.size() * sizeof(T)));
    OK(cuMemcpyHtoD_v2(at, values.data(), values.size() * sizeof(T)));
    return at;
}
template <class T>
std::vector<T> download(CUdeviceptr at, size_t n) {
    std::vector<T> values(n);
    OK(cuMemcpyDtoH_v2(values.data(), at, n * sizeof(T)));
    return values;
}
CUdeviceptr fresh(size_t bytes);
