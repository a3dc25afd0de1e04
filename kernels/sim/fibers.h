// Runs one kernel launch on the calling host thread: blocks one after the other, the threads of a block as fibers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "include/abi.h"

namespace millrace_sim {

// A small generator: scheduling choices need speed and variety, not statistical quality.
struct Random {
    uint64_t state;
    explicit Random(uint64_t seed) : state(seed * 0x9e3779b97f4a7c15ULL + 0x632be59bd9b4e019ULL) { next(); }
    uint64_t next() {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        return state * 0x2545f4914f6cdd1dULL >> 16;
    }
    uint32_t below(uint32_t n) { return static_cast<uint32_t>((next() & 0xffffffff) * n >> 32); }
};

// The byte that fills memory nobody has written: -2.67e7 as f32, -2.68e7 as bf16, -15.6 as f16.
constexpr unsigned char poison_byte = 0xcb;

// The static __shared__ variables of a module are its thread-local block, so every host thread has its own.
struct SharedImage {
    unsigned long tls_module = 0;
    size_t bytes = 0;
};

struct Launch {
    const Kernel* kernel;
    std::string name;
    uint3 grid, block;
    unsigned dynamic_shared_bytes;
    unsigned dynamic_shared_alignment;
    SharedImage shared;
    bool observed;  // built with calls to the observer
    void** parameters;
    uint64_t seed;
};

// How a launch ended; code 0 is success.
struct LaunchResult {
    int code = 0;
    std::string message;
};

LaunchResult run_launch(const Launch& launch);

// Turns memory faults of kernels into failed launches; other faults go to the handlers that were there before.
void install_fault_handlers();

// Whether the calling host thread is inside a kernel.
bool in_kernel();

}  // namespace millrace_sim
