// What lanes hand to the runtime's matrix functions.
#pragma once

namespace millrace_sim {

struct MmaArguments {
    void* d;
    const unsigned *a, *b;
    const void* c;
};

struct MatrixArguments {
    unsigned* registers;     // of a load
    const unsigned* values;  // of a store
    void* row;
};

}  // namespace millrace_sim
