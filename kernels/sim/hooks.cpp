// The calls that -fsanitize=thread puts before memory accesses, under the names of the sanitizer's library.

#include <cstdint>

#include "observer.h"
#include "runner.h"

using namespace millrace_sim;

namespace {

void access(const void* address, size_t bytes, AccessKind kind, const void* site) {
    Runner* r = running();
    if (r && r->observer) observe_access(r->observer, r->now, address, bytes, kind, site);
}

}  // namespace

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void*, void*) {}
void __tsan_vptr_read(void*) {}

#define MILLRACE_HOOK(name, bytes, kind) \
    void __tsan_##name(void* address) { access(address, bytes, kind, __builtin_return_address(0)); }
MILLRACE_HOOK(read1, 1, access_load)
MILLRACE_HOOK(read2, 2, access_load)
MILLRACE_HOOK(read4, 4, access_load)
MILLRACE_HOOK(read8, 8, access_load)
MILLRACE_HOOK(read16, 16, access_load)
MILLRACE_HOOK(write1, 1, access_store)
MILLRACE_HOOK(write2, 2, access_store)
MILLRACE_HOOK(write4, 4, access_store)
MILLRACE_HOOK(write8, 8, access_store)
MILLRACE_HOOK(write16, 16, access_store)
MILLRACE_HOOK(unaligned_read2, 2, access_load)
MILLRACE_HOOK(unaligned_read4, 4, access_load)
MILLRACE_HOOK(unaligned_read8, 8, access_load)
MILLRACE_HOOK(unaligned_read16, 16, access_load)
MILLRACE_HOOK(unaligned_write2, 2, access_store)
MILLRACE_HOOK(unaligned_write4, 4, access_store)
MILLRACE_HOOK(unaligned_write8, 8, access_store)
MILLRACE_HOOK(unaligned_write16, 16, access_store)
MILLRACE_HOOK(volatile_read1, 1, access_load)
MILLRACE_HOOK(volatile_read2, 2, access_load)
MILLRACE_HOOK(volatile_read4, 4, access_load)
MILLRACE_HOOK(volatile_read8, 8, access_load)
MILLRACE_HOOK(volatile_read16, 16, access_load)
MILLRACE_HOOK(volatile_write1, 1, access_store)
MILLRACE_HOOK(volatile_write2, 2, access_store)
MILLRACE_HOOK(volatile_write4, 4, access_store)
MILLRACE_HOOK(volatile_write8, 8, access_store)
MILLRACE_HOOK(volatile_write16, 16, access_store)

void __tsan_read_range(void* address, unsigned long bytes) {
    access(address, bytes, access_load, __builtin_return_address(0));
}
void __tsan_write_range(void* address, unsigned long bytes) {
    access(address, bytes, access_store, __builtin_return_address(0));
}

#define MILLRACE_ATOMIC_HOOK(bits, T)                                                                            \
    T __tsan_atomic##bits##_load(const volatile T* address, int) {                                               \
        return __atomic_load_n(address, __ATOMIC_RELAXED);                                                       \
    }                                                                                                            \
    void __tsan_atomic##bits##_store(volatile T* address, T value, int) {                                        \
        access(const_cast<T*>(address), sizeof(T), access_atomic, __builtin_return_address(0));                  \
        __atomic_store_n(address, value, __ATOMIC_RELAXED);                                                      \
    }                                                                                                            \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile T* address, T* expected, T value, int, int) {     \
        access(const_cast<T*>(address), sizeof(T), access_atomic, __builtin_return_address(0));                  \
        return __atomic_compare_exchange_n(address, expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
    }                                                                                                            \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile T* address, T* expected, T value, int a, int b) {   \
        return __tsan_atomic##bits##_compare_exchange_strong(address, expected, value, a, b);                    \
    }
MILLRACE_ATOMIC_HOOK(8, uint8_t)
MILLRACE_ATOMIC_HOOK(16, uint16_t)
MILLRACE_ATOMIC_HOOK(32, uint32_t)
MILLRACE_ATOMIC_HOOK(64, uint64_t)
void __tsan_atomic_thread_fence(int) { __sync_synchronize(); }
void __tsan_atomic_signal_fence(int) {}
}
