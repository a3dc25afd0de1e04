// Makes CUDA C++ source compile as plain C++ for the simulator. The stand-in NVRTC includes this file before the
// source and rewrites the three `__millrace_*__` words below after preprocessing (scan.cpp says how).
//
// No standard header is included here or below: NVRTC has none either, and kernels that lean on one must fail here.
#pragma once

#define MILLRACE_SIMULATOR 1
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __NVCC__ 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define CUDART_VERSION 13000

#define __global__ __millrace_global__
#define __shared__ __millrace_shared__
#define __launch_bounds__(...) __millrace_bounds__((__VA_ARGS__))
#define __maxnreg__(n)
#define __cluster_dims__(...)
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __inline_hint__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __restrict__ __restrict
#define __nv_pure__ __attribute__((pure))
#define __builtin_assume(condition) ((void)0)
#define NULL __null
#define warpSize 32

#include "abi.h"

typedef decltype(sizeof(0)) size_t;
typedef decltype((char*)0 - (char*)0) ptrdiff_t;

#define threadIdx (static_cast<const uint3&>(millrace_sim_position.thread))
#define blockIdx (static_cast<const uint3&>(millrace_sim_position.block))
#define blockDim (static_cast<const uint3&>(millrace_sim_position.block_dim))
#define gridDim (static_cast<const uint3&>(millrace_sim_position.grid_dim))

extern "C" {
void* memcpy(void*, const void*, size_t) noexcept;
void* memset(void*, int, size_t) noexcept;
void* memmove(void*, const void*, size_t) noexcept;
int memcmp(const void*, const void*, size_t) noexcept;
int printf(const char*, ...);
}

#define assert(condition) \
    ((condition)          \
         ? (void)0        \
         : millrace_sim_fail(millrace_sim::failure_assert, "assertion failed: " #condition, __FILE__, __LINE__))

#include "vector_types.h"
#include "intrinsics.h"
#include "warp.h"
#include "atomics.h"
#include "mma.h"
#include "hopper.h"
#include "entry.h"
