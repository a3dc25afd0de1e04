// State of mbarriers, bulk copies and wgmma of a block; include/hopper.h says what they do.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tensor_map.h"

namespace millrace_sim {

struct MBarrier {
    unsigned expected = 0;  // arrivals of a phase
    unsigned pending = 0;   // arrivals that have yet to come in this one
    long bytes = 0;         // expected and not arrived; below zero if some came before they were expected
    unsigned phase = 0;
    std::vector<unsigned> waiting;  // threads
};

// A bulk copy on its way.
struct BulkCopy {
    TensorMap map;
    char* target;
    char* barrier;
    long x, y;

    size_t bytes() const { return static_cast<size_t>(map.box_columns) * map.element_bytes * map.box_rows; }
};

// Sums that belong to the tensor core until their groups are waited for.
struct Accumulator {
    std::vector<float> values;
    unsigned under_way = 0;
};

// A multiplication of a thread that has not been waited for; the first lane's has the factors as they were.
struct Multiplication {
    float* d;
    uint64_t a = 0, b = 0;
    int columns = 0;
    uint64_t sum_of_factors = 0;
    bool checks = false;
    int line = 0;
};

struct WgmmaThread {
    std::map<float*, Accumulator> accumulators;
    std::vector<Multiplication> multiplications;
    std::vector<unsigned> groups;  // numbers of multiplications, oldest first
    unsigned uncommitted = 0;
    unsigned issued = 0;
    bool fenced = false;
};

struct Hopper {
    std::map<char*, MBarrier> barriers;
    std::vector<BulkCopy> copies;
    std::map<unsigned, WgmmaThread> threads;  // of those that multiply
    std::map<unsigned, int> lines;            // of waits at mbarriers, by thread

    void clear() {
        barriers.clear();
        copies.clear();
        threads.clear();
        lines.clear();
    }
};

struct Runner;
// Lets a bulk copy arrive.
void finish_bulk_copy(Runner& r, unsigned number);
// Why a block may not end; null if it may.
const char* unfinished(const Runner& r);

}  // namespace millrace_sim
