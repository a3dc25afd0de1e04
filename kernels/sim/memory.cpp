// Addresses of device memory are never used twice: each device has a reserved range that allocations take from in
// order, so a use after free meets an inaccessible page and a pointer's device is known from its value.

#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "fibers.h"

namespace millrace_sim {

namespace {

constexpr size_t page = 4096;
constexpr size_t alignment = 256;
constexpr size_t tile_bytes = 32 << 20;

// Freed allocations are remembered for messages, but not for ever.
constexpr size_t remembered = 4096;
// Red zones checked after a launch; the rest has its turn after later ones, and all are checked at each wait.
constexpr size_t checked_at_once = 64;

struct DeviceMemory {
    char* start = nullptr;
    size_t taken = 0;
    size_t used = 0;
    std::set<uint64_t> accessible;
    uint64_t next_check = 0;
};

std::mutex lock;
DeviceMemory devices[max_devices];
char* reserved = nullptr;
size_t reserved_per_device = 0;
size_t device_bytes = 0;
// Never destroyed: threads may still run when the process exits.
std::map<uint64_t, Allocation>& allocations = *new std::map<uint64_t, Allocation>();
std::deque<uint64_t>& freed = *new std::deque<uint64_t>();
std::map<uint64_t, size_t>& host_ranges = *new std::map<uint64_t, size_t>();       // pinned
std::map<uint64_t, size_t>& host_allocations = *new std::map<uint64_t, size_t>();  // of these, ours

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

void reserve() {
    if (reserved) return;
    const char* text = getenv("MILLRACE_SIM_MEMORY_MB");
    device_bytes = static_cast<size_t>(text ? strtoull(text, nullptr, 10) : 4096) << 20;
    // Where address space is limited, take what there is.
    for (size_t each = size_t(2) << 40; each >= size_t(1) << 30; each /= 2) {
        void* at = mmap(nullptr, each * max_devices, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) continue;
        reserved = static_cast<char*>(at);
        reserved_per_device = each;
        break;
    }
    // Half: guard pages and freed memory take addresses too.
    if (device_bytes > reserved_per_device / 2) device_bytes = reserved_per_device / 2;
    for (int i = 0; reserved && i < max_devices; i++) devices[i].start = reserved + i * reserved_per_device;
}

// One file of poison, mapped privately again and again: large allocations cost memory only where they are written.
int poison_tile() {
    static int file = -1;
    if (file >= 0) return file;
    file = memfd_create("millrace-sim-poison", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, tile_bytes)) return -1;
    void* at = mmap(nullptr, tile_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) return -1;
    memset(at, poison_byte, tile_bytes);
    munmap(at, tile_bytes);
    return file;
}

void map_poisoned(char* at, size_t bytes) {
    int file = bytes >= tile_bytes ? poison_tile() : -1;
    size_t done = 0;
    while (file >= 0 && done < bytes) {
        size_t part = bytes - done < tile_bytes ? bytes - done : tile_bytes;
        if (mmap(at + done, part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0) == MAP_FAILED) break;
        done += part;
    }
    if (done == bytes) return;
    if (mprotect(at + done, bytes - done, PROT_READ | PROT_WRITE)) {
        fprintf(stderr, "millrace simulator: the system has no memory for %zu bytes of device memory\n", bytes);
        abort();
    }
    memset(at + done, poison_byte, bytes - done);
}

const char* first_touched(const char* from, const char* to) {
    static const std::string poison(page, static_cast<char>(poison_byte));
    if (static_cast<size_t>(to - from) <= page && memcmp(from, poison.data(), static_cast<size_t>(to - from)) == 0)
        return nullptr;
    for (; from < to; from++)
        if (static_cast<unsigned char>(*from) != poison_byte) return from;
    return nullptr;
}

std::map<uint64_t, Allocation>::iterator containing(uint64_t pointer) {
    auto next = allocations.upper_bound(pointer);
    if (next == allocations.begin()) return allocations.end();
    auto it = std::prev(next);
    uint64_t end = it->second.base + (it->second.bytes ? it->second.bytes : 1);
    return pointer < end ? it : allocations.end();
}

std::string check_allocation(const Allocation& a, bool thorough) {
    const char* base = reinterpret_cast<const char*>(a.base);
    const char* front = a.mapping;
    if (!thorough && base - front > 64) front = base - 64;
    const char* touched = first_touched(front, base);
    if (!touched) touched = first_touched(base + a.bytes, base + a.rounded);
    if (!touched) return "";
    char text[160];
    snprintf(text, sizeof(text), "wrote at offset %ld of an allocation of %zu bytes (device %d, %#lx)",
             static_cast<long>(touched - base), a.bytes, a.device, static_cast<unsigned long>(a.base));
    return text;
}

}  // namespace

int allocate(int device, const void* owner, size_t bytes, bool stream_ordered, uint64_t* pointer) {
    if (bytes == 0) return 1;
    std::lock_guard<std::mutex> hold(lock);
    reserve();
    if (!reserved) return 2;
    DeviceMemory& memory = devices[device];
    size_t rounded = round_up(bytes, alignment), pages = round_up(rounded, page);
    if (rounded < bytes || rounded > device_bytes - memory.used ||
        pages + 2 * page > reserved_per_device - memory.taken)
        return 2;
    Allocation a;
    a.mapping = memory.start + memory.taken + page;
    a.mapping_bytes = pages;
    a.base = reinterpret_cast<uint64_t>(a.mapping) + pages - rounded;
    a.bytes = bytes;
    a.rounded = rounded;
    a.device = device;
    a.owner = owner;
    a.live = true;
    a.stream_ordered = stream_ordered;
    memory.taken += pages + page;
    memory.used += rounded;
    allocations[a.base] = a;
    *pointer = a.base;
    return 0;
}

void make_accessible(uint64_t pointer) {
    std::lock_guard<std::mutex> hold(lock);
    auto it = allocations.find(pointer);
    if (it == allocations.end() || it->second.accessible) return;
    map_poisoned(it->second.mapping, it->second.mapping_bytes);
    it->second.accessible = true;
    devices[it->second.device].accessible.insert(pointer);
}

int retire(const void* owner, uint64_t pointer) {
    std::lock_guard<std::mutex> hold(lock);
    auto it = allocations.find(pointer);
    if (it == allocations.end() || !it->second.live || it->second.owner != owner || !it->second.mapping) return 1;
    it->second.live = false;
    devices[it->second.device].used -= it->second.rounded;
    return 0;
}

static void unmap(Allocation& a) {
    a.accessible = false;
    devices[a.device].accessible.erase(a.base);
    mmap(a.mapping, a.mapping_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    freed.push_back(a.base);
    if (freed.size() <= remembered) return;
    allocations.erase(freed.front());
    freed.pop_front();
}

void make_inaccessible(uint64_t pointer) {
    std::lock_guard<std::mutex> hold(lock);
    auto it = allocations.find(pointer);
    if (it != allocations.end() && it->second.accessible) unmap(it->second);
}

void free_all_of(const void* owner) {
    std::lock_guard<std::mutex> hold(lock);
    std::vector<uint64_t> theirs;
    for (auto& entry : allocations)
        if (entry.second.owner == owner && entry.second.mapping) theirs.push_back(entry.first);
    for (uint64_t base : theirs) {
        auto it = allocations.find(base);
        if (it == allocations.end()) continue;  // forgotten meanwhile
        Allocation& a = it->second;
        if (a.live) devices[a.device].used -= a.rounded;
        a.live = false;
        if (a.accessible) unmap(a);
    }
}

bool find_allocation(uint64_t pointer, Allocation* found) {
    std::lock_guard<std::mutex> hold(lock);
    auto it = containing(pointer);
    if (it == allocations.end()) return false;
    *found = it->second;
    return true;
}

bool find_live(uint64_t pointer, size_t bytes, Allocation* found) {
    return find_allocation(pointer, found) && found->live && bytes <= found->base + found->bytes - pointer;
}

bool is_device_address(uint64_t pointer) {
    std::lock_guard<std::mutex> hold(lock);
    const char* at = reinterpret_cast<const char*>(pointer);
    return reserved && at >= reserved && at < reserved + reserved_per_device * max_devices;
}

bool is_device_address_fast(const char* at) {
    return reserved && at >= reserved && at < reserved + reserved_per_device * max_devices;
}

std::string check_red_zones(int device, bool thorough) {
    std::lock_guard<std::mutex> hold(lock);
    DeviceMemory& memory = devices[device];
    size_t left = thorough ? memory.accessible.size() : checked_at_once;
    auto it = memory.accessible.lower_bound(thorough ? 0 : memory.next_check);
    for (size_t n = memory.accessible.size() < left ? memory.accessible.size() : left; n > 0; n--) {
        if (it == memory.accessible.end()) it = memory.accessible.begin();
        std::string text = check_allocation(allocations[*it], thorough);
        if (!text.empty()) return text;
        ++it;
    }
    memory.next_check = it == memory.accessible.end() ? 0 : *it;
    return "";
}

std::string describe_address(const void* address) {
    std::lock_guard<std::mutex> hold(lock);
    uint64_t at = reinterpret_cast<uint64_t>(address);
    char text[200];
    const Allocation* near = nullptr;
    auto next = allocations.upper_bound(at);
    if (next != allocations.end() && next->second.base - at < page + page) near = &next->second;
    if (next != allocations.begin()) {
        const Allocation& before = std::prev(next)->second;
        uint64_t end = before.base + before.rounded;
        if (at < end + page && (!near || at < end || at - end < near->base - at)) near = &before;
    }
    if (!near || !near->mapping) {
        snprintf(text, sizeof(text), "%p is no device memory", address);
    } else {
        snprintf(text, sizeof(text), "%p is offset %lld of %s of %zu bytes (device %d)", address,
                 static_cast<long long>(at - near->base), near->live ? "an allocation" : "a freed allocation",
                 near->bytes, near->device);
        if (near->live && at >= near->base && at < near->base + near->bytes)
            strncat(text, "; its allocation is not ordered before this use", sizeof(text) - strlen(text) - 1);
    }
    return text;
}

void memory_info(int device, size_t* free_bytes, size_t* total_bytes) {
    std::lock_guard<std::mutex> hold(lock);
    reserve();
    *total_bytes = device_bytes;
    *free_bytes = device_bytes - devices[device].used;
}

void add_module_range(const void* owner, int device, uint64_t base, size_t bytes) {
    std::lock_guard<std::mutex> hold(lock);
    Allocation a;
    a.base = base;
    a.bytes = a.rounded = bytes;
    a.owner = owner;
    a.device = device;
    a.live = true;
    allocations[base] = a;
}

void remove_module_range(uint64_t base) {
    std::lock_guard<std::mutex> hold(lock);
    allocations.erase(base);
}

int allocate_host(size_t bytes, void** pointer) {
    if (bytes == 0) return 1;
    void* at = aligned_alloc(page, round_up(bytes, page));
    if (!at) return 2;
    memset(at, poison_byte, bytes);
    std::lock_guard<std::mutex> hold(lock);
    host_ranges[reinterpret_cast<uint64_t>(at)] = bytes;
    host_allocations[reinterpret_cast<uint64_t>(at)] = bytes;
    *pointer = at;
    return 0;
}

int free_host(void* pointer) {
    std::lock_guard<std::mutex> hold(lock);
    uint64_t at = reinterpret_cast<uint64_t>(pointer);
    if (!host_allocations.erase(at)) return 1;
    memset(pointer, poison_byte, host_ranges[at]);
    host_ranges.erase(at);
    free(pointer);
    return 0;
}

int register_host(void* pointer, size_t bytes) {
    if (!pointer || bytes == 0) return 1;
    std::lock_guard<std::mutex> hold(lock);
    uint64_t at = reinterpret_cast<uint64_t>(pointer);
    auto next = host_ranges.lower_bound(at);
    if (next != host_ranges.end() && next->first < at + bytes) return 712;
    if (next != host_ranges.begin() && std::prev(next)->first + std::prev(next)->second > at) return 712;
    host_ranges[at] = bytes;
    return 0;
}

int unregister_host(void* pointer) {
    std::lock_guard<std::mutex> hold(lock);
    uint64_t at = reinterpret_cast<uint64_t>(pointer);
    if (host_allocations.count(at) || !host_ranges.erase(at)) return 713;
    return 0;
}

bool is_pinned(const void* pointer, size_t bytes) {
    std::lock_guard<std::mutex> hold(lock);
    uint64_t at = reinterpret_cast<uint64_t>(pointer);
    auto next = host_ranges.upper_bound(at);
    if (next == host_ranges.begin()) return false;
    auto it = std::prev(next);
    return at + bytes <= it->first + it->second;
}

}  // namespace millrace_sim
