// Counts what a card would suffer from, and finds races on memory.
//
// Kernels are compiled with -fsanitize=thread, whose calls for each load and store end here instead of in the
// sanitizer's library. Lanes do not run in step, so the k-th execution of an instruction by each lane of a warp is
// taken as one request of the warp.
//
// Counts, per kernel: requests, the 32-byte sectors they touch, the bytes asked for and the distinct bytes of the
// launch; for shared memory the passes that the 32 banks need (a conflict-free request of 4-byte words needs one, of
// 8 bytes two, of 16 bytes four) and how many would do; and requests of less than the living lanes (divergence).
//
// Races: two threads of a block touch a byte of shared memory, one of them writing, and no barrier of the block nor a
// __syncwarp of both lies between; the same for a write followed by a read or write of global memory; and two blocks
// write one byte of global memory. Atomic operations and reads of other blocks' results are not judged.

#include "observer.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "image.h"
#include "memory.h"
#include "runner.h"

extern "C" const char* millrace_sim_counts();

namespace millrace_sim {

namespace {

struct Counts {
    uint64_t launches = 0, blocks = 0, threads = 0;
    struct Global {
        uint64_t requests = 0, partial_requests = 0, sectors = 0, bytes = 0, unique_bytes = 0;
    } load, store, atomic;
    struct Shared {
        uint64_t requests = 0, partial_requests = 0, passes = 0, least_passes = 0, bytes = 0;
    } shared;
};

std::mutex lock;
// Never destroyed: threads may still run when the process exits.
std::map<std::string, Counts>& totals = *new std::map<std::string, Counts>();

struct Request {
    unsigned mask = 0;
    unsigned bytes = 0;
    uint64_t address[32];
};

// One instruction of one warp.
struct Site {
    unsigned next[32] = {};  // executions by each lane
    unsigned first = 0;      // the number of requests.front()
    AccessKind kind = access_load;
    bool shared = false;
    std::deque<Request> requests;
};

struct SiteKey {
    const void* pc;
    unsigned warp;
    bool shared;  // an instruction may reach both memories
    bool operator==(const SiteKey& o) const { return pc == o.pc && warp == o.warp && shared == o.shared; }
};
struct SiteHash {
    size_t operator()(const SiteKey& key) const {
        return reinterpret_cast<uintptr_t>(key.pc) * 0x9e3779b97f4a7c15ULL + key.warp * 2 + key.shared;
    }
};

// The last write and the reads since, of one byte of shared memory. A record counts in its own epoch only.
struct Shadow {
    unsigned write_epoch = 0, read_epoch = 0;
    unsigned write_time = 0, read_time = 0;  // of the warp
    uint16_t writer = 0;
    uint16_t read_warp = 0;  // many_warps: more than one
    unsigned readers = 0;    // lanes
    const void* write_site = nullptr;
    const void* read_site = nullptr;
};
constexpr uint16_t many_warps = 0xffff;

struct GlobalWriter {
    uint64_t block = 0;  // its number plus 1; 0: nobody
    unsigned epoch = 0, time = 0;
    uint16_t thread = 0;
    const void* site = nullptr;
};
struct GlobalSector {
    uint32_t loaded = 0, stored = 0;
    std::vector<GlobalWriter> writers;  // one a byte
};

}  // namespace

struct Observer {
    Runner& runner;
    bool count, races;
    Counts counts;
    std::unordered_map<SiteKey, Site, SiteHash> sites;
    std::unordered_map<uint64_t, GlobalSector> sectors;
    std::vector<Shadow> shared, dynamic;
    unsigned time[32];
    unsigned synced[32][32][32];  // warp, lane, lane: when they last met

    explicit Observer(Runner& runner) : runner(runner) {}

    uint64_t block_number() const {
        const Position& at = millrace_sim_position;
        return 1 + at.block.x +
               static_cast<uint64_t>(at.grid_dim.x) * (at.block.y + static_cast<uint64_t>(at.grid_dim.y) * at.block.z);
    }
    bool ordered(unsigned a, unsigned b, unsigned since) const {
        if (a == b) return true;
        return a / 32 == b / 32 && synced[a / 32][a % 32][b % 32] > since;
    }
    void finish(const Request& request, const Site& site, unsigned warp);
    void flush();
    void check_shared(Shadow& shadow, unsigned thread, AccessKind kind, const void* site, long offset);
    void check_global(const char* address, size_t bytes, unsigned thread, AccessKind kind, const void* site);
    [[noreturn]] void race(const char* what, long offset, unsigned thread, const void* site, const char* other_what,
                           unsigned other, const void* other_site);
};

namespace {

// "file:line" of an instruction, from the compiler's debug information, if there is an addr2line to read it.
std::string line_of(const void* site) {
    Dl_info info;
    if (!site || !dladdr(const_cast<void*>(site), &info)) return "";
    char command[300], out[300] = "";
    snprintf(command, sizeof(command), "addr2line -e %s %#lx 2>/dev/null", info.dli_fname,
             static_cast<unsigned long>(static_cast<const char*>(site) - static_cast<const char*>(info.dli_fbase) - 1));
    // The object is a file of this process, /proc/self/fd/N; the child inherits no descriptor, so name the process.
    std::string full = command;
    size_t self = full.find("/proc/self/");
    if (self != std::string::npos) full.replace(self, 10, "/proc/" + std::to_string(getpid()));
    FILE* pipe = popen(full.c_str(), "r");
    if (!pipe) return "";
    if (!fgets(out, sizeof(out), pipe)) out[0] = 0;
    pclose(pipe);
    std::string text = out;
    while (!text.empty() && (text.back() == '\n' || text.back() == ')')) text.pop_back();
    text = text.substr(text.rfind('/') + 1);
    return text.empty() || text[0] == '?' ? "" : " at " + text.substr(0, text.find(" ("));
}

}  // namespace

// Writes the counts of the process to the file that MILLRACE_SIM_COUNTS_FILE names.
void write_counts_at_exit() {
    const char* path = getenv("MILLRACE_SIM_COUNTS_FILE");
    FILE* file = path && *path ? fopen(path, "w") : nullptr;
    if (!file) return;
    fprintf(file, "%s\n", millrace_sim_counts());
    fclose(file);
}

Observer* observe_launch(Runner& runner) {
    static const int registered = atexit(write_counts_at_exit);
    (void)registered;
    Observer* observer = new Observer(runner);
    observer->count = enabled("MILLRACE_SIM_COUNT", false);
    observer->races = enabled("MILLRACE_SIM_RACES", false);
    observer->counts.launches = 1;
    if (observer->races) {
        observer->shared.resize(runner.shared_bytes);
        observer->dynamic.resize(runner.launch->dynamic_shared_bytes);
    }
    return observer;
}

void observe_block(Observer* o) {
    o->runner.epoch++;
    o->counts.blocks++;
    o->counts.threads += o->runner.threads;
    for (unsigned& time : o->time) time = 1;
    memset(o->synced, 0, sizeof(o->synced));
}

void observe_block_end(Observer* o) { o->flush(); }

void observe_launch_end(Observer* o, bool failed) {
    if (o->count && !failed) {
        Counts& c = o->counts;
        for (const auto& entry : o->sectors) {
            c.load.unique_bytes += static_cast<uint64_t>(__builtin_popcount(entry.second.loaded));
            c.store.unique_bytes += static_cast<uint64_t>(__builtin_popcount(entry.second.stored));
        }
        std::lock_guard<std::mutex> hold(lock);
        Counts& t = totals[o->runner.launch->name];
        t.launches += c.launches, t.blocks += c.blocks, t.threads += c.threads;
        auto add = [](Counts::Global& to, const Counts::Global& from) {
            to.requests += from.requests, to.partial_requests += from.partial_requests, to.sectors += from.sectors;
            to.bytes += from.bytes, to.unique_bytes += from.unique_bytes;
        };
        add(t.load, c.load), add(t.store, c.store), add(t.atomic, c.atomic);
        t.shared.requests += c.shared.requests, t.shared.partial_requests += c.shared.partial_requests;
        t.shared.passes += c.shared.passes, t.shared.least_passes += c.shared.least_passes;
        t.shared.bytes += c.shared.bytes;
    }
    delete o;
}

void observe_warp_sync(Observer* o, unsigned warp, unsigned group) {
    unsigned now = ++o->time[warp];
    // What one lane of the group is ordered after, all of it are.
    unsigned merged[32];
    for (int j = 0; j < 32; j++) {
        merged[j] = group >> j & 1 ? now : 0;
        for (int i = 0; i < 32; i++)
            if (group >> i & 1 && o->synced[warp][i][j] > merged[j]) merged[j] = o->synced[warp][i][j];
    }
    for (int i = 0; i < 32; i++)
        if (group >> i & 1)
            for (int j = 0; j < 32; j++) o->synced[warp][i][j] = merged[j];
}

void Observer::finish(const Request& request, const Site& site, unsigned warp) {
    bool partial = request.mask != runner.warp_lanes(warp);
    unsigned lanes = static_cast<unsigned>(__builtin_popcount(request.mask));
    if (!site.shared) {
        Counts::Global& c = site.kind == access_load    ? counts.load
                            : site.kind == access_store ? counts.store
                                                        : counts.atomic;
        uint64_t sectors[64];
        unsigned found = 0;
        for (unsigned left = request.mask; left; left &= left - 1) {
            uint64_t begin = request.address[__builtin_ctz(left)] / 32,
                     end = (request.address[__builtin_ctz(left)] + request.bytes - 1) / 32;
            for (uint64_t sector = begin; sector <= end; sector++) {
                bool known = false;
                for (unsigned i = 0; i < found; i++) known = known || sectors[i] == sector;
                if (!known && found < 64) sectors[found++] = sector;
            }
        }
        c.requests++, c.partial_requests += partial, c.sectors += found, c.bytes += lanes * request.bytes;
        return;
    }
    // Wide accesses are served in parts of the warp: 8 bytes by halves, 16 bytes by quarters.
    unsigned parts = request.bytes <= 4 ? 1 : request.bytes / 4, passes = 0, least = 0;
    for (unsigned part = 0; part < parts; part++) {
        unsigned width = 32 / parts, of_bank[32] = {}, most = 0;
        std::vector<uint64_t> words;
        for (unsigned lane = part * width; lane < (part + 1) * width; lane++) {
            if (!(request.mask >> lane & 1)) continue;
            for (uint64_t word = request.address[lane] / 4; word <= (request.address[lane] + request.bytes - 1) / 4;
                 word++) {
                bool known = false;
                for (uint64_t each : words) known = known || each == word;
                if (known) continue;
                words.push_back(word);
                unsigned n = ++of_bank[word % 32];
                if (n > most) most = n;
            }
        }
        passes += most;
        least += !words.empty();
    }
    Counts::Shared& c = counts.shared;
    c.requests++, c.partial_requests += partial, c.passes += passes, c.least_passes += least,
        c.bytes += lanes * request.bytes;
}

void Observer::flush() {
    for (auto& entry : sites)
        for (const Request& request : entry.second.requests)
            if (request.mask) finish(request, entry.second, entry.first.warp);
    sites.clear();
}

void Observer::race(const char* what, long offset, unsigned thread, const void* site, const char* other_what,
                    unsigned other, const void* other_site) {
    char text[300];
    snprintf(text, sizeof(text), "race on %s at offset %ld: thread %u%s and %s by thread %u%s, unordered", what, offset,
             thread, line_of(site).c_str(), other_what, other, line_of(other_site).c_str());
    millrace_sim_fail(failure_launch, text, nullptr, 0);
}

void Observer::check_shared(Shadow& s, unsigned thread, AccessKind kind, const void* site, long offset) {
    unsigned epoch = runner.epoch, warp = thread / 32, lane = thread % 32;
    if (kind == access_atomic) return;
    if (s.write_epoch == epoch && !ordered(thread, s.writer, s.write_time))
        race("shared memory", offset, thread, site, "a write", s.writer, s.write_site);
    if (kind == access_load) {
        if (s.read_epoch != epoch) {
            s.read_epoch = epoch, s.read_warp = static_cast<uint16_t>(warp), s.readers = 0;
        } else if (s.read_warp != warp) {
            s.read_warp = many_warps;
        }
        s.readers |= 1u << lane;
        s.read_time = time[warp];
        s.read_site = site;
        return;
    }
    if (s.read_epoch == epoch) {
        if (s.read_warp == many_warps)
            race("shared memory", offset, thread, site, "reads", warp == 0 ? 32 : 0, s.read_site);
        for (unsigned left = s.readers; left; left &= left - 1) {
            unsigned reader = s.read_warp * 32u + static_cast<unsigned>(__builtin_ctz(left));
            if (!ordered(thread, reader, s.read_time))
                race("shared memory", offset, thread, site, "a read", reader, s.read_site);
        }
    }
    s.write_epoch = epoch, s.writer = static_cast<uint16_t>(thread), s.write_time = time[warp], s.write_site = site;
    s.read_epoch = 0;
}

void Observer::check_global(const char* address, size_t bytes, unsigned thread, AccessKind kind, const void* site) {
    uint64_t at = reinterpret_cast<uint64_t>(address), block = block_number();
    for (uint64_t byte = at; byte < at + bytes; byte++) {
        GlobalSector& sector = sectors[byte / 32];
        if (kind == access_load)
            sector.loaded |= 1u << byte % 32;
        else
            sector.stored |= 1u << byte % 32;
        if (!races || kind == access_atomic) continue;
        if (sector.writers.empty()) {
            if (kind == access_load) continue;
            sector.writers.resize(32);
        }
        GlobalWriter& w = sector.writers[byte % 32];
        if (w.block &&
            (w.block != block ? kind != access_load : w.epoch == runner.epoch && !ordered(thread, w.thread, w.time))) {
            Allocation a;
            long offset = find_allocation(byte, &a) ? static_cast<long>(byte - a.base) : 0;
            std::string what = "global memory (an allocation of " + std::to_string(a.bytes) + " bytes)";
            race(what.c_str(), offset, thread, site, w.block != block ? "a write of another block" : "a write",
                 w.thread, w.site);
        }
        if (kind != access_load)
            w = GlobalWriter{block, runner.epoch, time[thread / 32], static_cast<uint16_t>(thread), site};
    }
}

void observe_access(Observer* o, unsigned thread, const void* address, size_t bytes, AccessKind kind,
                    const void* site) {
    Runner& r = o->runner;
    const char* at = static_cast<const char*>(address);
    const char* dynamic = millrace_sim_position.dynamic_shared;
    bool is_static = at >= r.shared && at < r.shared + r.shared_bytes;
    bool is_dynamic = at >= dynamic && at < dynamic + r.launch->dynamic_shared_bytes;
    bool shared = is_static || is_dynamic;
    if (!shared && !is_device_address_fast(at)) return;  // a local variable, a parameter, a variable of the module
    if (o->count && bytes <= 16 && kind != access_late_store) {
        unsigned warp = thread / 32, lane = thread % 32;
        Site& s = o->sites[SiteKey{site, warp, shared}];
        s.kind = kind, s.shared = shared;
        unsigned number = s.next[lane]++ - s.first;
        while (s.requests.size() <= number) s.requests.emplace_back();
        Request& request = s.requests[number];
        request.mask |= 1u << lane;
        request.bytes = static_cast<unsigned>(bytes);
        request.address[lane] = reinterpret_cast<uint64_t>(at);
        // Complete requests go at once, in order; the rest waits for the end of the block.
        while (!s.requests.empty() && s.requests.front().mask == r.warp_lanes(warp)) {
            o->finish(s.requests.front(), s, warp);
            s.requests.pop_front();
            s.first++;
        }
    }
    if (!shared) {
        o->check_global(at, bytes, thread, kind, site);
    } else if (o->races) {
        std::vector<Shadow>& shadow = is_static ? o->shared : o->dynamic;
        size_t first = static_cast<size_t>(at - (is_static ? r.shared : dynamic));
        for (size_t i = first; i < first + bytes && i < shadow.size(); i++)
            o->check_shared(shadow[i], thread, kind, site, static_cast<long>(i));
    }
}

}  // namespace millrace_sim

// The counts so far as one JSON object, by kernel. Valid until the thread's next call.
extern "C" const char* millrace_sim_counts() {
    using namespace millrace_sim;
    static thread_local std::string* text = new std::string();
    std::lock_guard<std::mutex> hold(lock);
    *text = "{";
    for (const auto& entry : totals) {
        const Counts& c = entry.second;
        auto global = [](const char* name, const Counts::Global& g) {
            return std::string(", \"") + name + "\": {\"requests\": " + std::to_string(g.requests) +
                   ", \"partial_requests\": " + std::to_string(g.partial_requests) +
                   ", \"sectors\": " + std::to_string(g.sectors) + ", \"bytes\": " + std::to_string(g.bytes) +
                   ", \"unique_bytes\": " + std::to_string(g.unique_bytes) + "}";
        };
        *text += (text->size() > 1 ? ", \"" : "\"") + entry.first + "\": {\"launches\": " + std::to_string(c.launches) +
                 ", \"blocks\": " + std::to_string(c.blocks) + ", \"threads\": " + std::to_string(c.threads) +
                 global("load", c.load) + global("store", c.store) + global("atomic", c.atomic) +
                 ", \"shared\": {\"requests\": " + std::to_string(c.shared.requests) +
                 ", \"partial_requests\": " + std::to_string(c.shared.partial_requests) +
                 ", \"passes\": " + std::to_string(c.shared.passes) +
                 ", \"least_passes\": " + std::to_string(c.shared.least_passes) +
                 ", \"bytes\": " + std::to_string(c.shared.bytes) + "}}";
    }
    *text += "}";
    return text->c_str();
}

extern "C" void millrace_sim_reset_counts() {
    std::lock_guard<std::mutex> hold(millrace_sim::lock);
    millrace_sim::totals.clear();
}
