// CUDA's built-in vector types and their make functions, with CUDA's sizes and alignments.
#pragma once

#define MILLRACE_VECTOR1(T, NAME) \
    struct NAME {                 \
        T x;                      \
    };                            \
    static inline NAME make_##NAME(T x) { return NAME{x}; }
#define MILLRACE_VECTOR2(T, NAME)        \
    struct alignas(2 * sizeof(T)) NAME { \
        T x, y;                          \
    };                                   \
    static inline NAME make_##NAME(T x, T y) { return NAME{x, y}; }
#define MILLRACE_VECTOR3(T, NAME) \
    struct NAME {                 \
        T x, y, z;                \
    };                            \
    static inline NAME make_##NAME(T x, T y, T z) { return NAME{x, y, z}; }
// No vector type is aligned to more than 16 bytes.
#define MILLRACE_VECTOR4(T, NAME)                                  \
    struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) NAME { \
        T x, y, z, w;                                              \
    };                                                             \
    static inline NAME make_##NAME(T x, T y, T z, T w) { return NAME{x, y, z, w}; }
#define MILLRACE_VECTORS(T, NAME) \
    MILLRACE_VECTOR1(T, NAME##1)  \
    MILLRACE_VECTOR2(T, NAME##2)  \
    MILLRACE_VECTOR3(T, NAME##3)  \
    MILLRACE_VECTOR4(T, NAME##4)

MILLRACE_VECTORS(signed char, char)
MILLRACE_VECTORS(unsigned char, uchar)
MILLRACE_VECTORS(short, short)
MILLRACE_VECTORS(unsigned short, ushort)
MILLRACE_VECTORS(int, int)
MILLRACE_VECTORS(long, long)
MILLRACE_VECTORS(unsigned long, ulong)
MILLRACE_VECTORS(long long, longlong)
MILLRACE_VECTORS(unsigned long long, ulonglong)
MILLRACE_VECTORS(float, float)
MILLRACE_VECTORS(double, double)
MILLRACE_VECTOR1(unsigned, uint1)
MILLRACE_VECTOR2(unsigned, uint2)
MILLRACE_VECTOR4(unsigned, uint4)
static inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return uint3{x, y, z}; }

#undef MILLRACE_VECTORS
#undef MILLRACE_VECTOR1
#undef MILLRACE_VECTOR2
#undef MILLRACE_VECTOR3
#undef MILLRACE_VECTOR4
