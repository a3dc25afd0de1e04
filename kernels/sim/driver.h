// The parts of CUDA's driver API that the entry points share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "fibers.h"
#include "memory.h"
#include "streams.h"

// The API's own names for its types; handles are plain pointers to the simulator's objects.
using CUresult = int;
using CUdevice = int;
using CUdeviceptr = uint64_t;
using CUcontext = millrace_sim::Context*;
using CUstream = millrace_sim::Stream*;
using CUevent = millrace_sim::Event*;

enum : int {
    success = 0,
    invalid_value = 1,
    out_of_memory = 2,
    not_initialized = 3,
    device_unavailable = 46,
    no_device = 100,
    invalid_device = 101,
    invalid_image = 200,
    invalid_context = 201,
    not_found = 500,
    invalid_handle = 400,
    not_ready = 600,
    peer_access_enabled = 704,
    peer_access_not_enabled = 705,
    context_destroyed = 709,
    launch_failed = 719,
    not_permitted = 800,
    not_supported = 801,
    captured_event = 907,
};

#define MILLRACE_API extern "C" __attribute__((visibility("default"))) CUresult

namespace millrace_sim {

constexpr int shared_bytes_default = 48 << 10;
constexpr int shared_bytes_optin = 227 << 10;
constexpr int multiprocessors = 132;

struct Settings {
    int devices = 1;
    int physical[max_devices] = {};  // numbers of the visible devices
    int driver_version = 13000;
    int lose_device = -1;
    uint64_t lose_at = 0;  // the number of the launch, from 1
    bool initialized = false;
};
Settings& settings();

// The current context of the calling thread, or a reason why there is none that works.
CUresult current_context(Context** context);
// The stream that a handle means: null and 1 are the legacy default stream, 2 is the thread's own.
CUresult resolve_stream(Context* context, CUstream handle, Stream** stream);
bool is_event(const Event* event);
bool is_context(const Context* context);
void destroy_modules_of(Context* context);
bool device_lost(int device);
CUresult count_launch(Hold& hold, Context* context);

// Ends the calling function where a step fails.
#define MILLRACE_TRY(step)                         \
    do {                                           \
        if (CUresult code_ = (step)) return code_; \
    } while (0)

}  // namespace millrace_sim
