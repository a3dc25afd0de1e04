// Attention forward on tensor cores, and decode over splits of the keys.
//
// Forward: a block of four warps per 64 query rows of a head, which visits tiles of 64 keys with an online softmax. A
// warp's rows, weighted values and scores are in registers; keys and values go through shared memory, 16-bit factors
// once per 64 rows: 4 * width operations per score for 2 * width / 64 numbers read, so arithmetic bounds it.
#include "flash.cuh"

// Keys of a tile.
#define KEYS 64

// Where results go: out [sequences, t, heads, width] and lse [sequences, heads, t], or, if `values` is not null, the
// state between parts of the keys: values [sequences, heads, tiles, width, 32], sums [sequences, heads, tiles, 2, 32].
struct Result {
    float* out;
    float* lse;
    float* values;
    float* sums;
};

template <u32 FACTORS, u32 WIDTH>
__device__ __forceinline__ void flash(const Call& call, const Result& to) {
    __shared__ __align__(128) u16 keys[KEYS * WIDTH], values[KEYS * WIDTH];
    __shared__ Seen<ROWS> seen;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, pair = lane % 4 * 2;
    u64 tiles = (call.t + ROWS - 1) / ROWS, first_row = blockIdx.x % tiles * ROWS, task = blockIdx.x / tiles;
    Head of = head_of(call, task / call.heads, task % call.heads);
    u32 rows = (u32)least_of(ROWS, call.t - first_row);
    Range visited = seen_by_rows(seen, call, of.sequence, first_row, rows);
    load_tile<FACTORS, WIDTH>(keys, ROWS, of.q, first_row, rows, call.width);
    copies_done();
    __syncthreads();
    u32 queries[WIDTH / 16][4];
#pragma unroll
    for (u32 k = 0; k < WIDTH / 16; k++) load_rows<WIDTH>(queries[k], keys, warp * 16, k * 16);
    // this thread's two rows of the tile, and of the state
    u32 own[2] = {warp * 16 + g, warp * 16 + g + 8};
    u64 state[2];
    u64 state_tiles = (call.t + SIDE - 1) / SIDE;
    float most[2], total[2], sums[WIDTH / 8][4];
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        u64 row = first_row + own[h];
        state[h] = (task * state_tiles + row / SIDE) * SIDE + row % SIDE;
        // one of the four lanes of a row carries its sum on, which starts with the sink's exponential relative to itself
        most[h] = call.sinks ? call.sinks[of.head] : __uint_as_float(0xff800000u);
        total[h] = call.sinks && pair == 0 ? 1.0f : 0.0f;
        if (to.values && own[h] < rows) {
            u64 at = state[h] / SIDE * 2 * SIDE + state[h] % SIDE;
            most[h] = to.sums[at];
            total[h] = pair == 0 ? to.sums[at + SIDE] : 0.0f;
        }
    }
#pragma unroll
    for (u32 n = 0; n < WIDTH / 8; n++)
#pragma unroll
        for (u32 e = 0; e < 4; e++) {
            u64 c = n * 8 + pair + e % 2, at = state[e / 2];
            bool is_there = to.values && own[e / 2] < rows && c < call.width;
            sums[n][e] = is_there ? to.values[(at / SIDE * call.width + c) * SIDE + at % SIDE] : 0.0f;
        }
    for (u64 key = visited.start; key < visited.end; key += KEYS) {
        u32 count = (u32)least_of(KEYS, call.end - key);
        __syncthreads();
        load_tile<FACTORS, WIDTH>(keys, KEYS, of.k, key - call.start, count, call.width);
        load_tile<FACTORS, WIDTH>(values, KEYS, of.v, key - call.start, count, call.width);
        copies_done();
        __syncthreads();
        float scores[KEYS / 8][4];
        products_of_rows<FACTORS, WIDTH>(scores, queries, keys);
        float largest[2] = {most[0], most[1]};
#pragma unroll
        for (u32 n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (u32 e = 0; e < 4; e++) {
                u32 row = own[e / 2];
                u64 at = key + n * 8 + pair + e % 2;
                bool is_seen = at >= seen.start[row] && at < seen.end[row];
                float score = __uint_as_float(0xff800000u);
                if (is_seen) score = scaled_score(call, of.head, first_row + row, at, scores[n][e]);
                scores[n][e] = score;
                largest[e / 2] = larger(score, largest[e / 2]);
            }
        float base[2];
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            largest[h] = largest_of_quad(largest[h]);
            // for a row without any key so far: -infinity minus -infinity would be NaN
            base[h] = larger(-3.40282347e+38f, largest[h]);
            float by = exp_of(most[h] - base[h]);
            most[h] = largest[h];
            total[h] = total[h] * by;
#pragma unroll
            for (u32 n = 0; n < WIDTH / 8; n++) sums[n][2 * h] *= by, sums[n][2 * h + 1] *= by;
        }
#pragma unroll
        for (u32 n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (u32 e = 0; e < 4; e++) {
                float weight = exp_of(scores[n][e] - base[e / 2]);
                total[e / 2] = total[e / 2] + weight;
                if (call.has_dropout)
                    weight *= kept_factor(call, of, first_row + own[e / 2], key + n * 8 + pair + e % 2);
                scores[n][e] = weight;
            }
        add_products<FACTORS, WIDTH>(sums, scores, values);
    }
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        float sum = sum_of_quad(total[h]);
        u64 row = first_row + own[h];
        if (own[h] >= rows) continue;
        if (to.values) {
            u64 at = state[h] / SIDE * 2 * SIDE + state[h] % SIDE;
            if (pair == 0) to.sums[at] = most[h], to.sums[at + SIDE] = sum;
        } else if (pair == 0) {
            to.lse[task * call.t + row] = sum == 0.0f ? 0.0f : most[h] + natural_log(sum);
        }
        float inverse = 1.0f / (sum == 0.0f ? 1.0f : sum);
#pragma unroll
        for (u32 n = 0; n < WIDTH / 8; n++)
#pragma unroll
            for (u32 e = 2 * h; e < 2 * h + 2; e++) {
                u64 c = n * 8 + pair + e % 2;
                if (c >= call.width) continue;
                if (to.values)
                    to.values[(state[h] / SIDE * call.width + c) * SIDE + state[h] % SIDE] = sums[n][e];
                else
                    to.out[((of.sequence * call.t + row) * call.heads + of.head) * call.width + c] =
                        sums[n][e] * inverse + 0.0f;
            }
    }
}

#define FLASH(NAME, FACTORS, WIDTH)                                                                                       \
    extern "C" __global__ void __launch_bounds__(THREADS, 2)                                                            \
        attention_flash_##NAME(float* out, float* lse, float* state, float* state_sums, CALL_ARGS) {                   \
        CALL flash<FACTORS, WIDTH>(call, {out, lse, state, state_sums});                                                  \
    }

FLASH(bf16_64, BF16, 64)
FLASH(bf16_128, BF16, 128)
FLASH(f16_64, F16, 64)
FLASH(f16_128, F16, 128)

// Keys of a split, and query rows (heads of a group) that a block has at once.
#define SPLIT 256
#define AT_ONCE 8

// Decode (split-KV, Dao et al. 2023, "Flash-Decoding"): a block per split of SPLIT keys and group; a warp has every
// fourth key, and its lanes have the features. partial: [tasks, splits, rows, width + 2], weighted values, largest score
// and sum. Reads each key and value once per AT_ONCE rows, so memory bounds it.
template <u32 FACTORS>
__device__ __forceinline__ void split(const Call& call, float* partial, u64 splits) {
    __shared__ float scores[AT_ONCE][SPLIT];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 part = blockIdx.x % splits, task = blockIdx.x / splits;
    Head of = head_of(call, task / call.heads, task % call.heads);
    u64 start = call.start + part * SPLIT;
    u32 count = (u32)least_of(SPLIT, call.end - start);
    for (u64 first_row = 0; first_row < call.t; first_row += AT_ONCE) {
        u32 rows = (u32)least_of(AT_ONCE, call.t - first_row);
        __syncthreads();
        for (u32 i = warp; i < count; i += WARPS) {
            u64 key = start + i;
            float products[AT_ONCE];
            for (u32 r = 0; r < AT_ONCE; r++) products[r] = 0.0f;
            u64 at = of.k.first + (key - call.start) * of.k.stride;
            for (u32 c = lane; c < call.width; c += 32) {
                float k = as_factor<FACTORS>(number(of.k.x, of.k.is_bf16, at + c));
                for (u32 r = 0; r < rows; r++) {
                    u64 q = of.q.first + (first_row + r) * of.q.stride + c;
                    products[r] = fmaf(as_factor<FACTORS>(number(of.q.x, of.q.is_bf16, q)), k, products[r]);
                }
            }
            for (u32 r = 0; r < rows; r++) {
                float product = products[r];
                for (int width = 16; width > 0; width /= 2)
                    product = product + __shfl_xor_sync(0xffffffffu, product, width);
                float score = scaled_score(call, of.head * call.t + first_row + r, 0, key, product);
                if (lane == 0) scores[r][i] = key < call.least ? __uint_as_float(0xff800000u) : score;
            }
        }
        __syncthreads();
        for (u32 r = warp; r < rows; r += WARPS) {
            float most = -3.40282347e+38f, sum = 0.0f;
            for (u32 i = lane; i < count; i += 32) most = larger(scores[r][i], most);
            for (int width = 16; width > 0; width /= 2)
                most = larger(most, __shfl_xor_sync(0xffffffffu, most, width));
            for (u32 i = lane; i < count; i += 32) {
                float weight = exp_of(scores[r][i] - most);
                sum = sum + weight;
                scores[r][i] = as_factor<FACTORS>(weight);
            }
            for (int width = 16; width > 0; width /= 2) sum = sum + __shfl_xor_sync(0xffffffffu, sum, width);
            float* to = partial + ((task * splits + part) * call.t + first_row + r) * (call.width + 2);
            if (lane == 0) to[call.width] = most, to[call.width + 1] = sum;
        }
        __syncthreads();
        for (u32 c = threadIdx.x; c < call.width; c += THREADS) {
            float sums[AT_ONCE];
            for (u32 r = 0; r < AT_ONCE; r++) sums[r] = 0.0f;
            for (u32 i = 0; i < count; i++) {
                u64 at = of.v.first + (start + i - call.start) * of.v.stride + c;
                float v = as_factor<FACTORS>(number(of.v.x, of.v.is_bf16, at));
                for (u32 r = 0; r < rows; r++) sums[r] = fmaf(scores[r][i], v, sums[r]);
            }
            for (u32 r = 0; r < rows; r++)
                partial[((task * splits + part) * call.t + first_row + r) * (call.width + 2) + c] = sums[r];
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 4) attention_split_bf16(float* partial, u64 splits, CALL_ARGS) {
    CALL split<BF16>(call, partial, splits);
}

extern "C" __global__ void __launch_bounds__(THREADS, 4) attention_split_f16(float* partial, u64 splits, CALL_ARGS) {
    CALL split<F16>(call, partial, splits);
}

// out: [tasks, rows, width], of a sink, if there are any, and the partial results of `attention_split` in ascending order
// of the splits. A task's rows are heads, of `groups` tasks of a sequence.
extern "C" __global__ void attention_join(float* out, const float* partial, const float* sinks, u64 tasks, u64 splits,
                                          u64 rows, u64 width, u64 groups) {
    for (u64 i = first(); i < tasks * rows * width; i += stride()) {
        u64 c = i % width, row = i / width % rows, task = i / width / rows;
        const float* of = partial + (task * splits * rows + row) * (width + 2);
        u64 next = rows * (width + 2);
        float most = of[width];
        for (u64 s = 1; s < splits; s++) most = larger(of[s * next + width], most);
        float sink = sinks ? sinks[task % groups * rows + row] : 0.0f;
        if (sinks) most = larger(sink, most);
        float sum = sinks ? exp_of(sink - most) : 0.0f, value = 0.0f;
        for (u64 s = 0; s < splits; s++) {
            float by = exp_of(of[s * next + width] - most);
            sum = fmaf(of[s * next + width + 1], by, sum);
            value = fmaf(of[s * next + c], by, value);
        }
        out[i] = value / sum + 0.0f;
    }
}
