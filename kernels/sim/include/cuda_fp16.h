// A small stand-in for CUDA's header: the storage type and its conversions. Arithmetic on it is left to f32.
#pragma once
#include "bf16.h"

struct __half_raw {
    unsigned short x;
};
struct __half {
    unsigned short bits;
    __half() = default;
    __half(float value) : bits(millrace_sim::float_to_half(value)) {}
    __half(__half_raw raw) : bits(raw.x) {}
    operator float() const { return millrace_sim::half_to_float(bits); }
};
struct alignas(4) __half2 {
    __half x, y;
};
typedef __half half;
typedef __half2 half2;

inline float __half2float(__half a) { return millrace_sim::half_to_float(a.bits); }
inline __half __float2half(float a) { return __half(a); }
inline __half __float2half_rn(float a) { return __half(a); }
inline __half2 __floats2half2_rn(float a, float b) { return __half2{a, b}; }
inline float2 __half22float2(__half2 a) { return float2{(float)a.x, (float)a.y}; }
inline unsigned short __half_as_ushort(__half a) { return a.bits; }
inline __half __ushort_as_half(unsigned short a) { return __half(__half_raw{a}); }
