// Attention forward with an online softmax, exact: a block of threads per tile of 32 query rows of a head (cuda/
// attention.cuh), which visits block after block of keys. The largest score of a block of keys must be known before the
// first exponential: the scores of up to KEPT keys are kept, those of larger blocks computed twice. Arithmetic bounds it:
// 4 * width operations per score, and 2 * width more for the second pass.
#include "attention.cuh"

// Keys of a block whose scores are kept.
#define KEPT 128

template <bool PAIRS>
__device__ __forceinline__ void visit(const Call& call, float* values, float* sums) {
    __shared__ Square left, right, weights;
    __shared__ float scores[KEPT][SIDE + 1];
    __shared__ float largest[SIDE], rescaled[SIDE];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 tiles = (call.t + SIDE - 1) / SIDE, number = blockIdx.x % tiles, task = blockIdx.x / tiles;
    Head of = head_of(call, task / call.heads, task % call.heads);
    u32 rows = (u32)least_of(SIDE, call.t - number * SIDE);
    Tile tile = tile_of(call, of.sequence, number * SIDE, rows);
    values += (u64)blockIdx.x * call.width * SIDE;
    sums += (u64)blockIdx.x * 2 * SIDE;
    // the first warp carries the rows' largest scores and sums
    float most = 0.0f, total = 0.0f;
    if (warp == 0) most = sums[lane], total = sums[SIDE + lane];
    for (u64 block = first_block(call, tile.visited_start); block < tile.visited_end; block += call.block) {
        Range keys = within(call, tile, block);
        bool is_kept = keys.end - keys.start <= KEPT;
        float before = most;
        for (u64 key = keys.start; key < keys.end; key += SIDE) {
            u32 count = (u32)least_of(SIDE, keys.end - key), at = is_kept ? (u32)(key - keys.start) : 0;
            float products[EACH];
            scores_of<PAIRS>(products, left, right, of.k, key - call.start, count, of.q, tile.first, rows, call.width);
            for (u32 j = 0; j < EACH; j++) {
                u32 i = warp * EACH + j;
                scores[at + i][lane] = score_of(call, of, tile, key + i, products[j]);
            }
            __syncthreads();
            if (warp == 0)
                for (u32 i = 0; i < count; i++) most = larger(most, scores[at + i][lane]);
        }
        if (warp == 0) {
            // for a row without any key so far: -infinity minus -infinity would be NaN
            float max = larger(-3.40282347e+38f, most);
            float by = exp_of_score(before - max);
            total = total * by;
            largest[lane] = max;
            rescaled[lane] = by;
        }
        __syncthreads();
        for (u64 c = warp; c < call.width; c += blockDim.x / 32) {
            float value = values[c * SIDE + lane] * rescaled[lane];
            // products of bf16 take subnormal sums for zeros
            if (PAIRS && larger(value, 0.0f - value) < 1.17549435e-38f) value = 0.0f;
            values[c * SIDE + lane] = value;
        }
        for (u64 key = keys.start; key < keys.end; key += SIDE) {
            u32 count = (u32)least_of(SIDE, keys.end - key), at = is_kept ? (u32)(key - keys.start) : 0;
            u32 readable = (u32)least_of(SIDE, least_of(call.end, block + call.block) - key);
            float products[EACH];
            if (is_kept) {
                // the weights of the keys before are read no more
                __syncthreads();
            } else {
                scores_of<PAIRS>(products, left, right, of.k, key - call.start, count, of.q, tile.first, rows,
                                 call.width);
            }
            for (u32 j = 0; j < EACH; j++) {
                u32 i = warp * EACH + j;
                float score = is_kept ? scores[at + i][lane] : score_of(call, of, tile, key + i, products[j]);
                float e = exp_of_score(score - largest[lane]);
                scores[at + i][lane] = e;
                weights[i][lane] = i < count ? factor<PAIRS>(e * dropped(call, of, tile, key + i)) : 0.0f;
            }
            __syncthreads();
            if (warp == 0)
                for (u32 i = 0; i < count; i++) total = total + scores[at + i][lane];
            add_over_keys<PAIRS>(values, weights, left, of.v, key - call.start, count, readable, call.width);
        }
    }
    if (warp == 0) sums[lane] = most, sums[SIDE + lane] = total;
}

// values: [sequences, heads, tiles, width, 32], sums: [sequences, heads, tiles, 2, 32], largest score and sum.
extern "C" __global__ void __launch_bounds__(256, 1) attention_visit_f32(float* values, float* sums, CALL_ARGS) {
    CALL visit<false>(call, values, sums);
}

extern "C" __global__ void __launch_bounds__(256, 1) attention_visit_bf16_pairs(float* values, float* sums, CALL_ARGS) {
    CALL visit<true>(call, values, sums);
}

// The state before the first key: a sink has been visited, whose exponential is relative to itself. In decode, rows are
// the `rows` heads of a task.
extern "C" __global__ void attention_begin(float* sums, const float* sinks, u64 n, u64 heads, u64 rows, u32 rows_are_heads) {
    const float none = __uint_as_float(0xff800000u);
    u64 tiles = (rows + SIDE - 1) / SIDE;
    for (u64 i = first(); i < n; i += stride()) {
        u64 tile = i / (2 * SIDE), head = tile / tiles % heads, row = tile % tiles * SIDE + i % SIDE;
        if (rows_are_heads) head = head * rows + least_of(row, rows - 1);
        if (i / SIDE % 2 == 0)
            sums[i] = sinks ? sinks[head] : none;
        else
            sums[i] = sinks ? 1.0f : 0.0f;
    }
}

// out: [sequences, t, heads, width], lse: [sequences, heads, t]; without a sink 0 for a row that attends to nothing. In decode, lse is
// null and rows are heads: out is [sequences, heads, t, width].
extern "C" __global__ void attention_finish(float* out, float* lse, const float* values, const float* sums, u64 tasks,
                                            u64 heads, u64 t, u64 width) {
    u64 tiles = (t + SIDE - 1) / SIDE;
    for (u64 i = first(); i < tasks * t * width; i += stride()) {
        u64 c = i % width, row = i / width % t, task = i / width / t;
        u64 tile = task * tiles + row / SIDE, lane = row % SIDE;
        float max = sums[tile * 2 * SIDE + lane], sum = sums[tile * 2 * SIDE + SIDE + lane];
        float value = values[(tile * width + c) * SIDE + lane];
        if (!lse) {
            out[i] = value / sum + 0.0f;
            continue;
        }
        out[((task / heads * t + row) * heads + task % heads) * width + c] = value / (sum == 0.0f ? 1.0f : sum) + 0.0f;
        if (c == 0) lse[task * t + row] = sum == 0.0f ? 0.0f : max + natural_log(sum);
    }
}
