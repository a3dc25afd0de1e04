// Cross entropy over a shard of the vocabulary; the operations are those of cpu.rs. statistics: 16 threads per slice of a
// row, as the CPU's 16 lanes, 4 bytes of memory per logit (read twice, the second time from the cache). backward: a thread
// per logit, 8 bytes each. Memory bounds both.
#include "activation.cuh"

extern "C" __global__ void cross_entropy_statistics(float* maxima, float* sums, float* target, const float* logits,
                                                    const u32* targets, u64 n, u64 rows, u64 offset, u64 real,
                                                    u64 slice) {
    const float none = __uint_as_float(0xff800000u);
    u64 slices = rows / slice;
    for (u64 i = first(); i < whole_warps(n * slices); i += stride()) {
        u64 row = i / 16 / slices, s = i / 16 % slices;
        u32 lane = (u32)(i % 16);
        bool has_row = i / 16 < n * slices;
        u64 start = s * slice < real ? s * slice : real, end = (s + 1) * slice < real ? (s + 1) * slice : real;
        const float* x = logits + row * rows + start;
        u64 count = end - start;
        float most = none;
        for (u64 c = lane; c < padded(count, has_row); c += 16) most = larger(most, part(x, c, count, none));
        // lane after lane: a NaN is passed over
        float max = none;
        for (int from = 0; from < 16; from++) {
            float other = __shfl_sync(0xffffffffu, most, from, 16);
            max = other > max ? other : max;
        }
        // -inf - -inf would be no number
        float below = max == none ? 0.0f : max;
        float sum = 0.0f;
        for (u64 c = lane; c < padded(count, has_row); c += 16)
            sum = sum + exp_of_score(part(x, c, count, none) - below);
        sum = row_sum(sum);
        if (!has_row || lane > 0) continue;
        maxima[s * n + row] = max;
        sums[s * n + row] = sum;
        if (s > 0) continue;
        u64 id = targets[row];
        target[row] = id >= offset && id - offset < real ? logits[row * rows + id - offset] : 0.0f;
    }
}

extern "C" __global__ void cross_entropy_maxima(float* max, const float* maxima, u64 n, u64 slices) {
    for (u64 i = first(); i < n; i += stride()) {
        float most = __uint_as_float(0xff800000u);
        for (u64 s = 0; s < slices; s++) most = maxima[s * n + i] > most ? maxima[s * n + i] : most;
        max[i] = most;
    }
}

extern "C" __global__ void cross_entropy_rescale(float* sums, const float* maxima, const float* max, u64 n, u64 slices) {
    for (u64 i = first(); i < n * slices; i += stride()) sums[i] = sums[i] * exp_of_score(maxima[i] - max[i % n]);
}

extern "C" __global__ void cross_entropy_backward(float* logits, const float* max, const float* sum, const u32* targets,
                                                  const float* weights, const float* pull, u64 n, u64 rows, u64 offset,
                                                  u64 real, float cap) {
    for (u64 i = first(); i < n * rows; i += stride()) {
        u64 row = i / rows, c = i % rows, id = targets[row];
        if (c >= real) {
            logits[i] = 0.0f;
            continue;
        }
        // of the capped logit by the logit
        float by = 1.0f;
        if (cap != 0.0f) {
            float part = logits[i] / cap;
            by = 1.0f - part * part;
        }
        float share = exp_of_score(logits[i] - max[row]);
        if (id >= offset && id - offset == c) {
            // p - 1 before the weight: p near 1 would lose its last bits after it
            float p = share / sum[row];
            float gradient = (p - 1.0f) * weights[row];
            logits[i] = (pull ? gradient + p * pull[row] : gradient) * by;
        } else {
            float weight = pull ? weights[row] + pull[row] : weights[row];
            logits[i] = share * (weight / sum[row]) * by;
        }
    }
}

// cap tanh(logit / cap).
extern "C" __global__ void cross_entropy_cap(float* logits, u64 n, float cap) {
    for (u64 i = first(); i < n; i += stride()) logits[i] = activated(TANH, logits[i] / cap).value * cap;
}

// ln sum e^x of a row, in f64.
__device__ __forceinline__ double log_sum(const float* max, const float* sum, u64 i) {
    return __dadd_rn((double)max[i], log((double)sum[i]));
}

// out: [runs, 2]: sums over each run's rows, in order, of losses and of squared log-sums. A warp per run: its threads
// compute 32 rows' numbers, which all add in the order of the rows.
extern "C" __global__ void cross_entropy_losses(double* out, const float* max, const float* sum, const float* target,
                                                const float* counts, u64 runs, u64 run) {
    u32 lane = threadIdx.x % 32;
    for (u64 i = first(); i < runs * 32; i += stride()) {
        u64 start = i / 32 * run;
        double losses = 0.0, squares = 0.0;
        for (u64 base = 0; base < run; base += 32) {
            double loss = 0.0, square = 0.0;
            u64 row = start + base + lane;
            double weight = base + lane >= run ? 0.0 : counts ? (double)counts[row] : 1.0;
            if (weight > 0.0) {
                double log = log_sum(max, sum, row);
                loss = __dmul_rn(weight, __dadd_rn(log, -(double)target[row]));
                square = __dmul_rn(weight, __dmul_rn(log, log));
            }
            // rows past the end, and those that do not count, add 0: a sum that starts from 0 keeps its bits
            for (int from = 0; from < 32; from++) {
                losses = __dadd_rn(losses, __shfl_sync(0xffffffffu, loss, from));
                squares = __dadd_rn(squares, __shfl_sync(0xffffffffu, square, from));
            }
        }
        if (lane > 0) continue;
        out[i / 32 * 2] = losses;
        out[i / 32 * 2 + 1] = squares;
    }
}

extern "C" __global__ void cross_entropy_pull(float* out, const float* max, const float* sum, const float* weights,
                                              double factor, u64 n) {
    for (u64 i = first(); i < n; i += stride())
        out[i] = (float)__dmul_rn(__dmul_rn(factor, log_sum(max, sum, i)), (double)weights[i]);
}
