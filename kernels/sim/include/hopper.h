// The simulator's side of Hopper's instructions: mbarriers, bulk copies of tensors (TMA) and wgmma.
//
// - An mbarrier's phase ends when its arrivals have come and the bytes that it expects have arrived. A wait for a parity
//   suspends the thread; where nobody is left to end it, the launch fails with 719 and names the line.
// - A bulk copy poisons its target when it is issued and arrives later, by chance or when no thread can go on; copies
//   overtake each other. Only a wait for its mbarrier orders a reader after it.
// - wgmma multiplies when it is issued, in f32 with a rounding for each addition, k ascending; the sums are poison until
//   wait_group has passed their group. If the factors change before that wait, the launch fails: the instruction may read
//   them until then. Fences are required before the first wgmma after a wait; other fences do nothing.
#pragma once

namespace millrace_sim {

struct WgmmaArguments {
    float* d;  // columns / 2 sums
    int columns;
    unsigned long long a, b;  // descriptors
    int accumulates, half;
    int line;
};

}  // namespace millrace_sim

extern "C" {
void millrace_sim_mbarrier_init(void* barrier, unsigned count, int line);
void millrace_sim_mbarrier_arrive(void* barrier, unsigned arrivals, unsigned bytes, int line);
void millrace_sim_mbarrier_wait(void* barrier, unsigned parity, int line);
void millrace_sim_tma_load_2d(void* target, const void* map, void* barrier, int x, int y, int line);
unsigned millrace_sim_shared_address(const void* at, int line);
void millrace_sim_wgmma_multiply(void* const arguments[32], unsigned);
void millrace_sim_wgmma_fence();
void millrace_sim_wgmma_commit();
void millrace_sim_wgmma_wait(int groups_left);
}

inline void sim_mbarrier_init(void* barrier, unsigned count, int line = __builtin_LINE()) {
    millrace_sim_mbarrier_init(barrier, count, line);
}
inline void sim_mbarrier_arrive(void* barrier, int line = __builtin_LINE()) {
    millrace_sim_mbarrier_arrive(barrier, 1, 0, line);
}
inline void sim_mbarrier_expect_tx(void* barrier, unsigned bytes, int line = __builtin_LINE()) {
    millrace_sim_mbarrier_arrive(barrier, 0, bytes, line);
}
inline void sim_mbarrier_arrive_expect_tx(void* barrier, unsigned bytes, int line = __builtin_LINE()) {
    millrace_sim_mbarrier_arrive(barrier, 1, bytes, line);
}
// Returns when the phase of this parity has ended.
inline void sim_mbarrier_wait_parity(void* barrier, unsigned parity, int line = __builtin_LINE()) {
    millrace_sim_mbarrier_wait(barrier, parity, line);
}
// The box at column x and row y; `map` comes from cuTensorMapEncodeTiled.
inline void sim_tma_load_2d(void* target, const void* map, void* barrier, int x, int y, int line = __builtin_LINE()) {
    millrace_sim_tma_load_2d(target, map, barrier, x, y, line);
}
// A byte of dynamic shared memory in the 18 bits that descriptors have.
inline unsigned sim_shared_address(const void* at, int line = __builtin_LINE()) {
    return millrace_sim_shared_address(at, line);
}
// m64nNk16 with f32 sums of bf16 or, if `half`, f16; both factors along k, swizzled by 128 bytes.
inline void sim_wgmma(float* d, int columns, unsigned long long a, unsigned long long b, int accumulates, int half,
                      int line = __builtin_LINE()) {
    millrace_sim::WgmmaArguments arguments{d, columns, a, b, accumulates, half, line};
    millrace_sim_warp(0xffffffffu, millrace_sim::warp_wgmma, millrace_sim_wgmma_multiply, &arguments, line);
}
inline void sim_wgmma_fence() { millrace_sim_wgmma_fence(); }
inline void sim_wgmma_commit() { millrace_sim_wgmma_commit(); }
inline void sim_wgmma_wait(int groups_left) { millrace_sim_wgmma_wait(groups_left); }
