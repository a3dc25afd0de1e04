// Barriers and warp operations: every lane hands its arguments to the runtime and sleeps until the last lane of its
// mask has arrived, who computes the result of all.
//
// The line of the call travels along, for messages and to tell barriers apart: threads that wait at the barriers of
// two different lines have diverged.
#pragma once

namespace millrace_sim {

inline unsigned lane() { return millrace_sim_position.lane; }

// What a lane reads from a lane that does not take part; undefined in CUDA.
constexpr unsigned long long undefined_value = 0xcbcbcbcbcbcbcbcbULL;

struct Shuffle {
    unsigned long long value, result;
    int source;
};

inline void run_shuffle(void* const arguments[32], unsigned) {
    for (int lane = 0; lane < 32; lane++) {
        if (Shuffle* mine = static_cast<Shuffle*>(arguments[lane])) {
            const Shuffle* source = static_cast<const Shuffle*>(arguments[mine->source]);
            mine->result = source ? source->value : undefined_value;
        }
    }
}

struct Vote {
    unsigned predicate, result;
};

inline void run_ballot(void* const arguments[32], unsigned) {
    unsigned ballot = 0;
    for (int lane = 0; lane < 32; lane++)
        if (const Vote* vote = static_cast<const Vote*>(arguments[lane])) ballot |= (vote->predicate != 0) << lane;
    for (int lane = 0; lane < 32; lane++)
        if (Vote* vote = static_cast<Vote*>(arguments[lane])) vote->result = ballot;
}

struct Match {
    unsigned long long value;
    unsigned result;
};

inline void run_match(void* const arguments[32], unsigned) {
    for (int lane = 0; lane < 32; lane++) {
        Match* mine = static_cast<Match*>(arguments[lane]);
        if (!mine) continue;
        mine->result = 0;
        for (int other = 0; other < 32; other++)
            if (const Match* match = static_cast<const Match*>(arguments[other]))
                mine->result |= (match->value == mine->value) << other;
    }
}

struct Reduce {
    unsigned value, result;
    int operation;  // 0 add, 1 min, 2 max, 3 and, 4 or, 5 xor; 6 min, 7 max signed
};

inline void run_reduce(void* const arguments[32], unsigned) {
    bool first = true;
    unsigned total = 0;
    for (int lane = 0; lane < 32; lane++) {
        const Reduce* mine = static_cast<const Reduce*>(arguments[lane]);
        if (!mine) continue;
        unsigned v = mine->value;
        if (first)
            total = v;
        else if (mine->operation == 0)
            total += v;
        else if (mine->operation == 1)
            total = v < total ? v : total;
        else if (mine->operation == 2)
            total = v > total ? v : total;
        else if (mine->operation == 3)
            total &= v;
        else if (mine->operation == 4)
            total |= v;
        else if (mine->operation == 5)
            total ^= v;
        else if (mine->operation == 6)
            total = (int)v < (int)total ? v : total;
        else
            total = (int)v > (int)total ? v : total;
        first = false;
    }
    for (int lane = 0; lane < 32; lane++)
        if (Reduce* mine = static_cast<Reduce*>(arguments[lane])) mine->result = total;
}

inline unsigned reduce(unsigned mask, unsigned value, int operation, int line) {
    Reduce reduce{value, 0, operation};
    millrace_sim_warp(mask, warp_reduce, run_reduce, &reduce, line);
    return reduce.result;
}

template <class T>
inline T shuffle(unsigned mask, T value, int source, int line) {
    static_assert(sizeof(T) <= 8, "shuffles move values of at most 64 bits");
    Shuffle shuffle{0, 0, source};
    __builtin_memcpy(&shuffle.value, &value, sizeof(T));
    millrace_sim_warp(mask, warp_shuffle, run_shuffle, &shuffle, line);
    __builtin_memcpy(&value, &shuffle.result, sizeof(T));
    return value;
}

}  // namespace millrace_sim

inline void __syncthreads(int line = __builtin_LINE()) { millrace_sim_block_barrier(0, 0, 0, 0, line); }
inline int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
    return millrace_sim_block_barrier(0, 0, millrace_sim::block_vote_count, predicate, line);
}
inline int __syncthreads_and(int predicate, int line = __builtin_LINE()) {
    return millrace_sim_block_barrier(0, 0, millrace_sim::block_vote_and, predicate, line);
}
inline int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
    return millrace_sim_block_barrier(0, 0, millrace_sim::block_vote_or, predicate, line);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
    char nothing;
    millrace_sim_warp(mask, millrace_sim::warp_sync, nullptr, &nothing, line);
}

// Named barriers, `bar.sync id, threads` and `bar.arrive id, threads`.
inline void sim_bar_sync(int id, int threads, int line = __builtin_LINE()) {
    millrace_sim_block_barrier(id, threads, 0, 0, line);
}
inline void sim_bar_arrive(int id, int threads, int line = __builtin_LINE()) {
    millrace_sim_block_arrive(id, threads, line);
}

// Source lanes as in PTX `shfl`: `width` splits the warp into segments of that many lanes.
template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, int line = __builtin_LINE()) {
    int lane = (int)millrace_sim::lane(), segment = ~(width - 1) & 31;
    return millrace_sim::shuffle(mask, value, (lane & segment) | (source & ~segment & 31), line);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    int lane = (int)millrace_sim::lane(), segment = ~(width - 1) & 31;
    int source = lane - (int)delta;
    return millrace_sim::shuffle(mask, value, source >= (lane & segment) ? source : lane, line);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    int lane = (int)millrace_sim::lane(), segment = ~(width - 1) & 31;
    int source = lane + (int)delta;
    return millrace_sim::shuffle(mask, value, source <= (lane | (~segment & 31)) ? source : lane, line);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, int line = __builtin_LINE()) {
    int lane = (int)millrace_sim::lane(), segment = ~(width - 1) & 31;
    int source = (lane ^ lane_mask) & 31;
    return millrace_sim::shuffle(mask, value, source <= (lane | (~segment & 31)) ? source : lane, line);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    millrace_sim::Vote vote{predicate != 0, 0};
    millrace_sim_warp(mask, millrace_sim::warp_vote, millrace_sim::run_ballot, &vote, line);
    return vote.result;
}
inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return __ballot_sync(mask, predicate, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return __ballot_sync(mask, !predicate, line) == 0;
}
template <class T>
inline unsigned __match_any_sync(unsigned mask, T value, int line = __builtin_LINE()) {
    millrace_sim::Match match{0, 0};
    __builtin_memcpy(&match.value, &value, sizeof(T));
    millrace_sim_warp(mask, millrace_sim::warp_match, millrace_sim::run_match, &match, line);
    return match.result;
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned v, int line = __builtin_LINE()) {
    return millrace_sim::reduce(mask, v, 0, line);
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned v, int line = __builtin_LINE()) {
    return millrace_sim::reduce(mask, v, 1, line);
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned v, int line = __builtin_LINE()) {
    return millrace_sim::reduce(mask, v, 2, line);
}
inline int __reduce_add_sync(unsigned mask, int v, int line = __builtin_LINE()) {
    return (int)millrace_sim::reduce(mask, (unsigned)v, 0, line);
}
inline int __reduce_min_sync(unsigned mask, int v, int line = __builtin_LINE()) {
    return (int)millrace_sim::reduce(mask, (unsigned)v, 6, line);
}
inline int __reduce_max_sync(unsigned mask, int v, int line = __builtin_LINE()) {
    return (int)millrace_sim::reduce(mask, (unsigned)v, 7, line);
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned v, int line = __builtin_LINE()) {
    return millrace_sim::reduce(mask, v, 3, line);
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned v, int line = __builtin_LINE()) {
    return millrace_sim::reduce(mask, v, 4, line);
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned v, int line = __builtin_LINE()) {
    return millrace_sim::reduce(mask, v, 5, line);
}

// A card promises no more than that the calling lane is active, and neither do we: code that leans on convergence
// finds itself alone.
inline unsigned __activemask() { return 1u << millrace_sim::lane(); }
