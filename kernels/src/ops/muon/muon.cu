// Muon's elementwise parts; memory bounds them. No multiplication is fused with an addition, as on the CPU.
#include "millrace.cuh"

extern "C" __global__ void muon_momentum(float* m, float* u, const float* grad, u64 n, float grad_scale,
                                         float momentum) {
    float fresh = 1.0f - momentum;
    for (u64 i = first(); i < n; i += stride()) {
        float g = grad[i] * grad_scale;
        float mean = m[i] + (g - m[i]) * fresh;
        m[i] = mean;
        u[i] = g + (mean - g) * momentum;
    }
}

// x over its norm, the root of squares[0], which is taken as at least eps, as is one that is no number.
extern "C" __global__ void muon_normalize(float* x, u64 n, const double* squares, double eps) {
    double norm = sqrt(squares[0]);
    float factor = (float)(1.0 / (norm > eps ? norm : eps));
    for (u64 i = first(); i < n; i += stride()) x[i] = x[i] * factor;
}

extern "C" __global__ void muon_combine(float* x, float a, const float* y, float b, u64 n) {
    for (u64 i = first(); i < n; i += stride()) x[i] = x[i] * a + y[i] * b;
}
