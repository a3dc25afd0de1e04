// x += (y - x) share, elementwise; 12 bytes of memory per element bound it.
#include "millrace.cuh"

extern "C" __global__ void lerp_towards(float* x, const float* y, u64 n, float share) {
    for (u64 i = first(); i < n; i += stride()) x[i] = x[i] + (y[i] - x[i]) * share;
}
