// cuTensorMapEncodeTiled: refuses what the driver refuses, by the limits in its documentation, with the driver's code;
// and with CUDA_ERROR_NOT_SUPPORTED what is not simulated: other ranks than two, interleaving, element strides, other
// swizzles than none and 128 bytes.

#include <cstring>

#include "driver.h"
#include "tensor_map.h"

using namespace millrace_sim;

namespace {

// By CUtensorMapDataType: u8, u16, u32, s32, u64, s64, f16, f32, f64, bf16, f32 flushed, tf32, tf32 flushed.
constexpr uint32_t element_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
constexpr int types = 13, first_float = 6;
constexpr uint32_t swizzles[] = {0, 32, 64, 128};

}  // namespace

MILLRACE_API cuTensorMapEncodeTiled(void* map, int type, uint32_t rank, void* address, const uint64_t* dims,
                                    const uint64_t* strides, const uint32_t* box, const uint32_t* element_strides,
                                    int interleave, int swizzle, int l2_promotion, int fill) {
    if (!map || reinterpret_cast<uintptr_t>(map) % 64 || !address || !dims || !box || !element_strides)
        return invalid_value;
    if (type < 0 || type >= types || rank < 1 || rank > 5 || (rank > 1 && !strides)) return invalid_value;
    if (interleave < 0 || interleave > 2 || (interleave && rank < 3)) return invalid_value;
    if (swizzle < 0 || swizzle > 3 || l2_promotion < 0 || l2_promotion > 3 || fill < 0 || fill > 1) return invalid_value;
    if (fill == 1 && type < first_float) return invalid_value;
    uint64_t granule = interleave == 2 ? 32 : 16;
    if (reinterpret_cast<uintptr_t>(address) % granule) return invalid_value;
    for (uint32_t i = 0; i < rank; i++) {
        if (dims[i] == 0 || dims[i] > 1ULL << 32 || box[i] == 0 || box[i] > 256) return invalid_value;
        if (element_strides[i] == 0 || element_strides[i] > 8) return invalid_value;
    }
    uint64_t width = element_bytes[type];
    uint64_t least = dims[0] * width;
    for (uint32_t i = 0; i + 1 < rank; i++) {
        if (strides[i] % granule || strides[i] >= 1ULL << 40 || strides[i] < least) return invalid_value;
        least = strides[i] * dims[i + 1];
    }
    uint64_t line = box[0] * width;
    if (!interleave && line % 16) return invalid_value;
    if (!interleave && swizzle && line > swizzles[swizzle]) return invalid_value;
    bool is_simulated = rank == 2 && !interleave && (swizzle == 0 || swizzle == 3) && fill == 0 &&
                        element_strides[0] == 1 && element_strides[1] == 1;
    if (!is_simulated) return not_supported;
    TensorMap made{};
    made.magic = tensor_map_magic;
    made.address = reinterpret_cast<uint64_t>(address);
    made.columns = dims[0];
    made.rows = dims[1];
    made.row_bytes = strides[0];
    made.box_columns = box[0];
    made.box_rows = box[1];
    made.element_bytes = static_cast<uint32_t>(width);
    made.swizzle_bytes = swizzles[swizzle];
    memcpy(map, &made, sizeof(made));
    return success;
}
