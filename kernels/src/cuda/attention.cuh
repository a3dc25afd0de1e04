// What the kernels of attention share: a call's layout, masks, and products of tiles of 32 query rows and 32 keys.
//
// A block has 256 threads: lane r of a warp is query row r of a tile (or a column of one), warp w has keys (or columns)
// 4 w .. 4 w + 3. Operands go through shared memory in slabs of 32 x 32. The order of operations in each sum is that of
// ops/attention/cpu: chains over features, over ascending keys, over ascending rows.
#pragma once
#include "activation.cuh"
#include "philox.cuh"

#define SIDE 32
#define EACH 4

typedef float Square[SIDE][SIDE + 1];

// Numbers of f32 or bf16 whose rows are `stride` apart.
struct Matrix {
    const void* x;
    u32 is_bf16;
    u64 first, stride;
};

// Queries, keys and values, in elements: distances of rows, of groups of heads, and of sequences.
struct Call {
    const void* q;
    u32 q_is_bf16;
    u64 q_row, q_group, q_sequence;
    const void* k;
    const void* v;
    u32 kv_is_bf16;
    u64 kv_row, kv_group, kv_sequence;
    // heads of all groups, heads per group, features
    u64 heads, per, width;
    // query rows per sequence and the position of the first
    u64 t, position;
    // positions of the keys: of the first that is held, of the first that may be seen, one past the last; keys per block
    u64 start, least, end, block;
    const u32* bounds;
    u32 is_causal;
    u64 window;
    float scale;
    // bound of the scores, which have no bias then; 0: none
    float cap;
    // linear biases (ALiBi): the slope of each head, whose bias is slope * (key - query); null without
    const float* slopes;
    // a score per head beside those of the keys; null without
    const float* sinks;
    // biases: [heads, buckets], and the bucket of each distance; null without
    const float* table;
    const u32* numbers;
    u64 buckets, total;
    // decode: the rows are the heads of a group, all at one position
    u32 rows_are_heads;
    u32 has_dropout, key0, key1, threshold;
    float kept;
    u32 first_head;
    u64 first_sequence;
};

#define CALL_ARGS                                                                                                     \
    const void *q, u32 q_is_bf16, u64 q_row, u64 q_group, u64 q_sequence, const void *k, const void *v, u32 kv_is_bf16, \
        u64 kv_row, u64 kv_group, u64 kv_sequence, u64 heads, u64 per, u64 width, u64 t, u64 position, u64 start,     \
        u64 least, u64 end, u64 block, const u32 *bounds, u32 is_causal, u64 window, float scale, float cap, const float *slopes, \
        const float *sinks, const float *table, const u32 *numbers, u64 buckets, u64 total, u32 rows_are_heads, u32 has_dropout, u32 key0, u32 key1,          \
        u32 threshold, float kept, u32 first_head, u64 first_sequence
#define CALL                                                                                                         \
    const Call call = {q,         q_is_bf16,   q_row,     q_group,  q_sequence, k,         v,                        \
                       kv_is_bf16, kv_row,     kv_group,  kv_sequence, heads,   per,       width,                    \
                       t,         position,    start,     least,    end,        block,     bounds,                   \
                       is_causal, window,      scale,     cap,      slopes, sinks, table,      numbers,   buckets,                  \
                       total,     rows_are_heads, has_dropout, key0, key1,     threshold,  kept,      first_head,               \
                       first_sequence};

// A head of a sequence.
struct Head {
    u64 sequence, head, group;
    Matrix q, k, v;
    Dropout dropout;
};

__device__ __forceinline__ Head head_of(const Call& call, u64 sequence, u64 head) {
    Head of;
    of.sequence = sequence;
    of.head = head;
    of.group = head / call.per;
    u64 q = sequence * call.q_sequence + of.group * call.q_group + head % call.per * call.width;
    u64 kv = sequence * call.kv_sequence + of.group * call.kv_group;
    of.q = {call.q, call.q_is_bf16, q, call.q_row};
    of.k = {call.k, call.kv_is_bf16, kv, call.kv_row};
    of.v = {call.v, call.kv_is_bf16, kv, call.kv_row};
    // the key of a head's random bits (descriptor/dropout.rs)
    Words key = philox(call.key0, call.key1, call.first_head + (u32)head, 0, 0, 0x68656164u);
    of.dropout = {key.of[0], key.of[1], call.threshold, call.kept};
    return of;
}

// Query rows of a tile and the keys that each of them attends to.
struct Tile {
    u64 first;
    u32 count;
    // from the first key that any row attends to, to the last; none if they are equal
    u64 visited_start, visited_end;
    // of this thread's lane; equal if it attends to none
    u64 lane_start, lane_end;
};

// Positions from `start` to below `end`.
struct Range {
    u64 start, end;
};

__device__ __forceinline__ u64 least_of(u64 a, u64 b) { return a < b ? a : b; }
__device__ __forceinline__ u64 most_of(u64 a, u64 b) { return a > b ? a : b; }

// Keys that a query row attends to.
__device__ __forceinline__ Range seen_by(const Call& call, u64 sequence, u64 row) {
    u64 at = call.position + row;
    Range range = {call.least, call.end};
    if (call.is_causal) range.end = least_of(range.end, at + 1);
    if (call.window > 0 && at + 1 > call.window) range.start = most_of(range.start, at + 1 - call.window);
    if (call.bounds) {
        const u32* of = call.bounds + (sequence * call.t + row) * 2;
        range.start = most_of(range.start, of[0]);
        range.end = least_of(range.end, of[1]);
    }
    if (range.start >= range.end) range = {0, 0};
    return range;
}

// Rows first .. first + count. All threads of a block take part.
__device__ __forceinline__ Tile tile_of(const Call& call, u64 sequence, u64 first, u32 count) {
    u32 lane = threadIdx.x % 32;
    Tile tile = {first, count, 0, 0, 0, 0};
    Range seen = {0, 0};
    if (lane < count) seen = seen_by(call, sequence, first + lane);
    tile.lane_start = seen.start;
    tile.lane_end = seen.end;
    u64 from = seen.start < seen.end ? seen.start : ~0ull, to = seen.end;
    for (int width = 16; width > 0; width /= 2) {
        from = least_of(from, __shfl_xor_sync(0xffffffffu, from, width));
        to = most_of(to, __shfl_xor_sync(0xffffffffu, to, width));
    }
    if (to > 0) tile.visited_start = from, tile.visited_end = to;
    return tile;
}

// The first block of keys that a tile visits, and the part of a block that it visits, from an even key of the block on.
__device__ __forceinline__ u64 first_block(const Call& call, u64 key) {
    u64 origin = call.start % call.block;
    return (key - origin) / call.block * call.block + origin;
}

__device__ __forceinline__ Range within(const Call& call, const Tile& tile, u64 block) {
    u64 start = most_of(tile.visited_start, block);
    return {block + (start - block) / 2 * 2, least_of(tile.visited_end, block + call.block)};
}

// A number as a factor of products.
template <bool PAIRS>
__device__ __forceinline__ float factor(float x) {
    return PAIRS ? widen(to_bf16(x)) : x;
}

// Rows row .. row + rows and columns column .. column + SIDE of a matrix, zeros past `rows` and `width`. Waits for all
// threads before and after.
template <bool PAIRS>
__device__ __forceinline__ void load(Square& to, const Matrix& from, u64 row, u32 rows, u64 column, u64 width) {
    for (u32 i = threadIdx.x; i < SIDE * SIDE; i += blockDim.x) {
        u32 r = i / SIDE, c = i % SIDE;
        bool is_there = r < rows && column + c < width;
        float x = is_there ? number(from.x, from.is_bf16, from.first + (row + r) * from.stride + column + c) : 0.0f;
        to[r][c] = factor<PAIRS>(x);
    }
}

// One step of a chain for each of a thread's numbers: sums[j] += a[j] b, of pairs the odd one first.
template <bool PAIRS>
__device__ __forceinline__ float step(float a, float b, float sum) {
    return PAIRS ? flushed_fma(a, b, sum) : fmaf(a, b, sum);
}

// sums[j] = the chain over features of key 4 w + j and query row `lane`.
template <bool PAIRS>
__device__ __forceinline__ void scores_of(float (&sums)[EACH], Square& left, Square& right, const Matrix& keys, u64 key,
                                          u32 key_count, const Matrix& rows, u64 row, u32 row_count, u64 width) {
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (u32 j = 0; j < EACH; j++) sums[j] = 0.0f;
    for (u64 from = 0; from < width; from += SIDE) {
        __syncthreads();
        load<PAIRS>(left, keys, key, key_count, from, width);
        load<PAIRS>(right, rows, row, row_count, from, width);
        __syncthreads();
        u32 count = (u32)least_of(SIDE, width - from);
        for (u32 c = 0; c < count; c += PAIRS ? 2 : 1) {
            if (PAIRS)
                for (u32 j = 0; j < EACH; j++)
                    sums[j] = step<PAIRS>(left[warp * EACH + j][c + 1], right[lane][c + 1], sums[j]);
            for (u32 j = 0; j < EACH; j++) sums[j] = step<PAIRS>(left[warp * EACH + j][c], right[lane][c], sums[j]);
        }
    }
}

// to[c][lane] goes on with the chain over `count` keys of weights[key][lane] and feature c of the key. Weights past
// `count` are 0; `readable` keys are there to be multiplied with them.
template <bool PAIRS>
__device__ __forceinline__ void add_over_keys(float* to, const Square& weights, Square& slab, const Matrix& keys, u64 key,
                                              u32 count, u32 readable, u64 width) {
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (u64 from = 0; from < width; from += SIDE) {
        __syncthreads();
        load<PAIRS>(slab, keys, key, readable, from, width);
        __syncthreads();
        float sums[EACH];
        for (u32 j = 0; j < EACH; j++) {
            u64 c = from + warp * EACH + j;
            sums[j] = c < width ? to[c * SIDE + lane] : 0.0f;
        }
        for (u32 i = 0; i < count; i += PAIRS ? 2 : 1) {
            if (PAIRS)
                for (u32 j = 0; j < EACH; j++)
                    sums[j] = step<PAIRS>(slab[i + 1][warp * EACH + j], weights[i + 1][lane], sums[j]);
            for (u32 j = 0; j < EACH; j++) sums[j] = step<PAIRS>(slab[i][warp * EACH + j], weights[i][lane], sums[j]);
        }
        for (u32 j = 0; j < EACH; j++) {
            u64 c = from + warp * EACH + j;
            if (c < width) to[c * SIDE + lane] = sums[j];
        }
    }
}

// to[key * stride + c] of the keys 4 w + j in `keys` (a bit each) goes on with the chain over `count` rows of
// weights[key][row] and feature c of the row.
template <bool PAIRS>
__device__ __forceinline__ void add_over_rows(float* to, u64 stride, const Square& weights, Square& slab,
                                              const Matrix& rows, u64 row, u32 count, u32 keys, u64 width) {
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (u64 from = 0; from < width; from += SIDE) {
        __syncthreads();
        load<PAIRS>(slab, rows, row, count, from, width);
        __syncthreads();
        if (from + lane >= width) continue;
        for (u32 j = 0; j < EACH; j++) {
            u32 key = warp * EACH + j;
            if (!(keys >> key & 1)) continue;
            float* at = to + key * stride + from + lane;
            float sum = *at;
            for (u32 r = 0; r < count; r += PAIRS ? 2 : 1) {
                if (PAIRS) sum = step<PAIRS>(weights[key][r + 1], slab[r + 1][lane], sum);
                sum = step<PAIRS>(weights[key][r], slab[r][lane], sum);
            }
            *at = sum;
        }
    }
}

// A score within the cap, if there is one, and its derivative by the score before.
__device__ __forceinline__ Activated capped(const Call& call, float score) {
    if (call.cap == 0.0f) return {score, 1.0f};
    Activated of = activated(TANH, score / call.cap);
    return {of.value * call.cap, of.derivative};
}

// The linear bias of a key in a row of a head.
__device__ __forceinline__ float linear_bias(const Call& call, u64 head, u64 row, u64 key) {
    return call.slopes[head] * (float)((i64)key - (i64)(call.position + row));
}

// The score of a product, -infinity for a hidden key.
__device__ __forceinline__ float score_of(const Call& call, const Head& of, const Tile& tile, u64 key, float product) {
    if (key < tile.lane_start || key >= tile.lane_end) return __uint_as_float(0xff800000u);
    if (!call.table && !call.slopes) return capped(call, product * call.scale).value;
    u32 lane = threadIdx.x % 32;
    u64 row = call.rows_are_heads ? 0 : tile.first + lane;
    u64 head = call.rows_are_heads ? of.head * call.t + tile.first + lane : of.head;
    if (call.slopes) return fmaf(product, call.scale, linear_bias(call, head, row, key));
    return fmaf(product, call.scale, call.table[head * call.buckets + call.numbers[row + call.total - 1 - key]]);
}

// Dropout's factor of a probability.
__device__ __forceinline__ float dropped(const Call& call, const Head& of, const Tile& tile, u64 key) {
    u32 lane = threadIdx.x % 32;
    if (!call.has_dropout || lane >= tile.count) return 1.0f;
    u32 at = (u32)(call.position + tile.first + lane);
    return dropout_factor_at(of.dropout, key, at, call.first_sequence + of.sequence);
}
