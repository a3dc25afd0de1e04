// The contract between a compiled kernel object and the simulator's runtime.
//
// Kernel objects and the runtime are built by the same compiler from this file, so plain structs are enough. Kernel
// objects must not include any standard header: kernels are written for NVRTC, which has none, and may declare their
// own `uint64_t`.
#pragma once

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return uint3{x, y, z}; }
};

namespace millrace_sim {

// Changes whenever a struct or function of this file does; an image with another number is refused at load.
constexpr unsigned abi_version = 2;

// CUDA error codes that kernels can end with.
enum Failure {
    failure_timeout = 702,
    failure_illegal_address = 700,
    failure_assert = 710,
    failure_illegal_instruction = 715,
    failure_misaligned = 716,
    failure_launch = 719,
};

// Where the running CUDA thread is. The runtime rewrites it at every switch of threads.
struct Position {
    uint3 thread, block;
    uint3 block_dim, grid_dim;
    char* dynamic_shared;
    unsigned dynamic_shared_bytes;
    unsigned lane;
};

// Warp operations that lanes execute together. Lanes meet only in equal kinds.
enum WarpKind {
    warp_sync,
    warp_shuffle,
    warp_vote,
    warp_match,
    warp_reduce,
    warp_mma,
    warp_ldmatrix,
    warp_stmatrix,
    warp_wgmma,
};

// Called once, by the last lane to arrive, with the arguments of every lane (null where a lane does not take part).
using WarpFunction = void (*)(void* const arguments[32], unsigned mask);

enum BlockVote { block_vote_none, block_vote_count, block_vote_and, block_vote_or };

// A kernel's entry in the object's table.
struct Kernel {
    const char* name;  // null: the object's dynamic symbol at `function`
    void* function;
    void (*call)(void* function, void** parameters);
    const unsigned* parameter_sizes;
    const unsigned* parameter_alignments;
    unsigned parameters;
    unsigned max_threads;  // from __launch_bounds__, 0 if it has none
};

struct Module {
    unsigned abi;
    unsigned kernels;
    const Kernel* kernel;
    int observed;  // built with a call before each access of memory
};

}  // namespace millrace_sim

extern "C" {

// Initial-exec: one instruction to reach, and the runtime's thread-local block stays a few bytes.
extern __thread millrace_sim::Position millrace_sim_position __attribute__((tls_model("initial-exec")));

int millrace_sim_block_barrier(int id, int count, int vote, int predicate, int line);
void millrace_sim_block_arrive(int id, int count, int line);
void millrace_sim_warp(unsigned mask, int kind, millrace_sim::WarpFunction run, void* arguments, int line);
void millrace_sim_yield();
[[noreturn]] void millrace_sim_fail(int failure, const char* what, const char* file, int line);

void millrace_sim_copy_async(void* target, const void* source, int bytes, int source_bytes, int line);
void millrace_sim_copy_commit();
void millrace_sim_copy_wait(int groups_left);
void millrace_sim_copy_wait_all();

unsigned long long millrace_sim_clock();
int millrace_sim_is_shared(const void* address);
}
