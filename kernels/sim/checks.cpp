// Handlers of the checks that the compiler puts into kernels (-fsanitize=alignment,bounds,...), under the names and
// with the arguments that GCC and Clang call them by.

#include <cstdint>
#include <cstdio>
#include <string>

#include "runner.h"

namespace {

struct Location {
    const char* file;
    uint32_t line, column;
};

struct Type {
    uint16_t kind, info;
    char name[1];
};

struct AlignmentData {
    Location at;
    const Type* type;
    unsigned char log_alignment, access;
};
struct BoundsData {
    Location at;
    const Type *array, *index;
};
struct OverflowData {
    Location at;
    const Type* type;
};
struct ConversionData {
    Location at;
    const Type *from, *to;
};
struct ShiftData {
    Location at;
    const Type *left, *right;
};

[[noreturn]] void fail(int code, const std::string& what, const Location& at) {
    // Temporary files of a compilation mean nothing to the reader.
    const char* file = at.file;
    for (const char* c = at.file; c && *c; c++)
        if (*c == '/') file = c + 1;
    millrace_sim_fail(code, what.c_str(), file, static_cast<int>(at.line));
}

}  // namespace

using namespace millrace_sim;

extern "C" {

void __ubsan_handle_type_mismatch_v1_abort(AlignmentData* data, uintptr_t pointer) {
    char text[200];
    snprintf(text, sizeof(text), "misaligned address: %#lx is no multiple of %d, as %s needs",
             static_cast<unsigned long>(pointer), 1 << data->log_alignment, data->type->name);
    fail(failure_misaligned, text, data->at);
}
void __ubsan_handle_out_of_bounds_abort(BoundsData* data, uintptr_t index) {
    fail(failure_illegal_address,
         "index " + std::to_string(static_cast<long>(index)) + " is outside " + data->array->name, data->at);
}
void __ubsan_handle_divrem_overflow_abort(OverflowData* data, uintptr_t, uintptr_t) {
    fail(failure_launch, "integer division by zero or overflow", data->at);
}
void __ubsan_handle_shift_out_of_bounds_abort(ShiftData* data, uintptr_t, uintptr_t count) {
    fail(failure_launch, "shift by " + std::to_string(static_cast<long>(count)) + " of " + data->left->name, data->at);
}
void __ubsan_handle_float_cast_overflow_abort(ConversionData* data, uintptr_t) {
    fail(failure_launch,
         std::string("conversion of a value outside the range of ") + data->to->name +
             " (use __float2int_rz and its like, which saturate)",
         data->at);
}
void __ubsan_handle_builtin_unreachable(OverflowData* data) { fail(failure_launch, "unreachable code", data->at); }
}
