// Attention backward on tensor cores, without atomics: probabilities are computed again from the saved logarithms, once
// for the gradients of queries (a block per 64 query rows of a head, over tiles of 32 keys) and once for those of keys and
// values (a block per 64 keys of a group, over tiles of query rows of all its heads). 6 and 8 times `width` operations per
// pair of row and key, so arithmetic bounds both.
#include "flash.cuh"

// Keys of a tile in the gradients of queries.
#define KEYS 32

// The gradient of the result, and what forward left of each row: [sequences, heads, t].
struct Passed {
    Matrix dout;
    const float* lse;
    const float* dots;
};

__device__ __forceinline__ Matrix dout_of(const Call& call, const Passed& passed, const Head& of) {
    Matrix dout = passed.dout;
    dout.stride = call.heads * call.width;
    dout.first = of.sequence * call.t * dout.stride + of.head * call.width;
    return dout;
}

// A row's keys, and its logarithm and product, for the gradients of its scores.
struct Row {
    u32 start, end;
    float lse, dot;
};

// A probability with dropout, and the gradient of its score before the scale; `product` of query and key, `dp` of the
// result's gradient and the value.
struct Slope {
    float p, slope;
};

__device__ __forceinline__ Slope slope_of(const Call& call, const Head& of, const Row& at, u64 row, u64 key,
                                          float product, float dp) {
    if (key < at.start || key >= at.end) return {0.0f, 0.0f};
    float p = exp_of(scaled_score(call, of.head, row, key, product) - at.lse);
    float by = call.has_dropout ? kept_factor(call, of, row, key) : 1.0f;
    return {p * by, p * (dp * by - at.dot)};
}

// Sums of slopes by distance of row and key, a chain over ascending rows each; sums[0] is that of (row 0, key 0).
__device__ __forceinline__ void add_by_distance(float* sums, const float (&slopes)[ROWS][KEYS + 1], u32 rows, u32 keys) {
    for (u32 i = threadIdx.x; i < ROWS + KEYS - 1; i += THREADS) {
        // row - key is i - (KEYS - 1)
        float* to = sums + (i64)i - (KEYS - 1);
        for (u32 r = 0; r < rows; r++) {
            u32 key = r + (KEYS - 1) - i;
            if (r + (KEYS - 1) < i || key >= keys) continue;
            *to = *to + slopes[r][key];
        }
    }
}

// Adds to dq: [sequences, heads, tiles of 64, 2, width, 32]; by_distance: [sequences, groups, tiles of 64, per, distances], null
// without a bias.
template <u32 FACTORS, u32 WIDTH>
__device__ __forceinline__ void queries(const Call& call, const Passed& passed, float* dq, float* by_distance,
                                        u64 distances) {
    // keys above values; before that the rows' own factors, one after the other
    __shared__ __align__(128) u16 tiles_of[2 * KEYS * WIDTH];
    __shared__ Seen<ROWS> seen;
    __shared__ float slopes[ROWS][KEYS + 1], lse[ROWS], dots[ROWS];
    u16 *keys = tiles_of, *values = tiles_of + KEYS * WIDTH;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, pair = lane % 4 * 2;
    u64 tiles = (call.t + ROWS - 1) / ROWS, unit = blockIdx.x % tiles, task = blockIdx.x / tiles;
    u64 first_row = unit * ROWS;
    Head of = head_of(call, task / call.heads, task % call.heads);
    u32 rows = (u32)least_of(ROWS, call.t - first_row);
    Range visited = seen_by_rows(seen, call, of.sequence, first_row, rows);
    u32 query[WIDTH / 16][4], grad[WIDTH / 16][4];
    load_tile<FACTORS, WIDTH>(tiles_of, ROWS, of.q, first_row, rows, call.width);
    copies_done();
    __syncthreads();
#pragma unroll
    for (u32 k = 0; k < WIDTH / 16; k++) load_rows<WIDTH>(query[k], tiles_of, warp * 16, k * 16);
    __syncthreads();
    load_tile<FACTORS, WIDTH>(tiles_of, ROWS, dout_of(call, passed, of), first_row, rows, call.width);
    copies_done();
    __syncthreads();
#pragma unroll
    for (u32 k = 0; k < WIDTH / 16; k++) load_rows<WIDTH>(grad[k], tiles_of, warp * 16, k * 16);
    for (u32 i = threadIdx.x; i < ROWS; i += THREADS) {
        lse[i] = i < rows ? passed.lse[task * call.t + first_row + i] : 0.0f;
        dots[i] = i < rows ? passed.dots[task * call.t + first_row + i] : 0.0f;
    }
    float sums[WIDTH / 8][4];
#pragma unroll
    for (u32 n = 0; n < WIDTH / 8; n++)
        for (u32 e = 0; e < 4; e++) sums[n][e] = 0.0f;
    u64 groups = call.heads / call.per;
    if (by_distance)
        by_distance +=
            (((of.sequence * groups + of.group) * tiles + unit) * call.per + of.head % call.per) * distances;
    for (u64 key = visited.start; key < visited.end; key += KEYS) {
        u32 count = (u32)least_of(KEYS, call.end - key);
        __syncthreads();
        load_tile<FACTORS, WIDTH>(keys, KEYS, of.k, key - call.start, count, call.width);
        load_tile<FACTORS, WIDTH>(values, KEYS, of.v, key - call.start, count, call.width);
        copies_done();
        __syncthreads();
        float scores[KEYS / 8][4], dps[KEYS / 8][4];
        products_of_rows<FACTORS, WIDTH>(scores, query, keys);
        products_of_rows<FACTORS, WIDTH>(dps, grad, values);
#pragma unroll
        for (u32 n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (u32 e = 0; e < 4; e++) {
                u32 row = warp * 16 + g + e / 2 * 8, i = n * 8 + pair + e % 2;
                Row at = {seen.start[row], seen.end[row], lse[row], dots[row]};
                Slope found = slope_of(call, of, at, first_row + row, key + i, scores[n][e], dps[n][e]);
                if (by_distance) slopes[row][i] = found.slope;
                scores[n][e] = found.slope * call.scale;
            }
        add_products<FACTORS, WIDTH>(sums, scores, keys);
        if (by_distance) {
            __syncthreads();
            add_by_distance(by_distance + first_row + call.total - 1 - key, slopes, rows, count);
        }
    }
    u64 state_tiles = tiles * (ROWS / SIDE);
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        u32 r = warp * 16 + g + 8 * h;
        if (r >= rows) continue;
        u64 row = first_row + r, at = (task * state_tiles + row / SIDE) * call.width;
#pragma unroll
        for (u32 n = 0; n < WIDTH / 8; n++)
#pragma unroll
            for (u32 e = 2 * h; e < 2 * h + 2; e++) {
                u64 c = n * 8 + pair + e % 2;
                if (c >= call.width) continue;
                float* to = dq + (at + c) * SIDE + row % SIDE;
                *to = *to + sums[n][e];
            }
    }
}

// Query rows of a tile in the gradients of keys and values: what 48 KiB of shared memory hold beside 64 keys and values.
template <u32 WIDTH>
struct QueryRows {
    static const u32 count = WIDTH == 64 ? 32 : 16;
};

// dkv: [sequences, groups, held, 2 width].
template <u32 FACTORS, u32 WIDTH>
__device__ __forceinline__ void keys_and_values(const Call& call, const Passed& passed, float* dkv, u64 held) {
    const u32 COUNT = QueryRows<WIDTH>::count;
    __shared__ __align__(128) u16 keys[ROWS * WIDTH], values[ROWS * WIDTH];
    __shared__ __align__(128) u16 query_rows[COUNT * WIDTH], grads[COUNT * WIDTH];
    __shared__ Seen<COUNT> seen;
    __shared__ float lse[COUNT], dots[COUNT];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, pair = lane % 4 * 2;
    u64 chunks = (call.end - call.start + ROWS - 1) / ROWS, groups = call.heads / call.per;
    u64 first_key = call.start + blockIdx.x % chunks * ROWS, task = blockIdx.x / chunks;
    u32 count = (u32)least_of(ROWS, call.end - first_key);
    Head of = head_of(call, task / groups, task % groups * call.per);
    load_tile<FACTORS, WIDTH>(keys, ROWS, of.k, first_key - call.start, count, call.width);
    load_tile<FACTORS, WIDTH>(values, ROWS, of.v, first_key - call.start, count, call.width);
    float of_keys[WIDTH / 8][4], of_values[WIDTH / 8][4];
#pragma unroll
    for (u32 n = 0; n < WIDTH / 8; n++)
        for (u32 e = 0; e < 4; e++) of_keys[n][e] = 0.0f, of_values[n][e] = 0.0f;
    // the rows that the mask alone lets see one of the keys
    u64 least_row = 0, end_row = call.t, last_key = first_key + count - 1;
    if (call.is_causal && first_key > call.position) least_row = (first_key - call.position) / COUNT * COUNT;
    if (call.window > 0 && last_key + call.window > call.position)
        end_row = least_of(end_row, last_key + call.window - call.position);
    else if (call.window > 0)
        end_row = 0;
    for (u64 head = task % groups * call.per; head < (task % groups + 1) * call.per; head++) {
        of = head_of(call, task / groups, head);
        for (u64 row = least_row; row < end_row; row += COUNT) {
            u32 rows = (u32)least_of(COUNT, call.t - row);
            Range visited = seen_by_rows(seen, call, of.sequence, row, rows);
            if (visited.end <= first_key || visited.start > last_key) continue;
            load_tile<FACTORS, WIDTH>(query_rows, COUNT, of.q, row, rows, call.width);
            load_tile<FACTORS, WIDTH>(grads, COUNT, dout_of(call, passed, of), row, rows, call.width);
            for (u32 i = threadIdx.x; i < COUNT; i += THREADS) {
                u64 at = (of.sequence * call.heads + of.head) * call.t + row + i;
                lse[i] = i < rows ? passed.lse[at] : 0.0f;
                dots[i] = i < rows ? passed.dots[at] : 0.0f;
            }
            copies_done();
            __syncthreads();
            // rows of the sums are keys here, columns are query rows
            float scores[COUNT / 8][4], dps[COUNT / 8][4];
            u32 own[WIDTH / 16][4];
#pragma unroll
            for (u32 k = 0; k < WIDTH / 16; k++) load_rows<WIDTH>(own[k], keys, warp * 16, k * 16);
            products_of_rows<FACTORS, WIDTH>(scores, own, query_rows);
#pragma unroll
            for (u32 k = 0; k < WIDTH / 16; k++) load_rows<WIDTH>(own[k], values, warp * 16, k * 16);
            products_of_rows<FACTORS, WIDTH>(dps, own, grads);
#pragma unroll
            for (u32 n = 0; n < COUNT / 8; n++)
#pragma unroll
                for (u32 e = 0; e < 4; e++) {
                    u32 i = n * 8 + pair + e % 2;
                    u64 key = first_key + warp * 16 + g + e / 2 * 8;
                    Row at = {seen.start[i], seen.end[i], lse[i], dots[i]};
                    Slope found = slope_of(call, of, at, row + i, key, scores[n][e], dps[n][e]);
                    scores[n][e] = found.p;
                    dps[n][e] = found.slope * call.scale;
                }
            add_products<FACTORS, WIDTH>(of_values, scores, grads);
            add_products<FACTORS, WIDTH>(of_keys, dps, query_rows);
        }
    }
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        u32 key = warp * 16 + g + 8 * h;
        if (key >= count) continue;
        float* to = dkv + (task * held + first_key - call.start + key) * 2 * call.width;
#pragma unroll
        for (u32 n = 0; n < WIDTH / 8; n++)
#pragma unroll
            for (u32 e = 2 * h; e < 2 * h + 2; e++) {
                u64 c = n * 8 + pair + e % 2;
                if (c >= call.width) continue;
                to[c] = of_keys[n][e] + 0.0f;
                to[call.width + c] = of_values[n][e] + 0.0f;
            }
    }
}

#define PASSED_ARGS const void *dout, u32 dout_is_bf16, const float *lse, const float *dots
#define PASSED const Passed passed = {{dout, dout_is_bf16, 0, 0}, lse, dots};

#define BACKWARD(NAME, FACTORS, WIDTH)                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS, 2)                                                            \
        attention_flash_queries_##NAME(float* dq, float* by_distance, u64 distances, PASSED_ARGS, CALL_ARGS) {         \
        CALL PASSED queries<FACTORS, WIDTH>(call, passed, dq, by_distance, distances);                                    \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                               \
        attention_flash_keys_##NAME(float* dkv, u64 held, PASSED_ARGS, CALL_ARGS) {                                    \
        CALL PASSED keys_and_values<FACTORS, WIDTH>(call, passed, dkv, held);                                             \
    }

BACKWARD(bf16_64, BF16, 64)
BACKWARD(bf16_128, BF16, 128)
BACKWARD(f16_64, F16, 64)
BACKWARD(f16_128, F16, 128)
