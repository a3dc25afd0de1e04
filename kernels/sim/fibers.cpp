// Blocks, threads and barriers.
//
// A fiber runs CUDA threads one after another and switches to another fiber only where a thread has to wait, so a
// kernel without barriers costs no switch at all. Whenever there is a choice, the next thread is drawn at random:
// either among all threads of the block or, to let warps run far ahead of each other, warp by warp; a block draws its
// manner at its start. Missing barriers therefore show as wrong results under most seeds.

#include "fibers.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "memory.h"
#include "runner.h"

extern "C" {
__thread millrace_sim::Position millrace_sim_position __attribute__((tls_model("initial-exec")));

// Saves the callee-saved registers, stores the stack pointer in `*save` and continues at `target`.
void millrace_sim_switch(void** save, void* target);
// The second half of the switch, for a stack pointer that the first half has stored.
void millrace_sim_resume();
void millrace_sim_start();
}

asm(R"(
.text
.globl millrace_sim_switch
.type millrace_sim_switch, @function
millrace_sim_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
.globl millrace_sim_resume
.type millrace_sim_resume, @function
millrace_sim_resume:
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size millrace_sim_switch, .-millrace_sim_switch

.globl millrace_sim_start
.type millrace_sim_start, @function
millrace_sim_start:
    xorl %ebp, %ebp
    call millrace_sim_fiber_main
    ud2
.size millrace_sim_start, .-millrace_sim_start
)");

namespace millrace_sim {

// A pointer, not the object: thread-local storage of a library that is opened late is scarce.
static __thread Runner* current_runner __attribute__((tls_model("initial-exec")));

Runner& runner() {
    if (!current_runner) current_runner = new Runner();
    return *current_runner;
}

Runner* running() { return current_runner && current_runner->active ? current_runner : nullptr; }

bool in_kernel() { return running() != nullptr; }

namespace {

struct RunnerCleanup {
    ~RunnerCleanup() {
        delete current_runner;
        current_runner = nullptr;
    }
};

constexpr size_t page = 4096;
constexpr size_t stack_bytes = 256 << 10;
constexpr size_t dynamic_limit = 256 << 10;
constexpr unsigned front_canary_bytes = 256;

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

int timeout_signal() { return SIGRTMIN + 7; }

char* map_with_guards(size_t bytes) {
    void* at = mmap(nullptr, bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) abort();
    char* base = static_cast<char*>(at) + page;
    if (mprotect(base, bytes, PROT_READ | PROT_WRITE)) abort();
    return base;
}

void reset_fiber(Fiber& fiber) {
    // `top` is aligned to 16 bytes, as the ABI wants the stack before a call.
    // The start is moved by a few lines from fiber to fiber: stacks lie at equal distances and would otherwise share
    // the same sets of the cache.
    size_t top = stack_bytes - 64 - fiber.number % 32 * 192;
    void** sp = reinterpret_cast<void**>(fiber.stack + top);
    *--sp = reinterpret_cast<void*>(&millrace_sim_start);
    for (int i = 0; i < 6; i++) *--sp = nullptr;
    fiber.stack_pointer = sp;
}

unsigned random_bit(unsigned mask, Random& random) {
    unsigned turn = random.next() & 31;
    unsigned turned = mask >> turn | mask << (-turn & 31);
    return (__builtin_ctz(turned) + turn) & 31;
}

std::string place(const Runner& r, bool with_thread) {
    const Position& at = millrace_sim_position;
    char text[160];
    int n = snprintf(text, sizeof(text), ", block (%u,%u,%u)", at.block.x, at.block.y, at.block.z);
    if (with_thread) snprintf(text + n, sizeof(text) - n, ", thread (%u,%u,%u)", at.thread.x, at.thread.y, at.thread.z);
    return "kernel " + r.launch->name + text;
}

}  // namespace

Runner::Runner() {
    static thread_local RunnerCleanup cleanup;
    (void)&cleanup;
    dynamic = map_with_guards(dynamic_limit + page);
    stack_t old{};
    if (sigaltstack(nullptr, &old) == 0 && (old.ss_flags & SS_DISABLE)) {
        signal_stack = map_with_guards(64 << 10);
        stack_t mine{};
        mine.ss_sp = signal_stack;
        mine.ss_size = 64 << 10;
        sigaltstack(&mine, nullptr);
    }
    const char* seconds = getenv("MILLRACE_SIM_TIMEOUT_SECS");
    timeout_secs = seconds ? static_cast<unsigned>(atoi(seconds)) : 0;
    if (timeout_secs) {
        struct sigevent event{};
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_signo = timeout_signal();
        event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
        if (timer_create(CLOCK_MONOTONIC, &event, &timer)) timeout_secs = 0;
    }
}

void Runner::arm_timer(bool on) {
    if (!timeout_secs) return;
    struct itimerspec when{};
    when.it_value.tv_sec = on ? static_cast<time_t>(timeout_secs) : 0;
    timer_settime(timer, 0, &when, nullptr);
}

Runner::~Runner() {
    for (Fiber* fiber : fibers) {
        munmap(fiber->stack - page, stack_bytes + 2 * page);
        delete fiber;
    }
    if (timeout_secs) timer_delete(timer);
    munmap(dynamic - page, dynamic_limit + 3 * page);
    if (signal_stack) {
        stack_t off{};
        off.ss_flags = SS_DISABLE;
        sigaltstack(&off, nullptr);
        munmap(signal_stack - page, (64 << 10) + 2 * page);
    }
}

Fiber* Runner::take_fiber() {
    if (free_fibers.empty()) {
        Fiber* fiber = new Fiber();
        fiber->number = static_cast<unsigned>(fibers.size());
        fiber->stack = map_with_guards(stack_bytes);
        reset_fiber(*fiber);
        fibers.push_back(fiber);
        return fiber;
    }
    Fiber* fiber = free_fibers.back();
    free_fibers.pop_back();
    return fiber;
}

int Runner::pick() {
    while (!hopper.copies.empty() && (!ready_warps || random.below(8) == 0))
        finish_bulk_copy(*this, random.below(static_cast<uint32_t>(hopper.copies.size())));
    if (!ready_warps) return -1;
    unsigned w = warp_now;
    bool stay = (ready_warps >> w & 1) && warp_by_warp && (random.next() & 63);
    if (!stay) w = random_bit(ready_warps, random);
    unsigned lane = random_bit(warps[w].ready, random);
    warp_now = w;
    return static_cast<int>(w * 32 + lane);
}

void Runner::set_ready(unsigned thread) {
    warps[thread / 32].ready |= 1u << thread % 32;
    ready_warps |= 1u << thread / 32;
}

void Runner::enter(unsigned thread) {
    Warp& warp = warps[thread / 32];
    warp.ready &= ~(1u << thread % 32);
    if (!warp.ready) ready_warps &= ~(1u << thread / 32);
    now = thread;
    millrace_sim_position.thread = index[thread];
    millrace_sim_position.lane = thread % 32;
}

// Leaves the block for good: the fibers' contents are dropped.
void Runner::leave() {
    void* nowhere;
    millrace_sim_switch(&nowhere, main_stack_pointer);
    __builtin_unreachable();
}

void Runner::fail(int code, const std::string& message) {
    result.code = code;
    result.message = message;
    leave();
}

// Runs another thread until this one is made ready and drawn again.
void Runner::wait() {
    int next = pick();
    if (next < 0) fail(failure_launch, place(*this, false) + ": " + describe_deadlock());
    if (static_cast<unsigned>(next) == now) {
        enter(next);
        return;
    }
    Fiber* mine = fiber_of[now];
    enter(next);
    Fiber*& theirs = fiber_of[next];
    if (!theirs) theirs = take_fiber();
    millrace_sim_switch(&mine->stack_pointer, theirs->stack_pointer);
}

std::string Runner::describe_deadlock() const {
    unsigned done = 0, at_barrier = 0, at_warp = 0, at_mbarrier = 0;
    int mbarrier_line = 0;
    int barrier_line = 0, other_barrier_line = 0, warp_line = 0;
    for (unsigned t = 0; t < threads; t++) {
        const Warp& warp = warps[t / 32];
        unsigned bit = 1u << t % 32;
        if (!(warp.alive & bit)) {
            done++;
        } else if (warp.pending & bit) {
            at_warp++;
            warp_line = warp.line[t % 32];
        } else if (hopper.lines.count(t)) {
            at_mbarrier++;
            mbarrier_line = hopper.lines.at(t);
        } else {
            at_barrier++;
            if (barrier_line && barrier_line != barrier_lines[t]) other_barrier_line = barrier_lines[t];
            if (!barrier_line) barrier_line = barrier_lines[t];
        }
    }
    std::string text = "barrier divergence:";
    auto add = [&text](unsigned count, const std::string& what) {
        if (count) text += (text.back() == ':' ? " " : ", ") + std::to_string(count) + " " + what;
    };
    add(at_barrier, "threads wait at a block barrier (line " + std::to_string(barrier_line) +
                        (other_barrier_line ? " and line " + std::to_string(other_barrier_line) : "") + ")");
    add(at_mbarrier, "threads wait at an mbarrier (line " + std::to_string(mbarrier_line) + ")");
    add(at_warp, "threads wait in a warp operation (line " + std::to_string(warp_line) + ")");
    add(done, "threads have exited");
    return text;
}

void Runner::finish_thread() {
    unsigned w = now / 32;
    Warp& warp = warps[w];
    warp.alive &= ~(1u << now % 32);
    copies[now].clear();
    finished++;
    // Lanes that have exited are no longer waited for.
    for (unsigned left = warp.pending; left; left &= left - 1)
        if (warp.pending >> __builtin_ctz(left) & 1) complete_warp(w, __builtin_ctz(left));
}

// Completes the warp operation that `lane` waits for, if every lane of its mask has arrived.
bool Runner::complete_warp(unsigned w, unsigned lane) {
    Warp& warp = warps[w];
    unsigned group = warp.mask[lane] & warp.alive;
    if ((warp.pending & group) != group) return false;
    void* arguments[32] = {};
    for (unsigned left = group; left; left &= left - 1) {
        unsigned l = __builtin_ctz(left);
        // A lane that waits with another mask may still be released by its own group and come back.
        if (warp.mask[l] != warp.mask[lane]) return false;
        if (warp.kind[l] != warp.kind[lane] || warp.run[l] != warp.run[lane])
            fail(failure_launch, place(*this, false) + ": lanes of one warp wait in different operations (line " +
                                     std::to_string(warp.line[l]) + " and line " + std::to_string(warp.line[lane]) +
                                     ")");
        arguments[l] = warp.arguments[l];
    }
    if (warp.run[lane]) warp.run[lane](arguments, group);
    warp.pending &= ~group;
    warp.ready |= group;
    if (group) ready_warps |= 1u << w;
    if (observer && warp.kind[lane] == warp_sync) observe_warp_sync(observer, w, group);
    return true;
}

void Runner::start_block() {
    finished = 0;
    ready_warps = 0;
    unsigned warp_count = (threads + 31) / 32;
    for (unsigned w = 0; w < warp_count; w++) {
        warps[w].ready = warps[w].alive = warp_lanes(w);
        warps[w].pending = 0;
        ready_warps |= 1u << w;
    }
    memset(fiber_of, 0, threads * sizeof(Fiber*));
    memset(barriers, 0, sizeof(barriers));
    hopper.clear();
    warp_by_warp = (random.next() & 3) != 0;
    warp_now = random.below(warp_count);
    if (shared_bytes) memset(shared, poison_byte, shared_bytes);
    memset(dynamic_front, poison_byte, dynamic_end - dynamic_front);
    if (observer) observe_block(observer);
}

// Bytes around the dynamic shared memory that a block may not touch.
void Runner::check_dynamic() {
    for (const char* at = dynamic_front; at < dynamic_end; at++) {
        if (at == millrace_sim_position.dynamic_shared) at += launch->dynamic_shared_bytes;
        if (at >= dynamic_end || static_cast<unsigned char>(*at) == poison_byte) continue;
        long offset = at - millrace_sim_position.dynamic_shared;
        result.code = failure_illegal_address;
        result.message = place(*this, false) + ": wrote at offset " + std::to_string(offset) + " of " +
                         std::to_string(launch->dynamic_shared_bytes) + " bytes of dynamic shared memory";
        return;
    }
}

void Runner::run_block() {
    start_block();
    int first = pick();
    enter(first);
    Fiber* fiber = take_fiber();
    fiber_of[first] = fiber;
    millrace_sim_switch(&main_stack_pointer, fiber->stack_pointer);
    if (result.code == 0) check_dynamic();
    if (observer && result.code == 0) observe_block_end(observer);
}

bool Runner::in_shared(const void* at, size_t bytes) const {
    const char* begin = static_cast<const char*>(at);
    const char* dynamic_begin = millrace_sim_position.dynamic_shared;
    return (begin >= shared && begin + bytes <= shared + shared_bytes) ||
           (begin >= dynamic_begin && begin + bytes <= dynamic_begin + launch->dynamic_shared_bytes);
}

void Runner::drop_fibers() {
    free_fibers.clear();
    for (Fiber* fiber : fibers) {
        reset_fiber(*fiber);
        free_fibers.push_back(fiber);
    }
    for (auto& list : copies) list.clear();
    hopper.clear();
}

namespace {

// A multiplier without a common factor with `n`: i -> (i * step + start) mod n visits every number once.
uint64_t coprime_step(uint64_t n, Random& random) {
    for (;;) {
        uint64_t step = 1 + random.next() % n, a = n, b = step;
        while (b) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1) return step;
    }
}

}  // namespace

LaunchResult run_launch(const Launch& launch) {
    Runner& r = runner();
    r.launch = &launch;
    r.result = LaunchResult();
    r.random = Random(launch.seed);
    r.threads = launch.block.x * launch.block.y * launch.block.z;
    Position& at = millrace_sim_position;
    at.block_dim = launch.block;
    at.grid_dim = launch.grid;
    for (unsigned t = 0; t < r.threads; t++)
        r.index[t] =
            uint3{t % launch.block.x, t / launch.block.x % launch.block.y, t / (launch.block.x * launch.block.y)};
    r.shared = nullptr;
    r.shared_bytes = launch.shared.bytes;
    if (launch.shared.bytes) {
        struct {
            unsigned long module, offset;
        } tls = {launch.shared.tls_module, 0};
        extern void* tls_get_addr(void*) asm("__tls_get_addr");
        r.shared = static_cast<char*>(tls_get_addr(&tls));
    }
    size_t alignment = launch.dynamic_shared_alignment < 128 ? 128 : launch.dynamic_shared_alignment;
    r.dynamic_end = r.dynamic + dynamic_limit + page;
    at.dynamic_shared = r.dynamic_end - round_up(launch.dynamic_shared_bytes, alignment);
    at.dynamic_shared_bytes = launch.dynamic_shared_bytes;
    r.dynamic_front = at.dynamic_shared - front_canary_bytes;

    uint64_t blocks = static_cast<uint64_t>(launch.grid.x) * launch.grid.y * launch.grid.z;
    uint64_t step = coprime_step(blocks, r.random), number = r.random.next() % blocks;
    if (launch.observed) r.observer = observe_launch(r);
    // Whatever the host thread has set: denormals are kept and results round to nearest, as on a card.
    unsigned host_mode = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(0x1f80);
    r.active = true;
    r.arm_timer(true);
    for (uint64_t i = 0; i < blocks && r.result.code == 0; i++) {
        number = static_cast<uint64_t>((static_cast<unsigned __int128>(number) + step) % blocks);
        at.block = uint3{static_cast<unsigned>(number % launch.grid.x),
                         static_cast<unsigned>(number / launch.grid.x % launch.grid.y),
                         static_cast<unsigned>(number / launch.grid.x / launch.grid.y)};
        r.run_block();
    }
    r.active = false;
    __builtin_ia32_ldmxcsr(host_mode);
    r.arm_timer(false);
    if (r.fault.signal) {
        r.result = describe_fault(r);
        r.fault = Fault();
    }
    if (r.observer) observe_launch_end(r.observer, r.result.code != 0);
    r.observer = nullptr;
    if (r.result.code) r.drop_fibers();
    r.launch = nullptr;
    return r.result;
}

// The handlers that were installed before ours.
namespace {

struct sigaction old_actions[65];

void on_fault(int number, siginfo_t* info, void* context) {
    Runner* r = running();
    if (!r) {
        if (number == timeout_signal()) return;  // the launch has just ended
        // Put the earlier handler back and return: the instruction faults again and reaches it.
        sigaction(number, &old_actions[number], nullptr);
        return;
    }
    ucontext_t* machine = static_cast<ucontext_t*>(context);
    r->fault.signal = number;
    r->fault.code = info->si_code;
    r->fault.address = info->si_addr;
    r->fault.position = millrace_sim_position;
    r->result.code = failure_illegal_address;
    // Continue where the launch was entered, on its stack.
    machine->uc_mcontext.gregs[REG_RSP] = reinterpret_cast<greg_t>(r->main_stack_pointer);
    machine->uc_mcontext.gregs[REG_RIP] = reinterpret_cast<greg_t>(&millrace_sim_resume);
}

}  // namespace

void install_fault_handlers() {
    for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, timeout_signal()}) {
        struct sigaction action{};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigemptyset(&action.sa_mask);
        sigaction(number, &action, &old_actions[number]);
    }
}

LaunchResult describe_fault(const Runner& r) {
    const Position& at = r.fault.position;
    char where[160], what[200];
    snprintf(where, sizeof(where), ", block (%u,%u,%u), thread (%u,%u,%u): ", at.block.x, at.block.y, at.block.z,
             at.thread.x, at.thread.y, at.thread.z);
    LaunchResult result;
    result.code = failure_illegal_address;
    const char* address = static_cast<const char*>(r.fault.address);
    std::string text;
    if (r.fault.signal == timeout_signal()) {
        result.code = failure_timeout;
        text = "ran for more than " + std::to_string(r.timeout_secs) + " s (MILLRACE_SIM_TIMEOUT_SECS)";
    } else if (r.fault.signal == SIGFPE) {
        result.code = failure_launch;
        text = "integer division by zero";
    } else if (r.fault.signal == SIGILL) {
        result.code = failure_illegal_instruction;
        text = "illegal instruction";
    } else if (r.fault.signal == SIGSEGV && r.fault.code > 0 && r.fault.code & 0x80) {
        // x86 reports a misaligned vector access without an address, as a general protection fault.
        result.code = failure_misaligned;
        text = "misaligned vector access";
    } else {
        for (const Fiber* fiber : r.fibers)
            if (address >= fiber->stack - page && address < fiber->stack) text = "stack overflow of a thread";
        if (address >= r.dynamic_end && address < r.dynamic_end + page) {
            snprintf(what, sizeof(what), "access at offset %ld of %u bytes of dynamic shared memory",
                     static_cast<long>(address - at.dynamic_shared), r.launch->dynamic_shared_bytes);
            text = what;
        }
        if (text.empty()) text = "illegal address: " + describe_address(address);
    }
    result.message = "kernel " + r.launch->name + where + text;
    return result;
}

}  // namespace millrace_sim

using namespace millrace_sim;

// The life of a fiber: run the thread that was chosen, then choose the next.
extern "C" void millrace_sim_fiber_main() {
    Runner& r = runner();
    for (;;) {
        const Kernel* kernel = r.launch->kernel;
        kernel->call(kernel->function, r.launch->parameters);
        Fiber* mine = r.fiber_of[r.now];
        r.finish_thread();
        const char* why = r.finished == r.threads ? unfinished(r) : nullptr;
        if (why) r.fail(failure_launch, place(r, false) + ": " + why);
        int next = r.pick();
        if (next < 0) {
            r.free_fibers.push_back(mine);
            if (r.finished < r.threads) r.fail(failure_launch, place(r, false) + ": " + r.describe_deadlock());
            millrace_sim_switch(&mine->stack_pointer, r.main_stack_pointer);
            continue;
        }
        r.enter(next);
        if (Fiber* theirs = r.fiber_of[next]) {
            r.free_fibers.push_back(mine);
            millrace_sim_switch(&mine->stack_pointer, theirs->stack_pointer);
        } else {
            r.fiber_of[next] = mine;
        }
    }
}

extern "C" int millrace_sim_block_barrier(int id, int count, int vote, int predicate, int line) {
    Runner& r = runner();
    if (id < 0 || id > 15) millrace_sim_fail(failure_launch, "barrier number outside 0..15", nullptr, line);
    Barrier& barrier = r.barriers[id];
    unsigned expected = count ? static_cast<unsigned>(count) : r.threads;
    r.barrier_lines[r.now] = line;
    if (barrier.arrived == 0) {
        barrier.expected = expected;
        barrier.line = line;
        barrier.count = 0;
    } else if (barrier.expected != expected || (count == 0 && barrier.line != line)) {
        r.fail(failure_launch, place(r, true) +
                                   ": barrier divergence: threads of one block wait at different barriers (line " +
                                   std::to_string(barrier.line) + " and line " + std::to_string(line) + ")");
    }
    barrier.count += predicate != 0;
    barrier.arrived++;
    if (barrier.arrived < barrier.expected) {
        barrier.waiting[r.now / 32] |= 1u << r.now % 32;
        r.wait();
    } else {
        r.release(barrier);
        // The last thread goes on as one of the released, not ahead of them.
        r.set_ready(r.now);
        r.wait();
    }
    if (vote == block_vote_and) return barrier.result == static_cast<int>(barrier.expected_before);
    if (vote == block_vote_or) return barrier.result != 0;
    return barrier.result;
}

extern "C" void millrace_sim_block_arrive(int id, int count, int line) {
    Runner& r = runner();
    if (id < 0 || id > 15 || count <= 0)
        millrace_sim_fail(failure_launch, "bad barrier number or count", nullptr, line);
    Barrier& barrier = r.barriers[id];
    if (barrier.arrived == 0) {
        barrier.expected = static_cast<unsigned>(count);
        barrier.line = line;
        barrier.count = 0;
    }
    if (++barrier.arrived == barrier.expected) r.release(barrier);
}

void Runner::release(Barrier& barrier) {
    barrier.result = barrier.count;
    barrier.expected_before = barrier.expected;
    barrier.arrived = 0;
    for (unsigned w = 0; w < 32; w++) {
        if (!barrier.waiting[w]) continue;
        warps[w].ready |= barrier.waiting[w];
        ready_warps |= 1u << w;
        barrier.waiting[w] = 0;
    }
    epoch++;
}

extern "C" void millrace_sim_warp(unsigned mask, int kind, WarpFunction run, void* arguments, int line) {
    Runner& r = runner();
    unsigned w = r.now / 32, lane = r.now % 32;
    if (!(mask >> lane & 1))
        r.fail(failure_launch, place(r, true) + ": the mask of a warp operation lacks the calling lane (line " +
                                   std::to_string(line) + ")");
    Warp& warp = r.warps[w];
    warp.mask[lane] = mask;
    warp.kind[lane] = kind;
    warp.run[lane] = run;
    warp.arguments[lane] = arguments;
    warp.line[lane] = line;
    warp.pending |= 1u << lane;
    r.complete_warp(w, lane);
    r.wait();
}

extern "C" void millrace_sim_yield() {
    Runner& r = runner();
    r.set_ready(r.now);
    r.wait();
}

extern "C" void millrace_sim_fail(int failure, const char* what, const char* file, int line) {
    Runner& r = runner();
    std::string text = place(r, true) + ": " + what;
    if (line) text += std::string(" at ") + (file ? file : "line") + (file ? ":" : " ") + std::to_string(line);
    r.fail(failure, text);
    __builtin_unreachable();
}

extern "C" unsigned long long millrace_sim_clock() { return __builtin_ia32_rdtsc(); }

extern "C" int millrace_sim_is_shared(const void* address) { return runner().in_shared(address, 1); }
