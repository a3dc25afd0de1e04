// One AdamW step, elementwise; the order of operations is that of cpu.rs. 16 bytes read and 12 written per weight, so
// memory bounds it.
#include "millrace.cuh"

extern "C" __global__ void adamw_step(float* w, const float* grad, float* m, float* v, u64 n, float grad_scale,
                                      float keep, float one_minus_beta1, float beta2, float one_minus_beta2,
                                      float root_correction2, float eps, float step_size) {
    for (u64 i = first(); i < n; i += stride()) {
        float g = grad[i] * grad_scale;
        float old_m = m[i];
        float new_m = fmaf(g - old_m, one_minus_beta1, old_m);
        float new_v = fmaf(g * g, one_minus_beta2, v[i] * beta2);
        float denominator = sqrtf(new_v) / root_correction2 + eps;
        float kept = w[i] * keep;
        w[i] = fmaf(new_m / denominator, -step_size, kept);
        m[i] = new_m;
        v[i] = new_v;
    }
}
