// Embedding lookup and its gradient. Forward: a thread per number, 8 bytes of memory each. Backward: tokens of one id are
// linked in order; then a thread per column of each id goes along them: 4 bytes per number of dy and 8 per number of such
// a row. Memory bounds all but the search for links, which is n^2 / 32 comparisons of a warp at most.
#include "millrace.cuh"

extern "C" __global__ void embedding_forward(float* y, const float* table, const u32* ids, u64 n, u64 rows, u64 d,
                                             u64 offset) {
    for (u64 i = first(); i < n * d; i += stride()) {
        u64 id = ids[i / d];
        y[i] = id >= offset && id - offset < rows ? table[(id - offset) * d + i % d] : 0.0f;
    }
}

#define NONE 0xffffffffu

// nexts[i]: the next token with the same id, or NONE; is_first[i]: whether none before has it. Ids that are not in the
// table have neither. A warp per token looks at 32 ids at a time, those of frequent tokens soon have an answer.
extern "C" __global__ void embedding_links(u32* nexts, u32* is_first, const u32* ids, u64 n, u64 rows, u64 offset) {
    u32 lane = threadIdx.x % 32;
    for (u64 token = first() / 32; token < n; token += stride() / 32) {
        u32 id = ids[token], next = NONE;
        bool is_here = id >= offset && id - offset < rows, has_earlier = !is_here;
        for (u64 from = token + 1; is_here && next == NONE && from < n; from += 32) {
            bool is_same = from + lane < n && ids[from + lane] == id;
            u32 found = __ballot_sync(0xffffffffu, is_same);
            if (found != 0) next = (u32)from + __ffs((int)found) - 1;
        }
        for (u64 end = token; !has_earlier && end > 0; end = end > 32 ? end - 32 : 0) {
            bool is_same = end > lane && ids[end - 1 - lane] == id;
            has_earlier = __ballot_sync(0xffffffffu, is_same) != 0;
        }
        if (lane == 0) nexts[token] = next, is_first[token] = !has_earlier;
    }
}

// dtable += the trees over tokens, each by the threads of the first token of its id.
extern "C" __global__ void embedding_backward(float* dtable, const float* dy, const u32* ids, const u32* nexts,
                                              const u32* is_first, u64 n, u64 d, u64 offset, u64 leaf) {
    for (u64 i = first(); i < n * d; i += stride()) {
        u64 c = i % d;
        u32 token = (u32)(i / d);
        if (!is_first[token]) continue;
        float* to = dtable + (ids[token] - offset) * d + c;
        SparseTree tree;
        while (token != NONE) {
            u64 number = token / leaf;
            float sum = 0.0f;
            for (; token != NONE && token / leaf == number; token = nexts[token]) sum = sum + dy[token * d + c];
            tree.push(number, sum);
        }
        *to = *to + tree.finish();
    }
}
