// Device memory: every allocation is a mapping of its own whose end touches an inaccessible page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace millrace_sim {

constexpr int max_devices = 16;

struct Allocation {
    uint64_t base = 0;
    size_t bytes = 0;         // as asked for
    size_t rounded = 0;       // to the alignment of 256; the rest is a red zone
    char* mapping = nullptr;  // whole pages, ends at base + rounded
    size_t mapping_bytes = 0;
    int device = 0;
    const void* owner = nullptr;  // the context
    bool live = false;            // host calls may name it
    bool accessible = false;      // its pages are mapped
    bool stream_ordered = false;
};

// CUDA error code; the memory becomes accessible only with `make_accessible`.
int allocate(int device, const void* owner, size_t bytes, bool stream_ordered, uint64_t* pointer);
void make_accessible(uint64_t pointer);

// Marks the allocation as freed, so that host calls refuse it; its bytes stay until `make_inaccessible`.
int retire(const void* owner, uint64_t pointer);
void make_inaccessible(uint64_t pointer);
void free_all_of(const void* owner);

// The allocation, live or freed, that `pointer` is in.
bool find_allocation(uint64_t pointer, Allocation* found);
// The same for allocations that hold all of `bytes` from `pointer` on and are live.
bool find_live(uint64_t pointer, size_t bytes, Allocation* found);
bool is_device_address(uint64_t pointer);
// The same without a lock, for the accesses of kernels.
bool is_device_address_fast(const char* at);

// Describes the first write outside an allocation of the device; empty if there is none.
std::string check_red_zones(int device, bool thorough);

// Says what an address of a faulting access is near to.
std::string describe_address(const void* address);

void memory_info(int device, size_t* free_bytes, size_t* total_bytes);

// Module variables live in the kernel object; copies may name them.
void add_module_range(const void* owner, int device, uint64_t base, size_t bytes);
void remove_module_range(uint64_t base);

// Pinned host memory.
int allocate_host(size_t bytes, void** pointer);
int free_host(void* pointer);
int register_host(void* pointer, size_t bytes);
int unregister_host(void* pointer);
bool is_pinned(const void* pointer, size_t bytes);

}  // namespace millrace_sim
