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

// The number by which an expert is chosen.
__device__ __forceinline__ double choice_key(const Row& row, u64 expert, const float* bias, u32 score) {
    return score == SIGMOID ? row.sigmoid(expert) + (bias ? (double)bias[expert] : 0.0) : (double)row.logits[expert];
}

// The largest key of a group of experts, or the sum of the two largest.
__device__ __forceinline__ double group_score(const Row& row, u64 group, u64 size, const float* bias, u32 score) {
    double best = __longlong_as_double(0xfff0000000000000ll), second = best;
    for (u64 e = group * size; e < (group + 1) * size; e++) {
        double key = choice_key(row, e, bias, score);
        if (is_above(key, best)) second = best, best = key;
        else if (is_above(key, second)) second = key;
    }
    return score == SIGMOID && size > 1 ? best + second : best;
}

// Bits of the groups with the largest scores; ties to the lower group.
__device__ __forceinline__ u64 kept_groups(const Row& row, u64 count, u64 kept, const float* bias, u32 score) {
    if (kept == count) return ~0ull;
    u64 bits = 0, size = row.experts / count;
    for (u64 j = 0; j < kept; j++) {
        double best = 0.0;
        u64 group = count;
        for (u64 g = 0; g < count; g++) {
            if (bits >> g & 1) continue;
            double of = group_score(row, g, size, bias, score);
            if (group == count || is_above(of, best)) best = of, group = g;
        }
        bits |= 1ull << group;
    }
    return bits;
}

// The k experts with the largest keys of the groups in `bits`, of `size` each, falling; ties to the lower expert.
__device__ __forceinline__ void choose(u32* choices, u64 k, const Row& row, const float* bias, u32 score, u64 bits, u64 size) {
    double last = 0.0;
    u64 chosen = 0;
    for (u64 j = 0; j < k; j++) {
        double best = 0.0;
        u64 expert = row.experts;
        for (u64 e = 0; e < row.experts; e++) {
            if (!(bits >> e / size & 1)) continue;
            double key = choice_key(row, e, bias, score);
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

// Adds x, a whole number, to four sums of its parts of 32 bits, the lowest first; 2^128 - 1 if it is larger.
__device__ __forceinline__ void add_whole(u64* sums, double x) {
    const double word = 4294967296.0;
    bool is_larger = x >= word * word * word * word;
    for (int part = 3; part >= 0; part--) {
        double unit = part == 3 ? word * word * word : part == 2 ? word * word : part == 1 ? word : 1.0;
        u32 digit = is_larger ? 0xffffffffu : (u32)(x / unit);
        x = x - (double)digit * unit;
        if (digit) atomicAdd(&sums[part], (u64)digit);
    }
}

// sums: [3, experts], choices by score alone, choices as made, probabilities in units of 2^-32; then the parts of squared
// log-sums in units of 2^-24, and the tokens with numbers that are not finite. largest: [n, k], scratch, null without a bias.
extern "C" __global__ void route_forward(u32* choices, float* weights, u64* sums, u32* largest,
                                         const float* logits, const float* bias, u64 n, u64 experts, u64 k, u32 score,
                                         float scale, u64 groups, u64 kept) {
    for (u64 token = first(); token < n; token += stride()) {
        Row row = row_of(logits + token * experts, experts, score);
        u32* chosen = choices + token * k;
        choose(chosen, k, row, bias, score, kept_groups(row, groups, kept, bias, score), experts / groups);
        double sum = divisor(row, chosen, k, score);
        for (u64 j = 0; j < k; j++)
            weights[token * k + j] = (float)(row.score_of(chosen[j], score) / sum * (double)scale);
        u32* by_score = chosen;
        if (largest) {
            by_score = largest + token * k;
            choose(by_score, k, row, nullptr, score, 1, experts);
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
        if (!is_finite) {
            atomicAdd(&sums[3 * experts + 4], 1ull);
            continue;
        }
        add_whole(sums + 3 * experts, round(square * 16777216.0));
        for (u64 e = 0; e < experts; e++)
            atomicAdd(&sums[2 * experts + e], (u64)round(row.probability(e, score) * 4294967296.0));
    }
}

// balance: [experts], from the choices by score alone.
extern "C" __global__ void route_slopes(double* balance, const u64* sums, u64 experts, double scale, double divisor) {
    for (u64 e = first(); e < experts; e += stride()) balance[e] = scale * (double)sums[e] / divisor;
}

// Weights in ascending order of keys, as IEEE's total order has them.
__device__ __forceinline__ u32 key_of(float weight) {
    u32 bits = __float_as_uint(weight);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Marks the choices of expert blockIdx.x over its capacity as dropped: the last ones, or those with the smallest weights, of
// equal ones the later. choices, offsets: the order of all choices before (ops/permute). dropped: [experts].
//
// The smallest key that is kept is found digit by digit from the highest (radix selection), 8 bits each: a pass over the
// expert's choices counts the digits of those that agree so far. 256 threads; 5 passes over the weights.
extern "C" __global__ void __launch_bounds__(256) route_drop(u32* ids, u32* dropped, const float* weights,
                                                             const u32* choices, const u32* offsets, u64 capacity,
                                                             u32 by_weight) {
    __shared__ u32 digits[256], chosen, left, warps[8];
    u64 start = offsets[blockIdx.x], end = offsets[blockIdx.x + 1];
    u32 thread = threadIdx.x, lane = thread % 32;
    if (end - start <= capacity) return;
    if (thread == 0) dropped[blockIdx.x] = (u32)(end - start - capacity);
    if (!by_weight) {
        for (u64 row = start + capacity + thread; row < end; row += 256) ids[choices[row]] = 0xffffffffu;
        return;
    }
    // `left` of the choices with keys from `least` on are to be kept, all those with larger ones
    u32 least = 0;
    if (thread == 0) left = (u32)capacity;
    for (int shift = 24; shift >= 0; shift -= 8) {
        digits[thread] = 0;
        __syncthreads();
        for (u64 row = start + thread; row < end; row += 256) {
            u32 key = key_of(weights[choices[row]]);
            if (shift == 24 || key >> (shift + 8) == least >> (shift + 8)) atomicAdd(&digits[key >> shift & 255], 1u);
        }
        __syncthreads();
        if (thread == 0) {
            u32 digit = 255;
            for (; digits[digit] < left; digit--) left -= digits[digit];
            chosen = digit;
        }
        __syncthreads();
        least |= chosen << shift;
    }
    u32 before = 0;
    for (u64 first_row = start; first_row < end; first_row += 256) {
        u64 row = first_row + thread;
        u32 choice = row < end ? choices[row] : 0, key = row < end ? key_of(weights[choice]) : 0;
        bool is_equal = row < end && key == least;
        u32 equal = __ballot_sync(0xffffffffu, is_equal), number = before + __popc(equal & ((1u << lane) - 1));
        if (lane == 0) warps[thread / 32] = __popc(equal);
        __syncthreads();
        for (u32 warp = 0; warp < 8; warp++) {
            if (warp < thread / 32) number += warps[warp];
            before += warps[warp];
        }
        if (row < end && (key < least || (is_equal && number >= left))) ids[choice] = 0xffffffffu;
        __syncthreads();
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
