// The driver API: initialization, devices, contexts, errors, and finding functions by name.

#include "driver.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

namespace millrace_sim {

namespace {

// Never destroyed: threads may still run when the process exits.
std::set<Context*>& contexts = *new std::set<Context*>();
Context* primary[max_devices];
std::set<Event*>& live_events = *new std::set<Event*>();
std::set<Stream*>& live_streams = *new std::set<Stream*>();
std::set<int>& lost = *new std::set<int>();

std::vector<Context*>& context_stack() {
    static thread_local std::vector<Context*>* stack = new std::vector<Context*>();
    return *stack;
}

int environment(const char* name, int otherwise) {
    const char* text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

// CUDA_VISIBLE_DEVICES names devices by number; the list ends at the first that is not there.
void choose_visible(Settings& s) {
    for (int i = 0; i < s.devices; i++) s.physical[i] = i;
    const char* list = getenv("CUDA_VISIBLE_DEVICES");
    if (!list) return;
    int all = s.devices;
    s.devices = 0;
    while (s.devices < all) {
        char* end;
        long number = strtol(list, &end, 10);
        if (end == list || number < 0 || number >= all) break;
        s.physical[s.devices++] = static_cast<int>(number);
        if (*end != ',') break;
        list = end + 1;
    }
}

Context* make_context(int device, bool is_primary) {
    Context* context = new Context();
    context->device = device;
    context->primary = is_primary;
    context->alive = true;
    context->null_stream.context = context;
    context->null_stream.blocking = true;
    context->random = Random(simulator_seed() * 1000003 + static_cast<uint64_t>(device));
    contexts.insert(context);
    return context;
}

// Work that is still queued is done first, as a card would have done it.
void end_context(Hold& hold, Context* context) {
    drain(hold, context);
    destroy_modules_of(context);
    std::vector<Stream*> streams(context->streams.begin(), context->streams.end());
    for (Stream* stream : streams) {
        if (stream->capture) drop_capture(stream->capture);
        live_streams.erase(stream);
        delete stream;
    }
    context->streams.clear();
    for (Event* event : context->events) {
        live_events.erase(event);
        delete event;
    }
    context->events.clear();
    free_all_of(context);
    context->alive = false;
}

int attribute_of_h100(int attribute, int device, bool* known) {
    // CU_DEVICE_ATTRIBUTE_*; those that are not listed are 0: features that the simulator has not.
    static const std::map<int, int> values = {
        {1, 1024},                 // MAX_THREADS_PER_BLOCK
        {2, 1024},                 // MAX_BLOCK_DIM_X
        {3, 1024},                 // MAX_BLOCK_DIM_Y
        {4, 64},                   // MAX_BLOCK_DIM_Z
        {5, 0x7fffffff},           // MAX_GRID_DIM_X
        {6, 65535},                // MAX_GRID_DIM_Y
        {7, 65535},                // MAX_GRID_DIM_Z
        {8, 49152},                // MAX_SHARED_MEMORY_PER_BLOCK
        {9, 65536},                // TOTAL_CONSTANT_MEMORY
        {10, 32},                  // WARP_SIZE
        {11, 0x7fffffff},          // MAX_PITCH
        {12, 65536},               // MAX_REGISTERS_PER_BLOCK
        {13, 1980000},             // CLOCK_RATE, kHz
        {14, 512},                 // TEXTURE_ALIGNMENT
        {15, 1},                   // GPU_OVERLAP
        {16, multiprocessors},     // MULTIPROCESSOR_COUNT
        {19, 1},                   // CAN_MAP_HOST_MEMORY
        {30, 512},                 // SURFACE_ALIGNMENT
        {31, 1},                   // CONCURRENT_KERNELS
        {32, 1},                   // ECC_ENABLED
        {36, 2619000},             // MEMORY_CLOCK_RATE, kHz
        {37, 5120},                // GLOBAL_MEMORY_BUS_WIDTH, bits
        {38, 50 << 20},            // L2_CACHE_SIZE
        {39, 2048},                // MAX_THREADS_PER_MULTIPROCESSOR
        {40, 3},                   // ASYNC_ENGINE_COUNT
        {41, 1},                   // UNIFIED_ADDRESSING
        {51, 32},                  // TEXTURE_PITCH_ALIGNMENT
        {75, 9},                   // COMPUTE_CAPABILITY_MAJOR
        {78, 1},                   // STREAM_PRIORITIES_SUPPORTED
        {79, 1},                   // GLOBAL_L1_CACHE_SUPPORTED
        {80, 1},                   // LOCAL_L1_CACHE_SUPPORTED
        {81, 233472},              // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
        {82, 65536},               // MAX_REGISTERS_PER_MULTIPROCESSOR
        {87, 2},                   // SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO
        {90, 1},                   // COMPUTE_PREEMPTION_SUPPORTED
        {91, 1},                   // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        {97, shared_bytes_optin},  // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        {99, 1},                   // HOST_REGISTER_SUPPORTED
        {106, 32},                 // MAX_BLOCKS_PER_MULTIPROCESSOR
        {108, 32 << 20},           // MAX_PERSISTING_L2_CACHE_SIZE
        {109, 128 << 20},          // MAX_ACCESS_POLICY_WINDOW_SIZE
        {111, 1024},               // RESERVED_SHARED_MEMORY_PER_BLOCK
        {115, 1},                  // MEMORY_POOLS_SUPPORTED
        {126, 4},                  // MEM_SYNC_DOMAIN_COUNT
        {129, 1},                  // UNIFIED_FUNCTION_POINTERS
        {134, -1},                 // HOST_NUMA_ID
    };
    *known = true;
    if (attribute == 33) return 0x10 + settings().physical[device];
    if (attribute == 34 || attribute == 50) return 0;
    auto it = values.find(attribute);
    if (it != values.end()) return it->second;
    *known = attribute > 0 && attribute < 149;
    return 0;
}

}  // namespace

Settings& settings() {
    static Settings s;
    return s;
}

bool is_event(const Event* event) { return live_events.count(const_cast<Event*>(event)); }
bool is_context(const Context* context) { return contexts.count(const_cast<Context*>(context)); }
bool device_lost(int device) { return lost.count(device); }

CUresult current_context(Context** context) {
    if (!settings().initialized) return not_initialized;
    auto& stack = context_stack();
    if (stack.empty() || !stack.back()) return invalid_context;
    *context = stack.back();
    if (!(*context)->alive) return context_destroyed;
    return (*context)->error;
}

CUresult resolve_stream(Context* context, CUstream handle, Stream** stream) {
    uintptr_t number = reinterpret_cast<uintptr_t>(handle);
    if (number <= 1) {
        *stream = &context->null_stream;
        return success;
    }
    if (number == 2) {
        static thread_local std::map<Context*, Stream*>* own = new std::map<Context*, Stream*>();
        Stream*& mine = (*own)[context];
        if (!mine || !live_streams.count(mine)) {
            mine = new Stream();
            mine->context = context;
            mine->blocking = true;
            context->streams.insert(mine);
            live_streams.insert(mine);
        }
        *stream = mine;
        return success;
    }
    if (!live_streams.count(handle) || handle->context != context) return invalid_handle;
    *stream = handle;
    return success;
}

void reseed_contexts() {
    for (Context* context : contexts) {
        context->random = Random(simulator_seed() * 1000003 + static_cast<uint64_t>(context->device));
        context->launches = 0;
    }
}

void register_stream(Stream* stream) { live_streams.insert(stream); }
void forget_stream(Stream* stream) { live_streams.erase(stream); }
void register_event(Event* event) { live_events.insert(event); }
void forget_event(Event* event) { live_events.erase(event); }

// Counts a launch and loses the device where the test asks for it.
CUresult count_launch(Hold& hold, Context* context) {
    context->launch_calls++;
    Settings& s = settings();
    static uint64_t launches_on_loser = 0;
    if (context->device != s.lose_device) return success;
    if (++launches_on_loser < s.lose_at) return success;
    lost.insert(context->device);
    std::vector<Context*> all(contexts.begin(), contexts.end());
    for (Context* other : all)
        if (other->device == context->device && other->alive)
            fail_context(hold, other, launch_failed,
                         "device " + std::to_string(context->device) + " was lost (MILLRACE_SIM_LOSE)");
    return launch_failed;
}

}  // namespace millrace_sim

using namespace millrace_sim;

MILLRACE_API cuInit(unsigned flags) {
    if (flags) return invalid_value;
    Hold hold(engine_lock);
    Settings& s = settings();
    if (s.initialized) return success;
    s.devices = environment("MILLRACE_SIM_DEVICES", 1);
    s.driver_version = environment("MILLRACE_SIM_DRIVER_VERSION", 13000);
    if (const char* lose = getenv("MILLRACE_SIM_LOSE")) {
        unsigned long long at = 0;
        if (sscanf(lose, "%d:%llu", &s.lose_device, &at) != 2) s.lose_device = -1;
        s.lose_at = at;
    }
    if (s.devices > max_devices) s.devices = max_devices;
    choose_visible(s);
    if (s.devices <= 0) return no_device;
    install_fault_handlers();
    s.initialized = true;
    return success;
}

MILLRACE_API cuDriverGetVersion(int* version) {
    if (!version) return invalid_value;
    *version = environment("MILLRACE_SIM_DRIVER_VERSION", 13000);
    return success;
}

#define MILLRACE_DEVICE(device)                                                    \
    do {                                                                           \
        if (!settings().initialized) return not_initialized;                       \
        if ((device) < 0 || (device) >= settings().devices) return invalid_device; \
    } while (0)

MILLRACE_API cuDeviceGetCount(int* count) {
    if (!settings().initialized) return not_initialized;
    if (!count) return invalid_value;
    *count = settings().devices;
    return success;
}

MILLRACE_API cuDeviceGet(CUdevice* device, int ordinal) {
    MILLRACE_DEVICE(ordinal);
    if (!device) return invalid_value;
    *device = ordinal;
    return success;
}

MILLRACE_API cuDeviceGetName(char* name, int length, CUdevice device) {
    MILLRACE_DEVICE(device);
    if (!name || length <= 0) return invalid_value;
    snprintf(name, static_cast<size_t>(length), "millrace simulator");
    return success;
}

MILLRACE_API cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
    MILLRACE_DEVICE(device);
    if (!value) return invalid_value;
    bool known;
    *value = attribute_of_h100(attribute, device, &known);
    return known ? success : invalid_value;
}

MILLRACE_API cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
    MILLRACE_DEVICE(device);
    if (!bytes) return invalid_value;
    size_t free_bytes;
    memory_info(device, &free_bytes, bytes);
    return success;
}

MILLRACE_API cuDeviceGetUuid_v2(unsigned char* uuid, CUdevice device) {
    MILLRACE_DEVICE(device);
    if (!uuid) return invalid_value;
    memcpy(uuid, "millrace-sim-dev", 16);
    uuid[15] = static_cast<unsigned char>(settings().physical[device]);
    return success;
}
MILLRACE_API cuDeviceGetUuid(unsigned char* uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }

MILLRACE_API cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
    MILLRACE_DEVICE(device);
    if (!text || length < 13) return invalid_value;
    snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", 0x10 + settings().physical[device]);
    return success;
}

MILLRACE_API cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
    if (!settings().initialized) return not_initialized;
    unsigned bus = 0;
    if (!device || !text || sscanf(text, "0000:%x:00.0", &bus) != 1) return invalid_value;
    for (int i = 0; i < settings().devices; i++) {
        if (settings().physical[i] + 0x10 != static_cast<int>(bus)) continue;
        *device = i;
        return success;
    }
    return invalid_device;
}

MILLRACE_API cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
    MILLRACE_DEVICE(device);
    *major = 9, *minor = 0;
    return success;
}

MILLRACE_API cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
    MILLRACE_DEVICE(device);
    MILLRACE_DEVICE(peer);
    *can = device != peer;
    return success;
}

MILLRACE_API cuDeviceGetP2PAttribute(int* value, int attribute, CUdevice device, CUdevice peer) {
    MILLRACE_DEVICE(device);
    MILLRACE_DEVICE(peer);
    if (device == peer) return invalid_device;
    *value = attribute == 2 || attribute == 3 ? 1 : 0;
    return success;
}

MILLRACE_API cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    MILLRACE_DEVICE(device);
    if (!context) return invalid_value;
    Hold hold(engine_lock);
    if (device_lost(device)) return device_unavailable;
    if (!primary[device]) primary[device] = make_context(device, true);
    Context* mine = primary[device];
    if (!mine->alive) {
        mine->alive = true;
        mine->error = 0;
    }
    mine->references++;
    *context = mine;
    return success;
}

MILLRACE_API cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    MILLRACE_DEVICE(device);
    Hold hold(engine_lock);
    Context* mine = primary[device];
    if (!mine || mine->references == 0) return invalid_context;
    if (--mine->references == 0) end_context(hold, mine);
    return success;
}

MILLRACE_API cuDevicePrimaryCtxReset_v2(CUdevice device) {
    MILLRACE_DEVICE(device);
    Hold hold(engine_lock);
    if (primary[device] && primary[device]->alive) end_context(hold, primary[device]);
    return success;
}

MILLRACE_API cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
    MILLRACE_DEVICE(device);
    Hold hold(engine_lock);
    *flags = primary[device] ? primary[device]->flags : 0;
    *active = primary[device] && primary[device]->alive;
    return success;
}

MILLRACE_API cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned) {
    MILLRACE_DEVICE(device);
    return success;
}

MILLRACE_API cuCtxCreate_v4(CUcontext* context, void* parameters, unsigned flags, CUdevice device) {
    MILLRACE_DEVICE(device);
    if (!context || parameters) return invalid_value;
    Hold hold(engine_lock);
    if (device_lost(device)) return device_unavailable;
    *context = make_context(device, false);
    (*context)->flags = flags;
    context_stack().push_back(*context);
    return success;
}
MILLRACE_API cuCtxCreate_v3(CUcontext* context, void*, int, unsigned flags, CUdevice device) {
    return cuCtxCreate_v4(context, nullptr, flags, device);
}
MILLRACE_API cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
    return cuCtxCreate_v4(context, nullptr, flags, device);
}

MILLRACE_API cuCtxDestroy_v2(CUcontext context) {
    Hold hold(engine_lock);
    if (!is_context(context) || !context->alive || context->primary) return invalid_context;
    end_context(hold, context);
    auto& stack = context_stack();
    if (!stack.empty() && stack.back() == context) stack.pop_back();
    return success;
}

MILLRACE_API cuCtxSetCurrent(CUcontext context) {
    if (!settings().initialized) return not_initialized;
    auto& stack = context_stack();
    if (!context) {
        if (!stack.empty()) stack.pop_back();
        return success;
    }
    Hold hold(engine_lock);
    if (!is_context(context) || !context->alive) return invalid_context;
    if (stack.empty()) stack.push_back(context);
    stack.back() = context;
    return success;
}

MILLRACE_API cuCtxGetCurrent(CUcontext* context) {
    if (!settings().initialized) return not_initialized;
    if (!context) return invalid_value;
    auto& stack = context_stack();
    *context = stack.empty() ? nullptr : stack.back();
    return success;
}

MILLRACE_API cuCtxPushCurrent_v2(CUcontext context) {
    Hold hold(engine_lock);
    if (!is_context(context) || !context->alive) return invalid_context;
    context_stack().push_back(context);
    return success;
}

MILLRACE_API cuCtxPopCurrent_v2(CUcontext* context) {
    auto& stack = context_stack();
    if (stack.empty()) return invalid_context;
    if (context) *context = stack.back();
    stack.pop_back();
    return success;
}

MILLRACE_API cuCtxGetDevice(CUdevice* device) {
    Context* context;
    MILLRACE_TRY(current_context(&context));
    *device = context->device;
    return success;
}

MILLRACE_API cuCtxSynchronize() {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    MILLRACE_TRY(refuse_unsafe_call());
    for (Stream* stream : context->streams) MILLRACE_TRY(refuse_synchronising(stream));
    drain(hold, context);
    return context->error;
}

MILLRACE_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    Context* context;
    MILLRACE_TRY(current_context(&context));
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return success;
}

MILLRACE_API cuCtxGetFlags(unsigned* flags) {
    Context* context;
    MILLRACE_TRY(current_context(&context));
    *flags = context->flags;
    return success;
}
MILLRACE_API cuCtxSetFlags(unsigned flags) {
    Context* context;
    MILLRACE_TRY(current_context(&context));
    context->flags = flags;
    return success;
}
MILLRACE_API cuCtxGetId(CUcontext context, unsigned long long* id) {
    *id = reinterpret_cast<unsigned long long>(context);
    return success;
}
MILLRACE_API cuCtxGetApiVersion(CUcontext, unsigned* version) {
    *version = 13000;
    return success;
}
MILLRACE_API cuCtxGetLimit(size_t* value, int limit) {
    static const size_t values[] = {1024, 1 << 20, 8 << 20, 2, 2048, 128, 0};
    if (limit < 0 || limit > 6) return 215;
    *value = values[limit];
    return success;
}
MILLRACE_API cuCtxSetLimit(int limit, size_t) { return limit < 0 || limit > 6 ? 215 : success; }
MILLRACE_API cuCtxGetCacheConfig(int* config) {
    *config = 0;
    return success;
}
MILLRACE_API cuCtxSetCacheConfig(int) { return success; }
MILLRACE_API cuProfilerStart() { return success; }
MILLRACE_API cuProfilerStop() { return success; }

MILLRACE_API cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    if (flags) return invalid_value;
    if (!is_context(peer) || !peer->alive || peer->device == context->device) return invalid_context;
    return context->peers.insert(peer).second ? success : peer_access_enabled;
}
MILLRACE_API cuCtxDisablePeerAccess(CUcontext peer) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    return context->peers.erase(peer) ? success : peer_access_not_enabled;
}

namespace {

struct ErrorText {
    int code;
    const char *name, *text;
};
const ErrorText error_texts[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {215, "CUDA_ERROR_UNSUPPORTED_LIMIT", "limit is not supported on this architecture"},
    {301, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {710, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "operation would result in a merge of separate capture sequences"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {907, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const ErrorText* error_text(int code) {
    for (const ErrorText& entry : error_texts)
        if (entry.code == code) return &entry;
    return nullptr;
}

}  // namespace

MILLRACE_API cuGetErrorName(CUresult code, const char** name) {
    const ErrorText* entry = error_text(code);
    *name = entry ? entry->name : nullptr;
    return entry ? success : invalid_value;
}
MILLRACE_API cuGetErrorString(CUresult code, const char** text) {
    const ErrorText* entry = error_text(code);
    *text = entry ? entry->text : nullptr;
    return entry ? success : invalid_value;
}

// The newest version of a function, as the driver of that version would give.
MILLRACE_API cuGetProcAddress_v2(const char* symbol, void** function, int, uint64_t, int* status) {
    if (!symbol || !function) return invalid_value;
    static void* self = [] {
        Dl_info info;
        if (!dladdr(reinterpret_cast<void*>(&cuInit), &info)) return static_cast<void*>(nullptr);
        return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    }();
    *function = nullptr;
    for (const char* suffix : {"_v4", "_v3", "_v2", ""})
        if (!*function) *function = dlsym(self, (std::string(symbol) + suffix).c_str());
    if (status) *status = *function ? 0 : 1;
    return *function ? success : not_found;
}
MILLRACE_API cuGetProcAddress(const char* symbol, void** function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}
