// Attention backward, exact: probabilities are computed again from the saved logarithms, once for the gradients of queries
// (a block of threads per tile of 32 query rows of a head, over ascending keys) and once for those of keys and values (a
// block per 32 keys of a group, over the query rows of one leaf). Both use the tiles of cuda/attention.cuh. Arithmetic
// bounds them: 6 and 8 times `width` operations per pair of row and key.
#include "attention.cuh"

// The gradient of the result, and what forward left of each row: [sequences, heads, t].
struct Passed {
    Matrix dout;
    const float* lse;
    const float* dots;
};

// Query rows in leaves of `leaf`, each in `tiles` tiles.
struct Plan {
    u64 leaf, leaves, tiles;
};

// Rows of tile `number` of a leaf.
__device__ __forceinline__ u32 rows_of(const Call& call, const Plan& plan, u64 leaf, u64 number) {
    u64 start = leaf * plan.leaf + number * SIDE, end = least_of(call.t, (leaf + 1) * plan.leaf);
    return start < end ? (u32)least_of(SIDE, end - start) : 0;
}

__device__ __forceinline__ Matrix dout_of(const Call& call, const Passed& passed, const Head& of) {
    Matrix dout = passed.dout;
    dout.stride = call.heads * call.width;
    dout.first = of.sequence * call.t * dout.stride + of.head * call.width;
    return dout;
}

// A probability, the gradient of its score, and the derivative of the score by the product.
struct Slope {
    float p, slope, by;
};

// product: of query and key, dp: of the result's gradient and the value.
__device__ __forceinline__ Slope slope_of(const Call& call, const Head& of, const Tile& tile, u64 key, float product,
                                          float dp, float lse, float dot) {
    bool is_seen = key >= tile.lane_start && key < tile.lane_end;
    float slope = is_seen ? dp - dot : 0.0f;
    float e = exp_of_score(score_of(call, of, tile, key, product) - lse);
    bool is_capped = call.cap != 0.0f;
    float by = is_capped ? capped(call, product * call.scale).derivative * call.scale : call.scale;
    return {e, e * slope, by};
}

// Sums of slopes by distance of row and key, a chain over ascending rows each; sums[0] is that of (tile's row 0, key).
__device__ __forceinline__ void add_by_distance(float* sums, const Square& slopes, u32 rows, u32 keys) {
    u32 i = threadIdx.x;
    if (i >= 2 * SIDE - 1) return;
    // row - key is i - (SIDE - 1)
    for (u32 r = 0; r < rows; r++) {
        u32 key = r + (SIDE - 1) - i;
        if (r + (SIDE - 1) < i || key >= keys) continue;
        float* to = sums + (i64)i - (SIDE - 1);
        *to = *to + slopes[key][r];
    }
}

// dq: [sequences, heads, leaves, tiles, width, 32]; by_distance: [sequences, groups, leaves, per, distances], null
// without a bias. A block has one tile, with a bias all tiles of a leaf.
template <bool PAIRS>
__device__ __forceinline__ void queries(const Call& call, const Passed& passed, const Plan& plan, float* dq,
                                        float* by_distance, u64 distances) {
    __shared__ Square left, right, weights, slopes;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 units = by_distance ? plan.leaves : plan.leaves * plan.tiles;
    u64 unit = blockIdx.x % units, task = blockIdx.x / units;
    Head of = head_of(call, task / call.heads, task % call.heads);
    Matrix dout = dout_of(call, passed, of);
    u64 number = by_distance ? unit * plan.tiles : unit, stop = by_distance ? number + plan.tiles : number + 1;
    u64 groups = call.heads / call.per;
    float* sums = nullptr;
    if (by_distance)
        sums = by_distance +
               (((of.sequence * groups + of.group) * plan.leaves + unit) * call.per + of.head % call.per) * distances;
    for (; number < stop; number++) {
        u64 leaf = number / plan.tiles, row = leaf * plan.leaf + number % plan.tiles * SIDE;
        u32 rows = rows_of(call, plan, leaf, number % plan.tiles);
        Tile tile = tile_of(call, of.sequence, row, rows);
        if (tile.visited_start == tile.visited_end) continue;
        u64 at = task * call.t + row + lane;
        float lse = lane < rows ? passed.lse[at] : 0.0f, dot = lane < rows ? passed.dots[at] : 0.0f;
        float* to = dq + (task * plan.leaves * plan.tiles + number) * call.width * SIDE;
        for (u64 block = first_block(call, tile.visited_start); block < tile.visited_end; block += call.block) {
            Range keys = within(call, tile, block);
            for (u64 key = keys.start; key < keys.end; key += SIDE) {
                u32 count = (u32)least_of(SIDE, keys.end - key);
                u32 readable = (u32)least_of(SIDE, least_of(call.end, block + call.block) - key);
                float products[EACH], dps[EACH];
                u64 held = key - call.start;
                scores_of<PAIRS>(products, left, right, of.k, held, count, of.q, row, rows, call.width);
                scores_of<PAIRS>(dps, left, right, of.v, held, count, dout, row, rows, call.width);
                for (u32 j = 0; j < EACH; j++) {
                    u32 i = warp * EACH + j;
                    float dp = call.has_dropout ? dps[j] * dropped(call, of, tile, key + i) : dps[j];
                    Slope found = slope_of(call, of, tile, key + i, products[j], dp, lse, dot);
                    slopes[i][lane] = found.slope;
                    weights[i][lane] = i < count ? factor<PAIRS>(found.slope * found.by) : 0.0f;
                }
                __syncthreads();
                if (sums) add_by_distance(sums + row + call.total - 1 - key, slopes, rows, count);
                add_over_keys<PAIRS>(to, weights, left, of.k, held, count, readable, call.width);
            }
        }
    }
}

// Adds one leaf's gradients of keys and values: [sequences, groups, held, 2 width].
template <bool PAIRS>
__device__ __forceinline__ void keys_and_values(const Call& call, const Passed& passed, const Plan& plan, float* dkv,
                                                u64 held, u64 leaf) {
    __shared__ Square left, right, of_keys, of_values;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 chunks = (call.end - call.start + SIDE - 1) / SIDE, groups = call.heads / call.per;
    u64 first_key = call.start + blockIdx.x % chunks * SIDE, task = blockIdx.x / chunks;
    u32 count = (u32)least_of(SIDE, call.end - first_key);
    float* to = dkv + (task * held + first_key - call.start) * 2 * call.width;
    for (u64 query = 0; query < call.per; query++) {
        Head of = head_of(call, task / groups, task % groups * call.per + query);
        Matrix dout = dout_of(call, passed, of);
        for (u64 number = 0; number < plan.tiles; number++) {
            u64 row = leaf * plan.leaf + number * SIDE;
            u32 rows = rows_of(call, plan, leaf, number);
            if (rows == 0) break;
            Tile tile = tile_of(call, of.sequence, row, rows);
            if (tile.visited_start == tile.visited_end) continue;
            // the keys that the tile visits, a bit each
            u64 key = first_key + lane;
            Range range = within(call, tile, first_block(call, key));
            bool is_visited = lane < count && key >= range.start && key < range.end;
            u32 visited = __ballot_sync(0xffffffffu, is_visited);
            if (visited == 0) continue;
            u64 at = (of.sequence * call.heads + of.head) * call.t + row + lane;
            float lse = lane < rows ? passed.lse[at] : 0.0f, dot = lane < rows ? passed.dots[at] : 0.0f;
            float products[EACH], dps[EACH];
            scores_of<PAIRS>(products, left, right, of.k, first_key - call.start, count, of.q, row, rows, call.width);
            scores_of<PAIRS>(dps, left, right, of.v, first_key - call.start, count, dout, row, rows, call.width);
            for (u32 j = 0; j < EACH; j++) {
                u32 i = warp * EACH + j;
                float by = call.has_dropout ? dropped(call, of, tile, first_key + i) : 1.0f;
                float dp = call.has_dropout ? dps[j] * by : dps[j];
                Slope found = slope_of(call, of, tile, first_key + i, products[j], dp, lse, dot);
                of_keys[i][lane] = factor<PAIRS>(found.slope * found.by);
                of_values[i][lane] = factor<PAIRS>(call.has_dropout ? found.p * by : found.p);
            }
            u64 stride = 2 * call.width;
            add_over_rows<PAIRS>(to + call.width, stride, of_values, left, dout, row, rows, visited, call.width);
            add_over_rows<PAIRS>(to, stride, of_keys, left, of.q, row, rows, visited, call.width);
        }
    }
}

#define PASSED_ARGS const void *dout, u32 dout_is_bf16, const float *lse, const float *dots, u64 leaf, u64 leaves, u64 tiles
#define PASSED                                                         \
    const Passed passed = {{dout, dout_is_bf16, 0, 0}, lse, dots}; \
    const Plan plan = {leaf, leaves, tiles};

#define BACKWARD(NAME, PAIRS)                                                                                        \
    extern "C" __global__ void __launch_bounds__(256, 1) attention_queries_##NAME(float* dq, float* by_distance,        \
                                                                               u64 distances, PASSED_ARGS,           \
                                                                               CALL_ARGS) {                          \
        CALL PASSED queries<PAIRS>(call, passed, plan, dq, by_distance, distances);                                  \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(256, 1)                                                                \
        attention_keys_##NAME(float* dkv, u64 held, u64 number, PASSED_ARGS, CALL_ARGS) {                            \
        CALL PASSED keys_and_values<PAIRS>(call, passed, plan, dkv, held, number);                                   \
    }

BACKWARD(f32, false)
BACKWARD(bf16_pairs, true)

// dots: [sequences, heads, t], the products of the result and its gradient: 16 threads per row and head.
extern "C" __global__ void attention_dots(float* dots, const void* dout, u32 dout_is_bf16, const float* out, u64 rows,
                                          u64 heads, u64 t, u64 width) {
    for (u64 i = first(); i < whole_warps(rows * heads); i += stride()) {
        u64 row = i / 16 / heads, head = i / 16 % heads, at = i / 16 * width;
        bool has_row = row < rows;
        float sum = 0.0f;
        for (u64 c = i % 16; c < padded(width, has_row); c += 16) {
            float d = c < width ? number(dout, dout_is_bf16, at + c) : 0.0f;
            sum = fmaf(d, c < width ? out[at + c] : 0.0f, sum);
        }
        sum = row_sum(sum);
        if (has_row && i % 16 == 0) dots[(row / t * heads + head) * t + row % t] = sum;
    }
}

// rows: [sequences, t, heads], each row's part of the gradient of the sinks, [heads].
extern "C" __global__ void attention_sink_gradients(float* rows, const float* dots, const float* lse, const float* sinks,
                                                    u64 n, u64 heads, u64 t) {
    for (u64 i = first(); i < n; i += stride()) {
        u64 row = i / heads, head = i % heads, at = (row / t * heads + head) * t + row % t;
        rows[i] = 0.0f - exp_of_score(sinks[head] - lse[at]) * dots[at];
    }
}

// by_bucket: [sequences, heads, buckets], sums by distance: leaves, each a chain over ascending distances (from the last
// row and first key on), in the tree.
extern "C" __global__ void attention_by_bucket(float* by_bucket, const float* by_distance, const u32* numbers, u64 tasks,
                                               u64 per, u64 leaves, u64 distances, u64 count, u64 buckets) {
    for (u64 i = first(); i < tasks * per * buckets; i += stride()) {
        u64 bucket = i % buckets, query = i / buckets % per, task = i / buckets / per;
        Tree tree;
        for (u64 leaf = 0; leaf < leaves; leaf++) {
            const float* of = by_distance + ((task * leaves + leaf) * per + query) * distances;
            float sum = 0.0f;
            for (u64 at = count; at > 0; at--)
                if (numbers[at - 1] == bucket) sum = sum + of[at - 1];
            tree.push(sum);
        }
        by_bucket[i] = tree.finish();
    }
}
