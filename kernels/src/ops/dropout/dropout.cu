// Dropout in place: a thread per counter of Philox, which has the words of four features of a row. 32 bytes of memory and
// ten rounds of Philox per thread: memory bounds it.
#include "philox.cuh"

// x: [rows, d]; column 0 is `feature`, row r at position + r % t of sequence + r / t.
extern "C" __global__ void dropout_apply(float* x, u64 rows, u64 d, u64 feature, u64 t, u32 position, u64 sequence,
                                         u32 key0, u32 key1, u32 threshold, float scale) {
    Dropout by = {key0, key1, threshold, scale};
    u64 start = feature / 64, counters = ((feature + d - 1) / 64 - start + 1) * 16;
    for (u64 i = first(); i < rows * counters; i += stride()) {
        u64 row = i / counters, counter = start * 16 + i % counters;
        Words words = dropout_words(by, (u32)counter, position + (u32)(row % t), sequence + row / t);
        for (u32 w = 0; w < 4; w++) {
            u64 at = counter / 16 * 64 + w * 16 + counter % 16;
            if (at < feature || at - feature >= d) continue;
            u64 to = row * d + at - feature;
            x[to] = x[to] * dropout_factor(by, words.of[w]);
        }
    }
}
