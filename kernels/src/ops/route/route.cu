// Router of a mixture of experts; the operations are those of cpu.rs, in f64. A thread per token goes over its experts
// several times and computes exponentials again rather than keeping them. Sums over tokens are of integers, by atomic
// additions, so that their order is no matter. f64 arithmetic bounds it: about 40 k operations per expert.
#include "millrace.cuh"

enum Score : u32 { SOFTMAX_TOP_K, TOP_K_SOFTMAX, SIGMOID };

#define TINY 1e-20

// A token's logits and what is the same for all of its experts.
struct Row {
    const float* logits;
    u64 experts;
    double max, sum, sigmoids;

    __device__ __forceinline__ double exponential(u64 expert) const { return exp((double)logits[expert] - max); }
    __device__ __forceinline__ double softmax(u64 expert) const { return exponential(expert) / sum; }
    __device__ __forceinline__ double sigmoid(u64 expert) const { return 1.0 / (1.0 + exp(-(double)logits[expert])); }
    // for the load balance
    __device__ __forceinline__ double probability(u64 expert, u32 score) const {
        return score == SIGMOID ? sigmoid(expert) / sigmoids : softmax(expert);
    }
    __device__ __forceinline__ double score_of(u64 expert, u32 score) const {
        return score == SIGMOID ? sigmoid(expert) : softmax(expert);
    }
    __device__ __forceinline__ double log_sum() const { return max + log(sum); }
};

__device__ __forceinline__ Row row_of(const float* logits, u64 experts, u32 score) {
    Row row = {logits, experts, __longlong_as_double(0xfff0000000000000ll), -0.0, -0.0};
    for (u64 e = 0; e < experts; e++) row.max = (double)logits[e] > row.max ? (double)logits[e] : row.max;
    for (u64 e = 0; e < experts; e++) row.sum = row.sum + row.exponential(e);
    if (score == SIGMOID)
        for (u64 e = 0; e < experts; e++) row.sigmoids = row.sigmoids + row.sigmoid(e);
    row.sigmoids = row.sigmoids + TINY;
    return row;
}

__device__ __forceinline__ bool is_number(double x) { return x == x; }

// NaN is above all.
__device__ __forceinline__ bool is_above(double a, double b) { return a > b || (!is_number(a) && is_number(b)); }

// The k experts with the largest keys, falling; ties to the lower expert.
__device__ __forceinline__ void choose(u32* choices, u64 k, const Row& row, const float* bias, u32 score) {
    double last = 0.0;
    u64 chosen = 0;
    for (u64 j = 0; j < k; j++) {
        double best = 0.0;
        u64 expert = row.experts;
        for (u64 e = 0; e < row.experts; e++) {
            double key = (double)row.logits[e];
            if (score == SIGMOID) key = row.sigmoid(e) + (bias ? (double)bias[e] : 0.0);
            bool is_left = j == 0 || is_above(last, key) || (!is_above(key, last) && e > chosen);
            if (is_left && (expert == row.experts || is_above(key, best))) best = key, expert = e;
        }
        choices[j] = (u32)expert;
        last = best;
        chosen = expert;
    }
}

// The divisor of the chosen experts' scores.
__device__ __forceinline__ double divisor(const Row& row, const u32* chosen, u64 k, u32 score) {
    if (score == SOFTMAX_TOP_K || (score == SIGMOID && k == 1)) return 1.0;
    double sum = -0.0;
    for (u64 j = 0; j < k; j++)
        if (chosen[j] < row.experts) sum = sum + row.score_of(chosen[j], score);
    return score == SIGMOID ? sum + TINY : sum;
}

// sums: [3, experts], choices by score alone, choices as made, probabilities in units of 2^-32. log_sums: [n], NaN for a
// token with numbers that are not finite. largest: [n, k], scratch, null without a bias.
extern "C" __global__ void route_forward(u32* choices, float* weights, u64* sums, double* log_sums, u32* largest,
                                         const float* logits, const float* bias, u64 n, u64 experts, u64 k, u32 score,
                                         float scale) {
    for (u64 token = first(); token < n; token += stride()) {
        Row row = row_of(logits + token * experts, experts, score);
        u32* chosen = choices + token * k;
        choose(chosen, k, row, bias, score);
        double sum = divisor(row, chosen, k, score);
        for (u64 j = 0; j < k; j++)
            weights[token * k + j] = (float)(row.score_of(chosen[j], score) / sum * (double)scale);
        u32* by_score = chosen;
        if (largest) {
            by_score = largest + token * k;
            choose(by_score, k, row, nullptr, score);
        }
        for (u64 j = 0; j < k; j++) {
            atomicAdd(&sums[by_score[j]], 1ull);
            atomicAdd(&sums[experts + chosen[j]], 1ull);
        }
        double log_sum = row.log_sum(), square = log_sum * log_sum;
        bool is_finite = square - square == 0.0;
        for (u64 e = 0; e < experts; e++) {
            double p = row.probability(e, score);
            is_finite = is_finite && p - p == 0.0;
        }
        log_sums[token] = is_finite ? log_sum : __longlong_as_double(0x7ff8000000000000ll);
        if (!is_finite) continue;
        for (u64 e = 0; e < experts; e++)
            atomicAdd(&sums[2 * experts + e], (u64)round(row.probability(e, score) * 4294967296.0));
    }
}

// balance: [experts], the load balance's derivative by each expert's probability; z: that of the z-loss by a square.
extern "C" __global__ void route_backward(float* dlogits, const float* dweights, const float* logits, const u32* choices,
                                          const double* balance, double z, u64 n, u64 experts, u64 k, u32 score,
                                          float scale) {
    for (u64 token = first(); token < n; token += stride()) {
        Row row = row_of(logits + token * experts, experts, score);
        const u32* chosen = choices + token * k;
        const float* dw = dweights + token * k;
        float* out = dlogits + token * experts;
        double sum = divisor(row, chosen, k, score), mean = 0.0;
        if (score == TOP_K_SOFTMAX || (score == SIGMOID && k > 1)) {
            mean = -0.0;
            for (u64 j = 0; j < k; j++)
                if (chosen[j] < experts) mean = mean + (double)dw[j] * (double)scale * row.score_of(chosen[j], score) / sum;
        }
        // by the score of an expert
        auto dscore = [&](u64 expert) {
            double d = 0.0;
            for (u64 j = 0; j < k; j++)
                if (chosen[j] == expert) d = d + ((double)dw[j] * (double)scale - mean) / sum;
            return d;
        };
        double from_z = 2.0 * z * row.log_sum();
        if (score == SIGMOID) {
            double all = -0.0;
            for (u64 e = 0; e < experts; e++) all = all + balance[e] * row.probability(e, score);
            for (u64 e = 0; e < experts; e++) {
                double s = row.sigmoid(e);
                double d = dscore(e) + (balance[e] - all) / row.sigmoids;
                out[e] = (float)(d * s * (1.0 - s) + from_z * row.softmax(e));
            }
        } else {
            double all = -0.0;
            for (u64 e = 0; e < experts; e++) all = all + (dscore(e) + balance[e]) * row.softmax(e);
            for (u64 e = 0; e < experts; e++)
                out[e] = (float)(row.softmax(e) * (dscore(e) + balance[e] - all + from_z));
        }
    }
}
