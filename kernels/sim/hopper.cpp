// mbarriers, bulk copies of tensors and wgmma; include/hopper.h documents them.

#include "include/abi.h"
// after the contract that it calls
#include "include/hopper.h"

#include <immintrin.h>

#include <cstring>

#include "include/bf16.h"
#include "runner.h"

namespace millrace_sim {
namespace {

MBarrier& barrier_at(void* at, int line) {
    Runner& r = runner();
    auto found = r.hopper.barriers.find(static_cast<char*>(at));
    if (found == r.hopper.barriers.end())
        millrace_sim_fail(failure_illegal_instruction, "this is no mbarrier, or it was not initialised", nullptr, line);
    return found->second;
}

void end_phase_if_complete(Runner& r, MBarrier& barrier) {
    if (barrier.pending || barrier.bytes) return;
    barrier.phase ^= 1;
    barrier.pending = barrier.expected;
    for (unsigned thread : barrier.waiting) r.set_ready(thread);
    barrier.waiting.clear();
}

// The 128-byte swizzle: bits 4 to 6 of an address are combined with bits 7 to 9.
uint64_t swizzled(uint64_t at) { return at ^ (at >> 3 & 0x70); }

constexpr uint64_t shared_window = 256 << 10;

char* shared_base(const Runner& r) { return r.dynamic_end - shared_window; }

// A factor of wgmma in shared memory, along k with a swizzle of 128 bytes: lines of 128 bytes, eight of which are a
// group, and a stride from group to group.
struct Factor {
    const Runner& r;
    uint64_t start, stride;

    Factor(const Runner& r, uint64_t descriptor, int line) : r(r) {
        start = (descriptor & 0x3fff) << 4;
        stride = (descriptor >> 32 & 0x3fff) << 4;
        if (descriptor >> 62 != 1 || (descriptor >> 49 & 7))
            millrace_sim_fail(failure_illegal_instruction,
                              "not simulated: a descriptor without the swizzle of 128 bytes, or with a base offset", nullptr,
                              line);
    }
    const char* chunk(int row, int half) const {
        uint64_t at = start + static_cast<uint64_t>(row / 8) * stride + static_cast<uint64_t>(row % 8) * 128 +
                      static_cast<uint64_t>(half) * 16;
        const char* found = shared_base(r) + swizzled(at);
        if (at + 16 > shared_window || !r.in_shared(found, 16))
            millrace_sim_fail(failure_illegal_address, "a factor of wgmma is outside dynamic shared memory", nullptr, 0);
        return found;
    }
};

uint64_t sum_of(const Factor& factor, int first, int rows, uint64_t sum) {
    for (int row = first; row < first + rows; row++)
        for (int half = 0; half < 2; half++) {
            uint64_t words[2];
            memcpy(words, factor.chunk(row, half), 16);
            for (uint64_t word : words) sum = (sum ^ word) * 0x9e3779b97f4a7c15ULL + (sum >> 29);
        }
    return sum;
}

uint64_t sum_of_factors(const Runner& r, const Multiplication& one, unsigned warp) {
    Factor a(r, one.a, one.line), b(r, one.b, one.line);
    return sum_of(b, 0, one.columns, sum_of(a, static_cast<int>(warp % 4) * 16, 16, 1));
}

void widen(const Factor& factor, int row, bool half, float* to) {
    uint16_t values[16];
    memcpy(values, factor.chunk(row, 0), 16);
    memcpy(values + 8, factor.chunk(row, 1), 16);
    for (int k = 0; k < 16; k++) to[k] = half ? half_to_float(values[k]) : bf16_to_float(values[k]);
}

}  // namespace

void finish_bulk_copy(Runner& r, unsigned number) {
    BulkCopy copy = r.hopper.copies[number];
    r.hopper.copies.erase(r.hopper.copies.begin() + number);
    const TensorMap& map = copy.map;
    size_t line = static_cast<size_t>(map.box_columns) * map.element_bytes;
    std::vector<char> row(line);
    for (uint32_t i = 0; i < map.box_rows; i++) {
        // elements outside the tensor are zeros
        memset(row.data(), 0, line);
        long y = copy.y + static_cast<long>(i), first = copy.x < 0 ? -copy.x : 0;
        long end = static_cast<long>(map.columns) - copy.x;
        if (end > static_cast<long>(map.box_columns)) end = map.box_columns;
        if (y >= 0 && y < static_cast<long>(map.rows) && first < end) {
            const char* from = reinterpret_cast<const char*>(map.address + static_cast<uint64_t>(y) * map.row_bytes) +
                               (copy.x + first) * static_cast<long>(map.element_bytes);
            size_t bytes = static_cast<size_t>(end - first) * map.element_bytes;
            if (r.observer) observe_access(r.observer, r.now, from, bytes, access_load, __builtin_return_address(0));
            memcpy(row.data() + static_cast<size_t>(first) * map.element_bytes, from, bytes);
        }
        for (size_t at = 0; at < line; at += 16) {
            uint64_t to = reinterpret_cast<uint64_t>(copy.target) + i * line + at;
            memcpy(reinterpret_cast<char*>(map.swizzle_bytes ? swizzled(to) : to), row.data() + at, 16);
        }
    }
    auto found = r.hopper.barriers.find(copy.barrier);
    if (found == r.hopper.barriers.end()) return;
    found->second.bytes -= static_cast<long>(copy.bytes());
    end_phase_if_complete(r, found->second);
}

const char* unfinished(const Runner& r) {
    if (!r.hopper.copies.empty()) return "the block ended before a bulk copy had arrived";
    for (const auto& thread : r.hopper.threads) {
        if (!thread.second.multiplications.empty()) return "the block ended before a wgmma was waited for";
        if (thread.second.issued == 0) continue;
        for (unsigned warp = 0; warp < 4; warp++) {
            auto other = r.hopper.threads.find(thread.first / 128 * 128 + warp * 32);
            if (other == r.hopper.threads.end() || other->second.issued != thread.second.issued)
                return "wgmma needs all four warps of the warpgroup";
        }
    }
    return nullptr;
}

}  // namespace millrace_sim

using namespace millrace_sim;

extern "C" void millrace_sim_mbarrier_init(void* at, unsigned count, int line) {
    Runner& r = runner();
    if (reinterpret_cast<uintptr_t>(at) % 8) millrace_sim_fail(failure_misaligned, "misaligned mbarrier", nullptr, line);
    if (!r.in_shared(at, 8))
        millrace_sim_fail(failure_illegal_address, "an mbarrier is not in shared memory", nullptr, line);
    if (count == 0 || count >= 1u << 20)
        millrace_sim_fail(failure_illegal_instruction, "an mbarrier expects 1 to 2^20 - 1 arrivals", nullptr, line);
    MBarrier& barrier = r.hopper.barriers[static_cast<char*>(at)];
    barrier = MBarrier();
    barrier.expected = barrier.pending = count;
}

extern "C" void millrace_sim_mbarrier_arrive(void* at, unsigned arrivals, unsigned bytes, int line) {
    MBarrier& barrier = barrier_at(at, line);
    if (arrivals > barrier.pending)
        millrace_sim_fail(failure_launch, "more arrivals than the phase of the mbarrier expects", nullptr, line);
    barrier.bytes += bytes;
    barrier.pending -= arrivals;
    end_phase_if_complete(runner(), barrier);
}

extern "C" void millrace_sim_mbarrier_wait(void* at, unsigned parity, int line) {
    Runner& r = runner();
    MBarrier& barrier = barrier_at(at, line);
    if (barrier.phase != (parity & 1)) {
        // others may run meanwhile, as they would
        millrace_sim_yield();
        return;
    }
    barrier.waiting.push_back(r.now);
    r.hopper.lines[r.now] = line;
    unsigned thread = r.now;
    r.wait();
    r.hopper.lines.erase(thread);
}

extern "C" void millrace_sim_tma_load_2d(void* target, const void* map, void* barrier, int x, int y, int line) {
    Runner& r = runner();
    BulkCopy copy;
    memcpy(&copy.map, map, sizeof(copy.map));
    if (copy.map.magic != tensor_map_magic)
        millrace_sim_fail(failure_illegal_instruction, "this is no tensor map", nullptr, line);
    if (reinterpret_cast<uintptr_t>(map) % 64)
        millrace_sim_fail(failure_misaligned, "a tensor map is not aligned to 64 bytes", nullptr, line);
    if (reinterpret_cast<uintptr_t>(target) % 128)
        millrace_sim_fail(failure_misaligned, "the target of a bulk copy is not aligned to 128 bytes", nullptr, line);
    barrier_at(barrier, line);
    copy.target = static_cast<char*>(target);
    copy.barrier = static_cast<char*>(barrier);
    copy.x = x;
    copy.y = y;
    // a swizzle stays within its 1024 bytes
    if (!r.in_shared(target, copy.bytes()) ||
        (copy.map.swizzle_bytes && reinterpret_cast<uintptr_t>(target) % 1024 && copy.bytes() % 1024))
        millrace_sim_fail(failure_illegal_address, "the target of a bulk copy is not in shared memory", nullptr, line);
    memset(target, poison_byte, copy.bytes());
    r.hopper.copies.push_back(copy);
}

extern "C" unsigned millrace_sim_shared_address(const void* at, int line) {
    Runner& r = runner();
    const char* base = shared_base(r);
    if (!r.in_shared(at, 1) || static_cast<const char*>(at) < base || static_cast<const char*>(at) >= r.dynamic_end)
        millrace_sim_fail(failure_illegal_address, "a descriptor needs dynamic shared memory", nullptr, line);
    return static_cast<unsigned>(static_cast<const char*>(at) - base);
}

extern "C" void millrace_sim_wgmma_fence() {
    Runner& r = runner();
    r.hopper.threads[r.now].fenced = true;
}

extern "C" void millrace_sim_wgmma_multiply(void* const arguments[32], unsigned) {
    Runner& r = runner();
    unsigned warp = r.now / 32;
    const WgmmaArguments* first = static_cast<const WgmmaArguments*>(arguments[0]);
    for (int lane = 0; lane < 32; lane++)
        if (!arguments[lane]) millrace_sim_fail(failure_launch, "wgmma needs all 32 lanes of the warp", nullptr, 0);
    int columns = first->columns, line = first->line;
    bool half = first->half;
    if (columns % 8 || columns < 8 || columns > 256)
        millrace_sim_fail(failure_illegal_instruction, "wgmma has 8 to 256 columns, a multiple of 8", nullptr, line);
    for (int lane = 0; lane < 32; lane++) {
        const WgmmaArguments* mine = static_cast<const WgmmaArguments*>(arguments[lane]);
        if (mine->a != first->a || mine->b != first->b)
            millrace_sim_fail(failure_launch, "the descriptors of a wgmma differ between lanes", nullptr, line);
    }
    Factor a(r, first->a, line), b(r, first->b, line);
    alignas(32) float of_a[16][16];
    std::vector<float> of_b(static_cast<size_t>(16) * columns), d(static_cast<size_t>(16) * columns);
    for (int row = 0; row < 16; row++) widen(a, static_cast<int>(warp % 4) * 16 + row, half, of_a[row]);
    for (int column = 0; column < columns; column++) {
        float line_of_b[16];
        widen(b, column, half, line_of_b);
        for (int k = 0; k < 16; k++) of_b[static_cast<size_t>(k) * columns + column] = line_of_b[k];
    }
    for (int lane = 0; lane < 32; lane++) {
        const WgmmaArguments& mine = *static_cast<const WgmmaArguments*>(arguments[lane]);
        WgmmaThread& thread = r.hopper.threads[warp * 32 + lane];
        if (!thread.fenced)
            millrace_sim_fail(failure_launch, "wgmma without wgmma.fence since the last wait", nullptr, line);
        Accumulator& sums = thread.accumulators[mine.d];
        size_t count = static_cast<size_t>(columns) / 2;
        if (sums.under_way == 0) sums.values.assign(mine.d, mine.d + count);
        if (sums.values.size() != count)
            millrace_sim_fail(failure_launch, "wgmma of two shapes on the same sums", nullptr, line);
        if (!mine.accumulates) sums.values.assign(count, 0.0f);
        int g = lane / 4, t = lane % 4;
        for (int j = 0; j < columns / 8; j++)
            for (int e = 0; e < 4; e++)
                d[static_cast<size_t>(g + e / 2 * 8) * columns + 8 * j + 2 * t + e % 2] = sums.values[4 * j + e];
    }
    for (int row = 0; row < 16; row++)
        for (int at = 0; at < columns; at += 8) {
            float* to = &d[static_cast<size_t>(row) * columns + at];
            __m256 sum = _mm256_loadu_ps(to);
            for (int k = 0; k < 16; k++)
                sum = _mm256_fmadd_ps(_mm256_set1_ps(of_a[row][k]),
                                      _mm256_loadu_ps(&of_b[static_cast<size_t>(k) * columns + at]), sum);
            _mm256_storeu_ps(to, sum);
        }
    for (int lane = 0; lane < 32; lane++) {
        const WgmmaArguments& mine = *static_cast<const WgmmaArguments*>(arguments[lane]);
        WgmmaThread& thread = r.hopper.threads[warp * 32 + lane];
        Accumulator& sums = thread.accumulators[mine.d];
        int g = lane / 4, t = lane % 4;
        for (int j = 0; j < columns / 8; j++)
            for (int e = 0; e < 4; e++)
                sums.values[4 * j + e] = d[static_cast<size_t>(g + e / 2 * 8) * columns + 8 * j + 2 * t + e % 2];
        memset(mine.d, poison_byte, sums.values.size() * sizeof(float));
        sums.under_way++;
        Multiplication one;
        one.d = mine.d;
        one.a = mine.a;
        one.b = mine.b;
        one.columns = columns;
        one.line = line;
        one.checks = lane == 0;
        if (one.checks) one.sum_of_factors = sum_of_factors(r, one, warp);
        thread.multiplications.push_back(one);
        thread.uncommitted++;
        thread.issued++;
    }
}

extern "C" void millrace_sim_wgmma_commit() {
    Runner& r = runner();
    WgmmaThread& mine = r.hopper.threads[r.now];
    mine.groups.push_back(mine.uncommitted);
    mine.uncommitted = 0;
}

extern "C" void millrace_sim_wgmma_wait(int groups_left) {
    Runner& r = runner();
    WgmmaThread& mine = r.hopper.threads[r.now];
    while (mine.groups.size() > static_cast<size_t>(groups_left)) {
        for (unsigned i = 0; i < mine.groups.front(); i++) {
            Multiplication one = mine.multiplications.front();
            mine.multiplications.erase(mine.multiplications.begin());
            if (one.checks && sum_of_factors(r, one, r.now / 32) != one.sum_of_factors)
                millrace_sim_fail(failure_launch, "factors of a wgmma changed before it was waited for", nullptr, one.line);
            Accumulator& sums = mine.accumulators[one.d];
            if (--sums.under_way == 0) {
                memcpy(one.d, sums.values.data(), sums.values.size() * sizeof(float));
                mine.accumulators.erase(one.d);
            }
        }
        mine.groups.erase(mine.groups.begin());
    }
    if (mine.multiplications.empty()) mine.fenced = false;
}
