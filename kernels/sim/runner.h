// The state of the block that a host thread is running; private to the runtime.
#pragma once

#include <time.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fibers.h"
#include "hopper.h"
#include "observer.h"

namespace millrace_sim {

constexpr unsigned max_threads = 1024;

struct Fiber {
    void* stack_pointer;
    char* stack;
    unsigned number;
};

// Sets of lanes are bit masks.
struct Warp {
    unsigned ready;    // can run
    unsigned pending;  // wait in a warp operation
    unsigned alive;    // have not exited
    unsigned mask[32];
    int kind[32];
    int line[32];
    WarpFunction run[32];
    void* arguments[32];
};

struct Barrier {
    unsigned arrived, expected, expected_before;
    int line;
    int count;   // of true predicates so far
    int result;  // of the last release
    unsigned waiting[32];
};

// A cp.async that has been issued and not waited for.
struct Copy {
    char* target;
    const char* source;
    unsigned bytes, source_bytes;
    const void* site;  // of the instruction
};

// The copies of a thread: `groups` holds the numbers of copies in the committed groups, oldest first.
struct Copies {
    std::vector<Copy> copies;
    std::vector<unsigned> groups;
    unsigned uncommitted = 0;
    void clear() {
        if (copies.empty() && groups.empty()) return;
        copies.clear();
        groups.clear();
        uncommitted = 0;
    }
};

struct Fault {
    int signal = 0, code = 0;
    void* address = nullptr;
    Position position{};
};

struct Runner {
    Runner();
    ~Runner();

    const Launch* launch = nullptr;
    LaunchResult result;
    Fault fault;
    Random random{1};
    volatile bool active = false;

    unsigned threads = 0, finished = 0;
    unsigned now = 0;       // the running thread
    unsigned warp_now = 0;  // the warp of the last choice
    unsigned ready_warps = 0;
    bool warp_by_warp = false;
    Warp warps[32];
    Barrier barriers[16];
    unsigned epoch = 0;  // counts releases of block barriers
    int barrier_lines[max_threads];
    uint3 index[max_threads];
    Fiber* fiber_of[max_threads];  // null: the thread has not started
    Copies copies[max_threads];
    Hopper hopper;

    std::vector<Fiber*> fibers, free_fibers;
    void* main_stack_pointer = nullptr;

    char* shared = nullptr;  // the module's static shared variables
    size_t shared_bytes = 0;
    char* dynamic = nullptr;  // mapping for dynamic shared memory; a guard page follows it
    char* dynamic_front = nullptr;
    char* dynamic_end = nullptr;
    char* signal_stack = nullptr;
    timer_t timer;  // of launches that last too long
    unsigned timeout_secs = 0;
    void arm_timer(bool on);

    Observer* observer = nullptr;  // of modules that were built for it

    unsigned warp_lanes(unsigned w) const { return threads - w * 32 >= 32 ? ~0u : (1u << (threads - w * 32)) - 1; }
    Fiber* take_fiber();
    int pick();
    void set_ready(unsigned thread);
    void enter(unsigned thread);
    void wait();
    [[noreturn]] void leave();
    [[noreturn]] void fail(int code, const std::string& message);
    void finish_thread();
    bool complete_warp(unsigned w, unsigned lane);
    void release(Barrier& barrier);
    void start_block();
    void run_block();
    void check_dynamic();
    void drop_fibers();
    // Whether the bytes are shared memory of the running block.
    bool in_shared(const void* at, size_t bytes) const;
    std::string describe_deadlock() const;
};

// The calling host thread's runner, created at first use.
Runner& runner();
// The same, or null where no kernel is running.
Runner* running();

LaunchResult describe_fault(const Runner& r);

}  // namespace millrace_sim
