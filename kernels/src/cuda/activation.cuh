// Activation functions and their derivatives, to the bit those of kernels/src/cpu/activation.rs, which has the formulas.
#pragma once
#include "millrace.cuh"

// Numbers of the functions; kernels/src/descriptor/activation.rs has the same.
enum Kind : u32 { GELU_TANH, GELU_ERF, QUICK_GELU, RELU, SQUARED_RELU, TANH, SILU, CLAMPED };

struct Activated {
    float value, derivative;
};

// s = logistic(u) and s (1 - s), neither with cancellation.
__device__ __forceinline__ Activated logistic_and_derivative(float u) {
    float e = exp_of_score(smaller(u, 0.0f - u));
    float large = 1.0f / (1.0f + e);
    float small = e * large;
    return {u < 0.0f ? small : large, large * small};
}

// x from -16 to 16; NaN stays.
__device__ __forceinline__ float near_zero(float x) { return larger(-16.0f, smaller(16.0f, x)); }

__device__ __forceinline__ Activated activated(u32 kind, float x) {
    switch (kind) {
        case GELU_TANH: {
            const float linear = 1.595769f, cubic = 0.07135482f;
            float n = near_zero(x), square = n * n;
            Activated s = logistic_and_derivative(n * fmaf(square, cubic, linear));
            float du = fmaf(square, 3.0f * cubic, linear);
            return {x * s.value, fmaf(n, s.derivative * du, s.value)};
        }
        case GELU_ERF: {
            const float tail_of[10] = {-0.0001276562f, 0.00018368069f, 0.0015636714f, -0.0035192738f, -0.007523376f,
                                       0.060406268f,   -0.1865236f,    0.38713664f,   -0.60789657f,   0.75528514f};
            float n = near_zero(x);
            float z = n < 0.0f ? 0.0f - n : n;
            float bell = exp_of_score(n * n * -0.5f);
            float above = z + 4.0f;
            float t = (z - 4.0f) / above;
            float m = tail_of[0];
            for (int i = 1; i < 10; i++) m = fmaf(m, t, tail_of[i]);
            float tail = bell * m / above;
            float share = x < 0.0f ? tail : 1.0f - tail;
            return {x * share, fmaf(x, bell * 0.3989423f, share)};
        }
        case QUICK_GELU: {
            Activated s = logistic_and_derivative(x * 1.702f);
            return {x * s.value, fmaf(x, s.derivative * 1.702f, s.value)};
        }
        case CLAMPED: {
            float g = smaller(7.0f, x);
            Activated s = logistic_and_derivative(g * 1.702f);
            return {g * s.value, 7.0f < x ? 0.0f : fmaf(g, s.derivative * 1.702f, s.value)};
        }
        case RELU: return {x < 0.0f ? 0.0f : x, 0.0f < x ? 1.0f : 0.0f};
        case SQUARED_RELU: {
            float y = x < 0.0f ? 0.0f : x;
            return {y * y, y * 2.0f};
        }
        case TANH: {
            float e = exp_of_score((x < 0.0f ? x : 0.0f - x) * 2.0f);
            float y = (1.0f - e) / (1.0f + e);
            float derivative = logistic_and_derivative(x * 2.0f).derivative;
            return {x < 0.0f ? 0.0f - y : y, derivative * 4.0f};
        }
        default: {
            float s = logistic(x), y = x * s;
            return {y, fmaf(y, 1.0f - s, s)};
        }
    }
}
