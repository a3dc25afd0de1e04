// Rows of several experts, one expert after the other, as tiles of blocks. How many rows an expert has is known on the
// device alone, so a launch has blocks for any split of the rows.
#pragma once
#include "millrace.cuh"

// offsets: [experts + 1], the first row of each expert and the end of the last. `rows` may be more: the rest is padding,
// the group of number `experts`.
struct Groups {
    const u32* offsets;
    u64 experts, rows;
};

// A block's tile: rows from `row` on of the rows from `first` to below `end` of an expert. No rows are left from `row` on
// where a block has nothing to do.
struct Group {
    u64 expert, first, end, row;
};

// The first slot of an expert's tiles: no two experts share a slot, as ceil(n / t) tiles that start at row r end at or
// before slot (r + n) / t + 1.
__device__ __forceinline__ u64 first_slot(const Groups& groups, u64 expert, u32 tile) {
    return groups.offsets[expert] / tile + expert;
}

// The tile of slot `slot`, of rows / tile + experts + 1.
__device__ __forceinline__ Group group_of(const Groups& groups, u64 slot, u32 tile) {
    u64 low = 0, high = groups.experts;
    while (low < high) {
        u64 middle = (low + high + 1) / 2;
        if (first_slot(groups, middle, tile) <= slot) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    u64 first = groups.offsets[low], end = low < groups.experts ? groups.offsets[low + 1] : groups.rows;
    return {low, first, end, first + (slot - first_slot(groups, low, tile)) * tile};
}
