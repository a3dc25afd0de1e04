// What cuTensorMapEncodeTiled writes into the 128 opaque bytes, and bulk copies read.
#pragma once

#include <cstdint>

namespace millrace_sim {

struct TensorMap {
    uint64_t magic;
    uint64_t address;
    uint64_t columns, rows;  // in elements
    uint64_t row_bytes;      // from a row to the next
    uint32_t box_columns, box_rows;
    uint32_t element_bytes;
    uint32_t swizzle_bytes;  // 128, or 0
    uint64_t rest[9];
};
static_assert(sizeof(TensorMap) == 128, "as CUtensorMap");
constexpr uint64_t tensor_map_magic = 0x70616d726f736e74;

}  // namespace millrace_sim
