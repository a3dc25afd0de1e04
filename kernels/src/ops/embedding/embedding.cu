// Embedding lookup and its gradient. Forward: a thread per number, 8 bytes of memory each. Backward: the rows of the table
// that tokens have asked for, a thread per column, tokens in order: 4 bytes per number of dy and 8 per number of such a
// row. Memory bounds both.
#include "millrace.cuh"

extern "C" __global__ void embedding_forward(float* y, const float* table, const u32* ids, u64 n, u64 rows, u64 d,
                                             u64 offset) {
    for (u64 i = first(); i < n * d; i += stride()) {
        u64 id = ids[i / d];
        y[i] = id >= offset && id - offset < rows ? table[(id - offset) * d + i % d] : 0.0f;
    }
}

// Group g is the tokens tokens[starts[g]] .. tokens[starts[g + 1] - 1], ascending, of row rows[g] of the table.
extern "C" __global__ void embedding_backward(float* dtable, const float* dy, const u32* rows, const u32* starts,
                                              const u32* tokens, u64 groups, u64 d, u64 leaf) {
    for (u64 i = first(); i < groups * d; i += stride()) {
        u64 group = i / d, c = i % d;
        SparseTree tree;
        u32 at = starts[group], end = starts[group + 1];
        while (at < end) {
            u64 number = tokens[at] / leaf;
            float sum = 0.0f;
            for (; at < end && tokens[at] / leaf == number; at++) sum = sum + dy[tokens[at] * d + c];
            tree.push(number, sum);
        }
        u64 to = rows[group] * d + c;
        dtable[to] = dtable[to] + tree.finish();
    }
}
