// Atomic functions. Threads of one device run one at a time, so plain operations are atomic among them; they are
// hardware atomics nevertheless, because several devices may share memory and run on several host threads.
#pragma once

template <class T, class U, class F>
MILLRACE_INLINE T millrace_atomic(T* address, F next) {
    U* cell = reinterpret_cast<U*>(address);
    U seen = __atomic_load_n(cell, __ATOMIC_RELAXED);
    for (;;) {
        U wanted = millrace_bits<U>(next(millrace_bits<T>(seen)));
        if (__atomic_compare_exchange_n(cell, &seen, wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return millrace_bits<T>(seen);
    }
}

#define MILLRACE_ATOMIC(name, T, U, expression)                                            \
    MILLRACE_INLINE T name(T* address, T value) {                                          \
        return millrace_atomic<T, U>(address, [value](T old) -> T { return expression; }); \
    }                                                                                      \
    MILLRACE_INLINE T name##_block(T* address, T value) { return name(address, value); }   \
    MILLRACE_INLINE T name##_system(T* address, T value) { return name(address, value); }
#define MILLRACE_ATOMIC_INTEGERS(name, expression)        \
    MILLRACE_ATOMIC(name, int, int, expression)           \
    MILLRACE_ATOMIC(name, unsigned, unsigned, expression) \
    MILLRACE_ATOMIC(name, unsigned long long, unsigned long long, expression)
// CUDA has no 64-bit signed atomicAdd, so neither has the simulator.
MILLRACE_ATOMIC_INTEGERS(atomicAdd, old + value)
MILLRACE_ATOMIC_INTEGERS(atomicMax, old > value ? old : value)
MILLRACE_ATOMIC_INTEGERS(atomicMin, old < value ? old : value)
MILLRACE_ATOMIC_INTEGERS(atomicAnd, old& value)
MILLRACE_ATOMIC_INTEGERS(atomicOr, old | value)
MILLRACE_ATOMIC_INTEGERS(atomicXor, old ^ value)
MILLRACE_ATOMIC_INTEGERS(atomicExch, value)
MILLRACE_ATOMIC(atomicMax, long long, long long, old > value ? old : value)
MILLRACE_ATOMIC(atomicMin, long long, long long, old < value ? old : value)
MILLRACE_ATOMIC(atomicSub, int, int, old - value)
MILLRACE_ATOMIC(atomicSub, unsigned, unsigned, old - value)
MILLRACE_ATOMIC(atomicInc, unsigned, unsigned, old >= value ? 0 : old + 1)
MILLRACE_ATOMIC(atomicDec, unsigned, unsigned, old == 0 || old > value ? value : old - 1)
MILLRACE_ATOMIC(atomicAdd, float, unsigned, old + value)
MILLRACE_ATOMIC(atomicAdd, double, unsigned long long, old + value)
MILLRACE_ATOMIC(atomicExch, float, unsigned, value)
#undef MILLRACE_ATOMIC_INTEGERS
#undef MILLRACE_ATOMIC

#define MILLRACE_CAS(T)                                                                                    \
    MILLRACE_INLINE T atomicCAS(T* address, T expected, T value) {                                         \
        __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
        return expected;                                                                                   \
    }                                                                                                      \
    MILLRACE_INLINE T atomicCAS_block(T* a, T e, T v) { return atomicCAS(a, e, v); }                       \
    MILLRACE_INLINE T atomicCAS_system(T* a, T e, T v) { return atomicCAS(a, e, v); }
MILLRACE_CAS(int)
MILLRACE_CAS(unsigned)
MILLRACE_CAS(unsigned short)
MILLRACE_CAS(unsigned long long)
#undef MILLRACE_CAS
