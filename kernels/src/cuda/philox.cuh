// Philox4x32-10, as kernels/src/rng.rs, and dropout's use of it (ops/dropout/mod.rs).
#pragma once
#include "millrace.cuh"

struct Words {
    u32 of[4];
};

__device__ __forceinline__ Words philox(u32 key0, u32 key1, u32 a, u32 b, u32 c, u32 d) {
    for (int round = 0; round < 10; round++) {
        u64 x = 0xD2511F53ull * a, y = 0xCD9E8D57ull * c;
        a = (u32)(y >> 32) ^ b ^ key0;
        b = (u32)y;
        c = (u32)(x >> 32) ^ d ^ key1;
        d = (u32)x;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return {{a, b, c, d}};
}

// A dropout's key, and what becomes of an element by its word.
struct Dropout {
    u32 key0, key1, threshold;
    float scale;
};

// The words of features 64 (counter / 16) + counter % 16 and the 16, 32 and 48 after it.
__device__ __forceinline__ Words dropout_words(const Dropout& by, u32 counter, u32 position, u64 sequence) {
    return philox(by.key0, by.key1, counter, position, (u32)sequence, (u32)(sequence >> 32));
}

__device__ __forceinline__ float dropout_factor(const Dropout& by, u32 word) {
    return word >= by.threshold ? by.scale : 0.0f;
}

// The factor of one feature.
__device__ __forceinline__ float dropout_factor_at(const Dropout& by, u64 feature, u32 position, u64 sequence) {
    u32 counter = (u32)(feature / 64 * 16 + feature % 16);
    return dropout_factor(by, dropout_words(by, counter, position, sequence).of[feature % 64 / 16]);
}
