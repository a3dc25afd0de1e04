// Conversions between f32 and the narrow types, by integer arithmetic, rounding to nearest even.
#pragma once

namespace millrace_sim {

template <class To, class From>
inline To reinterpret(From from) {
    static_assert(sizeof(To) == sizeof(From), "sizes differ");
    To to;
    __builtin_memcpy(&to, &from, sizeof(to));
    return to;
}

inline float bf16_to_float(unsigned short bits) { return reinterpret<float>((unsigned)bits << 16); }

inline unsigned short float_to_bf16(float value) {
    unsigned bits = reinterpret<unsigned>(value);
    if (value != value) return 0x7fff;  // as cvt.rn.bf16.f32
    return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// A binary format of `exponent` and `mantissa` bits with IEEE subnormals, infinities and NaNs.
template <int exponent_bits, int mantissa_bits>
inline float narrow_to_float(unsigned bits) {
    constexpr int bias = (1 << (exponent_bits - 1)) - 1, top = (1 << exponent_bits) - 1;
    unsigned sign = bits >> (exponent_bits + mantissa_bits) << 31;
    int exponent = (int)(bits >> mantissa_bits) & top;
    unsigned mantissa = bits & ((1u << mantissa_bits) - 1);
    if (exponent == top)
        return reinterpret<float>(sign | 0x7f800000u | (mantissa ? 0x400000u | mantissa << (23 - mantissa_bits) : 0));
    // Subnormals are whole multiples of the smallest one; f32 holds all of them as normal numbers.
    float magnitude =
        exponent == 0 ? (float)mantissa * reinterpret<float>((unsigned)(128 - bias - mantissa_bits) << 23)
                      : reinterpret<float>((unsigned)(exponent - bias + 127) << 23 | mantissa << (23 - mantissa_bits));
    return reinterpret<float>(reinterpret<unsigned>(magnitude) | sign);
}

inline float half_to_float(unsigned short bits) { return narrow_to_float<5, 10>(bits); }
inline float e5m2_to_float(unsigned char bits) { return narrow_to_float<5, 2>(bits); }
// No infinities; only the all-ones pattern is a NaN.
inline float e4m3_to_float(unsigned char bits) {
    if ((bits & 0x7f) == 0x7f) return reinterpret<float>((unsigned)(bits & 0x80) << 24 | 0x7fc00000u);
    int exponent = bits >> 3 & 15;
    unsigned sign = (unsigned)(bits & 0x80) << 24, mantissa = bits & 7;
    float magnitude = exponent == 0 ? (float)mantissa * reinterpret<float>(118u << 23)
                                    : reinterpret<float>((unsigned)(exponent + 120) << 23 | mantissa << 20);
    return reinterpret<float>(reinterpret<unsigned>(magnitude) | sign);
}

inline unsigned short float_to_half(float value) {
    unsigned bits = reinterpret<unsigned>(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000u) return 0x7fff;
    if (rest >= 0x477ff000u) return (unsigned short)(sign | 0x7c00);
    if (rest < 0x38800000u) {
        // Adding a number whose last place is the smallest subnormal rounds to it.
        float sum = reinterpret<float>(rest) + 0.5f;
        return (unsigned short)(sign | (reinterpret<unsigned>(sum) - 0x3f000000u));
    }
    unsigned odd = rest >> 13 & 1;
    return (unsigned short)(sign | ((rest - 0x38000000u + 0xfff + odd) >> 13));
}

}  // namespace millrace_sim
