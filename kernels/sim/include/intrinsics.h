// CUDA's arithmetic intrinsics and mathematical functions, with IEEE semantics.
//
// Functions that a card only approximates (rsqrtf, __expf, ...) are computed with the C library's accuracy, so code
// that must agree bit by bit with a card may not use them; neither may it in CUDA, where they differ by architecture.
#pragma once

#define MILLRACE_INLINE static inline __attribute__((always_inline))

extern "C" {
float expf(float) noexcept;
float exp2f(float) noexcept;
float exp10f(float) noexcept;
float expm1f(float) noexcept;
float logf(float) noexcept;
float log2f(float) noexcept;
float log10f(float) noexcept;
float log1pf(float) noexcept;
float sinf(float) noexcept;
float cosf(float) noexcept;
float tanf(float) noexcept;
float tanhf(float) noexcept;
float sinhf(float) noexcept;
float coshf(float) noexcept;
float asinf(float) noexcept;
float acosf(float) noexcept;
float atanf(float) noexcept;
float atan2f(float, float) noexcept;
float erff(float) noexcept;
float erfcf(float) noexcept;
float powf(float, float) noexcept;
float fmodf(float, float) noexcept;
float cbrtf(float) noexcept;
float ldexpf(float, int) noexcept;
float frexpf(float, int*) noexcept;
double exp(double) noexcept;
double exp2(double) noexcept;
double expm1(double) noexcept;
double log(double) noexcept;
double log2(double) noexcept;
double log10(double) noexcept;
double log1p(double) noexcept;
double sin(double) noexcept;
double cos(double) noexcept;
double tan(double) noexcept;
double tanh(double) noexcept;
double atan2(double, double) noexcept;
double erf(double) noexcept;
double erfc(double) noexcept;
double pow(double, double) noexcept;
double fmod(double, double) noexcept;
double cbrt(double) noexcept;
double ldexp(double, int) noexcept;
double frexp(double, int*) noexcept;
double sqrt(double) noexcept;
double fabs(double) noexcept;
double floor(double) noexcept;
double ceil(double) noexcept;
double trunc(double) noexcept;
double rint(double) noexcept;
double round(double) noexcept;
double nearbyint(double) noexcept;
double fma(double, double, double) noexcept;
double copysign(double, double) noexcept;
int abs(int) noexcept;
}

// Reinterpretations.
template <class To, class From>
MILLRACE_INLINE To millrace_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "sizes differ");
    To to;
    __builtin_memcpy(&to, &from, sizeof(to));
    return to;
}
MILLRACE_INLINE unsigned __float_as_uint(float x) { return millrace_bits<unsigned>(x); }
MILLRACE_INLINE int __float_as_int(float x) { return millrace_bits<int>(x); }
MILLRACE_INLINE float __uint_as_float(unsigned x) { return millrace_bits<float>(x); }
MILLRACE_INLINE float __int_as_float(int x) { return millrace_bits<float>(x); }
MILLRACE_INLINE long long __double_as_longlong(double x) { return millrace_bits<long long>(x); }
MILLRACE_INLINE double __longlong_as_double(long long x) { return millrace_bits<double>(x); }
MILLRACE_INLINE int __double2loint(double x) { return (int)millrace_bits<unsigned long long>(x); }
MILLRACE_INLINE int __double2hiint(double x) { return (int)(millrace_bits<unsigned long long>(x) >> 32); }
MILLRACE_INLINE double __hiloint2double(int hi, int lo) {
    return millrace_bits<double>((unsigned long long)(unsigned)hi << 32 | (unsigned)lo);
}

// One rounding each; the object is built with -ffp-contract=off, so no two operations are joined.
MILLRACE_INLINE float __fadd_rn(float a, float b) { return a + b; }
MILLRACE_INLINE float __fsub_rn(float a, float b) { return a - b; }
MILLRACE_INLINE float __fmul_rn(float a, float b) { return a * b; }
MILLRACE_INLINE float __fdiv_rn(float a, float b) { return a / b; }
MILLRACE_INLINE float __frcp_rn(float a) { return 1.0f / a; }
MILLRACE_INLINE float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
MILLRACE_INLINE float __frsqrt_rn(float a) { return (float)(1.0 / __builtin_sqrt((double)a)); }
MILLRACE_INLINE float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
MILLRACE_INLINE double __dadd_rn(double a, double b) { return a + b; }
MILLRACE_INLINE double __dsub_rn(double a, double b) { return a - b; }
MILLRACE_INLINE double __dmul_rn(double a, double b) { return a * b; }
MILLRACE_INLINE double __ddiv_rn(double a, double b) { return a / b; }
MILLRACE_INLINE double __drcp_rn(double a) { return 1.0 / a; }
MILLRACE_INLINE double __dsqrt_rn(double a) { return __builtin_sqrt(a); }
MILLRACE_INLINE double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
MILLRACE_INLINE float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
MILLRACE_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
MILLRACE_INLINE float sqrtf(float a) { return __builtin_sqrtf(a); }
MILLRACE_INLINE float rsqrtf(float a) { return __frsqrt_rn(a); }
MILLRACE_INLINE double rsqrt(double a) { return 1.0 / __builtin_sqrt(a); }
MILLRACE_INLINE float rsqrt(float a) { return rsqrtf(a); }
MILLRACE_INLINE float __saturatef(float a) { return !(a > 0.0f) ? 0.0f : a > 1.0f ? 1.0f : a; }

// The approximations of a card, here at full accuracy.
MILLRACE_INLINE float __expf(float a) { return expf(a); }
MILLRACE_INLINE float __exp10f(float a) { return exp10f(a); }
MILLRACE_INLINE float __logf(float a) { return logf(a); }
MILLRACE_INLINE float __log2f(float a) { return log2f(a); }
MILLRACE_INLINE float __log10f(float a) { return log10f(a); }
MILLRACE_INLINE float __sinf(float a) { return sinf(a); }
MILLRACE_INLINE float __cosf(float a) { return cosf(a); }
MILLRACE_INLINE float __tanf(float a) { return tanf(a); }
MILLRACE_INLINE float __powf(float a, float b) { return powf(a, b); }
MILLRACE_INLINE float __fdividef(float a, float b) { return a / b; }
MILLRACE_INLINE void sincosf(float a, float* s, float* c) { *s = sinf(a), *c = cosf(a); }
MILLRACE_INLINE void __sincosf(float a, float* s, float* c) { sincosf(a, s, c); }
MILLRACE_INLINE void sincos(double a, double* s, double* c) { *s = sin(a), *c = cos(a); }
MILLRACE_INLINE float fdividef(float a, float b) { return a / b; }

MILLRACE_INLINE float fabsf(float a) { return __builtin_fabsf(a); }
MILLRACE_INLINE float floorf(float a) { return __builtin_floorf(a); }
MILLRACE_INLINE float ceilf(float a) { return __builtin_ceilf(a); }
MILLRACE_INLINE float truncf(float a) { return __builtin_truncf(a); }
MILLRACE_INLINE float rintf(float a) { return __builtin_rintf(a); }
MILLRACE_INLINE float nearbyintf(float a) { return __builtin_nearbyintf(a); }
MILLRACE_INLINE float roundf(float a) { return __builtin_roundf(a); }
MILLRACE_INLINE float copysignf(float a, float b) { return __builtin_copysignf(a, b); }
MILLRACE_INLINE float scalbnf(float a, int n) { return ldexpf(a, n); }

// As PTX min and max: a NaN loses against a number and -0 is below +0.
template <class T>
MILLRACE_INLINE T millrace_max(T a, T b) {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return __builtin_signbit(a) ? b : a;
    return a > b ? a : b;
}
template <class T>
MILLRACE_INLINE T millrace_min(T a, T b) {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return __builtin_signbit(a) ? a : b;
    return a < b ? a : b;
}
MILLRACE_INLINE float fmaxf(float a, float b) { return millrace_max(a, b); }
MILLRACE_INLINE float fminf(float a, float b) { return millrace_min(a, b); }
MILLRACE_INLINE double fmax(double a, double b) { return millrace_max(a, b); }
MILLRACE_INLINE double fmin(double a, double b) { return millrace_min(a, b); }
MILLRACE_INLINE float fdimf(float a, float b) { return a > b ? a - b : a != a || b != b ? a + b : 0.0f; }

MILLRACE_INLINE float max(float a, float b) { return millrace_max(a, b); }
MILLRACE_INLINE float min(float a, float b) { return millrace_min(a, b); }
MILLRACE_INLINE double max(double a, double b) { return millrace_max(a, b); }
MILLRACE_INLINE double min(double a, double b) { return millrace_min(a, b); }
#define MILLRACE_MIN_MAX(R, A, B)                                         \
    MILLRACE_INLINE R max(A a, B b) { return (R)a > (R)b ? (R)a : (R)b; } \
    MILLRACE_INLINE R min(A a, B b) { return (R)a < (R)b ? (R)a : (R)b; }
MILLRACE_MIN_MAX(int, int, int)
MILLRACE_MIN_MAX(unsigned, unsigned, unsigned)
MILLRACE_MIN_MAX(unsigned, int, unsigned)
MILLRACE_MIN_MAX(unsigned, unsigned, int)
MILLRACE_MIN_MAX(long, long, long)
MILLRACE_MIN_MAX(unsigned long, unsigned long, unsigned long)
MILLRACE_MIN_MAX(long long, long long, long long)
MILLRACE_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
MILLRACE_MIN_MAX(unsigned long long, long long, unsigned long long)
MILLRACE_MIN_MAX(unsigned long long, unsigned long long, long long)
#undef MILLRACE_MIN_MAX

#define MILLRACE_FLOAT_OVERLOAD(name) \
    MILLRACE_INLINE float name(float a) { return name##f(a); }
MILLRACE_FLOAT_OVERLOAD(exp)
MILLRACE_FLOAT_OVERLOAD(exp2)
MILLRACE_FLOAT_OVERLOAD(expm1)
MILLRACE_FLOAT_OVERLOAD(log)
MILLRACE_FLOAT_OVERLOAD(log2)
MILLRACE_FLOAT_OVERLOAD(log10)
MILLRACE_FLOAT_OVERLOAD(log1p)
MILLRACE_FLOAT_OVERLOAD(sin)
MILLRACE_FLOAT_OVERLOAD(cos)
MILLRACE_FLOAT_OVERLOAD(tan)
MILLRACE_FLOAT_OVERLOAD(tanh)
MILLRACE_FLOAT_OVERLOAD(erf)
MILLRACE_FLOAT_OVERLOAD(erfc)
MILLRACE_FLOAT_OVERLOAD(sqrt)
MILLRACE_FLOAT_OVERLOAD(fabs)
MILLRACE_FLOAT_OVERLOAD(floor)
MILLRACE_FLOAT_OVERLOAD(ceil)
MILLRACE_FLOAT_OVERLOAD(trunc)
MILLRACE_FLOAT_OVERLOAD(rint)
MILLRACE_FLOAT_OVERLOAD(round)
#undef MILLRACE_FLOAT_OVERLOAD
MILLRACE_INLINE float pow(float a, float b) { return powf(a, b); }
MILLRACE_INLINE float fmod(float a, float b) { return fmodf(a, b); }
MILLRACE_INLINE float abs(float a) { return __builtin_fabsf(a); }
MILLRACE_INLINE double abs(double a) { return __builtin_fabs(a); }
MILLRACE_INLINE long abs(long a) { return a < 0 ? -a : a; }
MILLRACE_INLINE long long abs(long long a) { return a < 0 ? -a : a; }
MILLRACE_INLINE long long llabs(long long a) { return a < 0 ? -a : a; }

// Macros in CUDA as well as functions in C++; kernels use them unqualified.
template <class T>
MILLRACE_INLINE bool isnan(T a) {
    return a != a;
}
template <class T>
MILLRACE_INLINE bool isinf(T a) {
    return __builtin_isinf(a);
}
template <class T>
MILLRACE_INLINE bool isfinite(T a) {
    return __builtin_isfinite(a);
}
template <class T>
MILLRACE_INLINE bool signbit(T a) {
    return __builtin_signbit(a);
}

// Conversions saturate and turn NaN into zero (64 bits: the lowest value), as `cvt` does. A plain C++ cast of a value
// out of range is undefined on a CPU; the checked build reports it.
template <class I, class F>
MILLRACE_INLINE I millrace_saturate(F a, I lowest, I highest, I nan) {
    if (a != a) return nan;
    if (a <= (F)lowest) return lowest;
    if (a >= (F)highest) return highest;
    return (I)a;
}
#define MILLRACE_CONVERSIONS(name, I, F, lowest, highest, nan)                                                     \
    MILLRACE_INLINE I name##_rn(F a) { return millrace_saturate<I, F>(__builtin_rint(a), lowest, highest, nan); }  \
    MILLRACE_INLINE I name##_rz(F a) { return millrace_saturate<I, F>(__builtin_trunc(a), lowest, highest, nan); } \
    MILLRACE_INLINE I name##_rd(F a) { return millrace_saturate<I, F>(__builtin_floor(a), lowest, highest, nan); } \
    MILLRACE_INLINE I name##_ru(F a) { return millrace_saturate<I, F>(__builtin_ceil(a), lowest, highest, nan); }
#define MILLRACE_LL_LOWEST (-0x7fffffffffffffffLL - 1)
MILLRACE_CONVERSIONS(__float2int, int, float, -0x7fffffff - 1, 0x7fffffff, 0)
MILLRACE_CONVERSIONS(__float2uint, unsigned, float, 0u, 0xffffffffu, 0u)
MILLRACE_CONVERSIONS(__float2ll, long long, float, MILLRACE_LL_LOWEST, 0x7fffffffffffffffLL, MILLRACE_LL_LOWEST)
MILLRACE_CONVERSIONS(__float2ull, unsigned long long, float, 0ULL, 0xffffffffffffffffULL, 0x8000000000000000ULL)
MILLRACE_CONVERSIONS(__double2int, int, double, -0x7fffffff - 1, 0x7fffffff, 0)
MILLRACE_CONVERSIONS(__double2uint, unsigned, double, 0u, 0xffffffffu, 0u)
MILLRACE_CONVERSIONS(__double2ll, long long, double, MILLRACE_LL_LOWEST, 0x7fffffffffffffffLL, MILLRACE_LL_LOWEST)
MILLRACE_CONVERSIONS(__double2ull, unsigned long long, double, 0ULL, 0xffffffffffffffffULL, 0x8000000000000000ULL)
#undef MILLRACE_CONVERSIONS
#undef MILLRACE_LL_LOWEST
MILLRACE_INLINE float __int2float_rn(int a) { return (float)a; }
MILLRACE_INLINE float __uint2float_rn(unsigned a) { return (float)a; }
MILLRACE_INLINE float __ll2float_rn(long long a) { return (float)a; }
MILLRACE_INLINE float __ull2float_rn(unsigned long long a) { return (float)a; }
MILLRACE_INLINE double __int2double_rn(int a) { return (double)a; }
MILLRACE_INLINE double __uint2double_rn(unsigned a) { return (double)a; }
MILLRACE_INLINE double __ll2double_rn(long long a) { return (double)a; }
MILLRACE_INLINE double __ull2double_rn(unsigned long long a) { return (double)a; }
MILLRACE_INLINE float __double2float_rn(double a) { return (float)a; }
MILLRACE_INLINE long long llrintf(float a) { return __float2ll_rn(a); }
MILLRACE_INLINE int lrintf(float a) { return __float2int_rn(a); }

// Integers.
MILLRACE_INLINE int __popc(unsigned a) { return __builtin_popcount(a); }
MILLRACE_INLINE int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
MILLRACE_INLINE int __clz(int a) { return a == 0 ? 32 : __builtin_clz((unsigned)a); }
MILLRACE_INLINE int __clzll(long long a) { return a == 0 ? 64 : __builtin_clzll((unsigned long long)a); }
MILLRACE_INLINE int __ffs(int a) { return __builtin_ffs(a); }
MILLRACE_INLINE int __ffsll(long long a) { return __builtin_ffsll(a); }
MILLRACE_INLINE unsigned __brev(unsigned a) {
    a = (a >> 1 & 0x55555555u) | (a & 0x55555555u) << 1;
    a = (a >> 2 & 0x33333333u) | (a & 0x33333333u) << 2;
    a = (a >> 4 & 0x0f0f0f0fu) | (a & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(a);
}
MILLRACE_INLINE unsigned long long __brevll(unsigned long long a) {
    return (unsigned long long)__brev((unsigned)a) << 32 | __brev((unsigned)(a >> 32));
}
MILLRACE_INLINE unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
MILLRACE_INLINE int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
MILLRACE_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
MILLRACE_INLINE long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
MILLRACE_INLINE int __mul24(int a, int b) { return (int)((unsigned)(a << 8 >> 8) * (unsigned)(b << 8 >> 8)); }
MILLRACE_INLINE unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    unsigned long long bytes = (unsigned long long)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        unsigned choice = selector >> 4 * i & 0xf;
        unsigned byte = (unsigned)(bytes >> 8 * (choice & 7)) & 0xff;
        if (choice & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << 8 * i;
    }
    return result;
}
MILLRACE_INLINE unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned shift) {
    return (unsigned)(((unsigned long long)hi << 32 | lo) << (shift & 31) >> 32);
}
MILLRACE_INLINE unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned shift) {
    return (unsigned)(((unsigned long long)hi << 32 | lo) >> (shift & 31));
}
MILLRACE_INLINE int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; i++) c += (int)(signed char)(a >> 8 * i) * (int)(signed char)(b >> 8 * i);
    return c;
}
MILLRACE_INLINE unsigned __sad(int a, int b, unsigned c) { return c + (unsigned)(a > b ? a - b : b - a); }

// Cached loads and stores.
#define MILLRACE_LOAD(name)                    \
    template <class T>                         \
    MILLRACE_INLINE T name(const T* address) { \
        return *address;                       \
    }
MILLRACE_LOAD(__ldg)
MILLRACE_LOAD(__ldca)
MILLRACE_LOAD(__ldcg)
MILLRACE_LOAD(__ldcs)
MILLRACE_LOAD(__ldlu)
MILLRACE_LOAD(__ldcv)
#undef MILLRACE_LOAD
#define MILLRACE_STORE(name)                         \
    template <class T>                               \
    MILLRACE_INLINE void name(T* address, T value) { \
        *address = value;                            \
    }
MILLRACE_STORE(__stwb)
MILLRACE_STORE(__stcg)
MILLRACE_STORE(__stcs)
MILLRACE_STORE(__stwt)
#undef MILLRACE_STORE

#define __trap() millrace_sim_fail(millrace_sim::failure_illegal_instruction, "__trap()", __FILE__, __LINE__)
MILLRACE_INLINE void __brkpt() {}
MILLRACE_INLINE void __threadfence() { asm volatile("" ::: "memory"); }
MILLRACE_INLINE void __threadfence_block() { asm volatile("" ::: "memory"); }
MILLRACE_INLINE void __threadfence_system() { __sync_synchronize(); }
MILLRACE_INLINE void __nanosleep(unsigned) { millrace_sim_yield(); }
MILLRACE_INLINE long long clock64() { return (long long)millrace_sim_clock(); }
MILLRACE_INLINE int clock() { return (int)millrace_sim_clock(); }
MILLRACE_INLINE unsigned long long __globaltimer() { return millrace_sim_clock(); }

// Address spaces are one here; wrappers that need the 32-bit shared address in PTX take plain pointers in the
// simulator's functions.
MILLRACE_INLINE size_t __cvta_generic_to_shared(const void* address) { return (size_t)address; }
MILLRACE_INLINE size_t __cvta_generic_to_global(const void* address) { return (size_t)address; }
MILLRACE_INLINE bool __isShared(const void* address) { return millrace_sim_is_shared(address); }
MILLRACE_INLINE bool __isGlobal(const void* address) { return !millrace_sim_is_shared(address); }
