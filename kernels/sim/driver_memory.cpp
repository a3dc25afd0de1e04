// The driver API: memory, copies and fills.

#include <cstring>
#include <memory>
#include <vector>

#include "driver.h"

using namespace millrace_sim;

namespace {

// A block of bytes in rows; one row for plain copies.
struct Rows {
    char* at;
    size_t pitch;
    bool device;
};

CUresult check_device_range(Context* context, CUdeviceptr pointer, size_t bytes, bool peer) {
    Allocation a;
    if (bytes == 0) return success;
    if (!find_live(pointer, bytes, &a)) {
        set_last_error("copy or fill of " + std::to_string(bytes) +
                       " bytes: " + describe_address(reinterpret_cast<void*>(pointer)));
        return invalid_value;
    }
    if (a.owner != context && !peer) {
        set_last_error("copy or fill of memory of device " + std::to_string(a.device) + " from a context of device " +
                       std::to_string(context->device));
        return invalid_value;
    }
    return success;
}

// At the time of the copy: the memory may have been freed since, or not be allocated yet.
int check_at_work(CUdeviceptr pointer, size_t bytes, std::string* message) {
    Allocation a;
    if (find_allocation(pointer, &a) && a.mapping && !a.accessible) {
        *message = std::string("a copy or fill of ") + std::to_string(bytes) + " bytes meets memory that is " +
                   (a.live ? "not allocated yet" : "freed") + " in the order of its stream";
        return failure_illegal_address;
    }
    return 0;
}

struct Transfer {
    Rows to, from;
    size_t width, height;
    std::vector<char> staged;  // pageable sources are read at the call
    int operator()(std::string* message) const {
        if (to.device)
            if (int code = check_at_work(reinterpret_cast<CUdeviceptr>(to.at), width, message)) return code;
        if (from.device)
            if (int code = check_at_work(reinterpret_cast<CUdeviceptr>(from.at), width, message)) return code;
        for (size_t row = 0; row < height; row++) {
            const char* source = staged.empty() ? from.at + row * from.pitch : staged.data() + row * width;
            memmove(to.at + row * to.pitch, source, width);
        }
        return 0;
    }
};

enum class Wait { never, if_pageable, always };

CUresult transfer(Hold& hold, Context* context, CUstream handle, Transfer t, Wait wait, bool peer) {
    Stream* stream;
    MILLRACE_TRY(resolve_stream(context, handle, &stream));
    if (t.width == 0 || t.height == 0) return success;
    if (!t.to.at || !t.from.at) return invalid_value;
    auto span = [&t](const Rows& rows) { return rows.pitch * (t.height - 1) + t.width; };
    for (Rows* rows : {&t.to, &t.from}) {
        bool device = is_device_address(reinterpret_cast<uint64_t>(rows->at));
        if (rows->device)
            MILLRACE_TRY(check_device_range(context, reinterpret_cast<CUdeviceptr>(rows->at), span(*rows), peer));
        else if (device)
            return invalid_value;
    }
    bool pageable_source = !t.from.device && !is_pinned(t.from.at, span(t.from));
    bool pageable_target = !t.to.device && !is_pinned(t.to.at, span(t.to));
    if (wait == Wait::always) {
        MILLRACE_TRY(refuse_unsafe_call());
        MILLRACE_TRY(refuse_synchronising(stream));
    }
    if (pageable_source && !stream->capture) {
        t.staged.resize(t.width * t.height);
        for (size_t row = 0; row < t.height; row++)
            memcpy(t.staged.data() + row * t.width, t.from.at + row * t.from.pitch, t.width);
    }
    std::shared_ptr<Operation> operation;
    auto shared = std::make_shared<Transfer>(std::move(t));
    MILLRACE_TRY(submit(hold, stream, "copy", [shared](std::string* m) { return (*shared)(m); }, &operation));
    // A copy to pageable memory returns when it is done; one between pinned or device memory returns at once.
    if (operation && (wait == Wait::always || (wait == Wait::if_pageable && pageable_target)))
        wait_for(hold, context, operation);
    return context->error;
}

CUresult plain(CUdeviceptr to, bool to_device, CUdeviceptr from, bool from_device, size_t bytes, CUstream stream,
               Wait wait, bool peer = false) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    // Once peer access is enabled, device copies between the two are plain.
    if (to_device && from_device) {
        Allocation a, b;
        if (find_allocation(to, &a) && find_allocation(from, &b))
            for (const Context* other : context->peers) peer = peer || a.owner == other || b.owner == other;
    }
    Transfer t{{reinterpret_cast<char*>(to), bytes, to_device},
               {reinterpret_cast<char*>(from), bytes, from_device},
               bytes,
               1,
               {}};
    return transfer(hold, context, stream, std::move(t), wait, peer);
}

template <class T>
CUresult fill(CUdeviceptr to, size_t pitch, T value, size_t width, size_t height, CUstream handle) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    Stream* stream;
    MILLRACE_TRY(resolve_stream(context, handle, &stream));
    if (width == 0 || height == 0) return success;
    if (to % sizeof(T) || (height > 1 && pitch < width * sizeof(T))) return invalid_value;
    size_t bytes = pitch * (height - 1) + width * sizeof(T);
    MILLRACE_TRY(check_device_range(context, to, bytes, false));
    auto work = [=](std::string* message) {
        if (int code = check_at_work(to, bytes, message)) return code;
        for (size_t row = 0; row < height; row++) {
            T* at = reinterpret_cast<T*>(to + row * pitch);
            for (size_t i = 0; i < width; i++) at[i] = value;
        }
        return 0;
    };
    MILLRACE_TRY(submit(hold, stream, "fill", work));
    return context->error;
}

CUresult free_in_order(Hold& hold, Context* context, CUdeviceptr pointer, Stream* stream) {
    if (retire(context, pointer)) {
        set_last_error("free: " + describe_address(reinterpret_cast<void*>(pointer)) +
                       ", not the start of live memory");
        return invalid_value;
    }
    Allocation a;
    int device = find_allocation(pointer, &a) ? a.device : 0;
    return submit(hold, stream, "free", [pointer, device](std::string* message) {
        *message = check_red_zones(device, true);
        make_inaccessible(pointer);
        return message->empty() ? 0 : static_cast<int>(failure_illegal_address);
    });
}

}  // namespace

MILLRACE_API cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
    Context* context;
    MILLRACE_TRY(current_context(&context));
    memory_info(context->device, free_bytes, total_bytes);
    return success;
}

MILLRACE_API cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    MILLRACE_TRY(refuse_unsafe_call());
    if (!pointer) return invalid_value;
    MILLRACE_TRY(allocate(context->device, context, bytes, false, pointer));
    make_accessible(*pointer);
    return success;
}

// Frees after all work of the context. Memory of cuMemAllocAsync is freed at once: CUDA does not wait for it either.
MILLRACE_API cuMemFree_v2(CUdeviceptr pointer) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    if (pointer == 0) return success;
    MILLRACE_TRY(refuse_unsafe_call());
    Allocation a;
    if (!find_allocation(pointer, &a) || !a.stream_ordered) drain(hold, context);
    MILLRACE_TRY(context->error);
    if (retire(context, pointer)) {
        set_last_error("free: " + describe_address(reinterpret_cast<void*>(pointer)) +
                       ", not the start of live memory");
        return invalid_value;
    }
    make_inaccessible(pointer);
    return success;
}

MILLRACE_API cuMemAllocPitch_v2(CUdeviceptr* pointer, size_t* pitch, size_t width, size_t height, unsigned) {
    *pitch = (width + 511) / 512 * 512;
    return cuMemAlloc_v2(pointer, *pitch * height);
}

MILLRACE_API cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream handle) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    Stream* stream;
    MILLRACE_TRY(resolve_stream(context, handle, &stream));
    if (!pointer) return invalid_value;
    // The real driver would record a memory node; the project plans its memory and needs none.
    MILLRACE_TRY(refuse_synchronising(stream));
    MILLRACE_TRY(allocate(context->device, context, bytes, true, pointer));
    uint64_t base = *pointer;
    return submit(hold, stream, "allocate", [base](std::string*) {
        make_accessible(base);
        return 0;
    });
}
MILLRACE_API cuMemAllocFromPoolAsync(CUdeviceptr* pointer, size_t bytes, void* pool, CUstream stream) {
    return pool ? cuMemAllocAsync(pointer, bytes, stream) : invalid_value;
}

MILLRACE_API cuMemFreeAsync(CUdeviceptr pointer, CUstream handle) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    if (pointer == 0) return success;
    Stream* stream;
    MILLRACE_TRY(resolve_stream(context, handle, &stream));
    MILLRACE_TRY(refuse_synchronising(stream));
    return free_in_order(hold, context, pointer, stream);
}

// One pool a device, enough for hosts that ask for the default pool and set its threshold.
MILLRACE_API cuDeviceGetDefaultMemPool(void** pool, CUdevice device) {
    static char pools[max_devices];
    if (device < 0 || device >= settings().devices) return invalid_device;
    *pool = &pools[device];
    return success;
}
MILLRACE_API cuDeviceGetMemPool(void** pool, CUdevice device) { return cuDeviceGetDefaultMemPool(pool, device); }
MILLRACE_API cuDeviceSetMemPool(CUdevice, void*) { return success; }
MILLRACE_API cuMemPoolSetAttribute(void*, int, void*) { return success; }
MILLRACE_API cuMemPoolGetAttribute(void*, int, void* value) {
    memset(value, 0, 8);
    return success;
}
MILLRACE_API cuMemPoolTrimTo(void*, size_t) { return success; }
MILLRACE_API cuMemPoolCreate(void**, const void*) { return not_supported; }
MILLRACE_API cuMemPoolDestroy(void*) { return not_supported; }
MILLRACE_API cuMemAllocManaged(CUdeviceptr*, size_t, unsigned) { return not_supported; }

MILLRACE_API cuMemHostAlloc(void** pointer, size_t bytes, unsigned) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    MILLRACE_TRY(refuse_unsafe_call());
    return pointer ? allocate_host(bytes, pointer) : invalid_value;
}
MILLRACE_API cuMemAllocHost_v2(void** pointer, size_t bytes) { return cuMemHostAlloc(pointer, bytes, 0); }
MILLRACE_API cuMemFreeHost(void* pointer) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    if (!pointer) return success;
    MILLRACE_TRY(refuse_unsafe_call());
    drain(hold, context);
    return free_host(pointer);
}
MILLRACE_API cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned) {
    Context* context;
    MILLRACE_TRY(current_context(&context));
    return register_host(pointer, bytes);
}
MILLRACE_API cuMemHostUnregister(void* pointer) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    drain(hold, context);
    return unregister_host(pointer);
}
MILLRACE_API cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* pointer, unsigned) {
    if (!is_pinned(pointer, 1)) return invalid_value;
    *device = reinterpret_cast<CUdeviceptr>(pointer);
    return success;
}
MILLRACE_API cuMemHostGetFlags(unsigned* flags, void* pointer) {
    *flags = 0;
    return is_pinned(pointer, 1) ? success : invalid_value;
}

static CUdeviceptr address(const void* host) { return reinterpret_cast<CUdeviceptr>(host); }

MILLRACE_API cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
    return plain(to, true, address(from), false, bytes, nullptr, Wait::always);
}
MILLRACE_API cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
    return plain(address(to), false, from, true, bytes, nullptr, Wait::always);
}
MILLRACE_API cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return plain(to, true, from, true, bytes, nullptr, Wait::never);
}
MILLRACE_API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
    return plain(to, true, address(from), false, bytes, stream, Wait::if_pageable);
}
MILLRACE_API cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return plain(address(to), false, from, true, bytes, stream, Wait::if_pageable);
}
MILLRACE_API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return plain(to, true, from, true, bytes, stream, Wait::never);
}
MILLRACE_API cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return plain(to, is_device_address(to), from, is_device_address(from), bytes, stream, Wait::if_pageable);
}
MILLRACE_API cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return plain(to, is_device_address(to), from, is_device_address(from), bytes, nullptr, Wait::always);
}

MILLRACE_API cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                               size_t bytes, CUstream stream) {
    Allocation a, b;
    {
        Hold hold(engine_lock);
        if (!is_context(to_context) || !is_context(from_context)) return invalid_context;
    }
    if (bytes &&
        (!find_allocation(to, &a) || a.owner != to_context || !find_allocation(from, &b) || b.owner != from_context))
        return invalid_value;
    return plain(to, true, from, true, bytes, stream, Wait::never, true);
}
MILLRACE_API cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                          size_t bytes) {
    return cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, nullptr);
}

// CUDA_MEMCPY2D, laid out as in cuda.h.
struct Copy2D {
    size_t from_x, from_y;
    unsigned from_type;
    const void* from_host;
    CUdeviceptr from_device;
    void* from_array;
    size_t from_pitch;
    size_t to_x, to_y;
    unsigned to_type;
    void* to_host;
    CUdeviceptr to_device;
    void* to_array;
    size_t to_pitch;
    size_t width, height;
};

static CUresult copy_2d(const Copy2D* copy, CUstream stream, Wait wait) {
    constexpr unsigned host = 1, device = 2, unified = 4;
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    if (!copy) return invalid_value;
    auto rows = [](unsigned type, const void* at_host, CUdeviceptr at_device, size_t x, size_t y, size_t pitch,
                   size_t width, Rows* out) {
        uint64_t at = type == host ? address(at_host) : at_device;
        if (pitch == 0) pitch = width + x;
        *out = Rows{reinterpret_cast<char*>(at + y * pitch + x), pitch,
                    type == device || (type == unified && is_device_address(at))};
        return (type == host || type == device || type == unified) && pitch >= width + x;
    };
    Transfer t{{}, {}, copy->width, copy->height, {}};
    if (!rows(copy->from_type, copy->from_host, copy->from_device, copy->from_x, copy->from_y, copy->from_pitch,
              copy->width, &t.from) ||
        !rows(copy->to_type, copy->to_host, copy->to_device, copy->to_x, copy->to_y, copy->to_pitch, copy->width,
              &t.to))
        return invalid_value;
    return transfer(hold, context, stream, std::move(t), wait, false);
}
MILLRACE_API cuMemcpy2D_v2(const Copy2D* copy) { return copy_2d(copy, nullptr, Wait::always); }
MILLRACE_API cuMemcpy2DUnaligned_v2(const Copy2D* copy) { return copy_2d(copy, nullptr, Wait::always); }
MILLRACE_API cuMemcpy2DAsync_v2(const Copy2D* copy, CUstream stream) {
    return copy_2d(copy, stream, Wait::if_pageable);
}

#define MILLRACE_FILL(BITS, T)                                                                                \
    MILLRACE_API cuMemsetD##BITS##_v2(CUdeviceptr to, T value, size_t n) {                                    \
        return fill<T>(to, n * sizeof(T), value, n, 1, nullptr);                                              \
    }                                                                                                         \
    MILLRACE_API cuMemsetD##BITS##Async(CUdeviceptr to, T value, size_t n, CUstream stream) {                 \
        return fill<T>(to, n * sizeof(T), value, n, 1, stream);                                               \
    }                                                                                                         \
    MILLRACE_API cuMemsetD2D##BITS##_v2(CUdeviceptr to, size_t pitch, T value, size_t width, size_t height) { \
        return fill<T>(to, pitch, value, width, height, nullptr);                                             \
    }                                                                                                         \
    MILLRACE_API cuMemsetD2D##BITS##Async(CUdeviceptr to, size_t pitch, T value, size_t width, size_t height, \
                                          CUstream stream) {                                                  \
        return fill<T>(to, pitch, value, width, height, stream);                                              \
    }
MILLRACE_FILL(8, unsigned char)
MILLRACE_FILL(16, unsigned short)
MILLRACE_FILL(32, unsigned)

MILLRACE_API cuPointerGetAttribute(void* data, int attribute, CUdeviceptr pointer) {
    Allocation a;
    bool device = find_allocation(pointer, &a) && a.live;
    bool pinned = !device && is_pinned(reinterpret_cast<void*>(pointer), 1);
    if (!data || (!device && !pinned)) return invalid_value;
    switch (attribute) {
        case 1:
            if (!device) return invalid_value;
            *static_cast<const void**>(data) = a.owner;
            return success;
        case 2:
            *static_cast<unsigned*>(data) = device ? 2 : 1;
            return success;
        case 3:
            *static_cast<CUdeviceptr*>(data) = pointer;
            return success;
        case 4:
            if (device) return invalid_value;
            *static_cast<CUdeviceptr*>(data) = pointer;
            return success;
        case 8:
            *static_cast<unsigned*>(data) = 0;
            return success;
        case 9:
            *static_cast<int*>(data) = device ? a.device : 0;
            return success;
        case 11:
            *static_cast<CUdeviceptr*>(data) = device ? a.base : pointer;
            return success;
        case 12:
            *static_cast<size_t*>(data) = device ? a.bytes : 0;
            return success;
        case 13:
            *static_cast<unsigned*>(data) = 1;
            return success;
        default:
            return not_supported;
    }
}

MILLRACE_API cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr pointer) {
    Allocation a;
    if (!find_allocation(pointer, &a) || !a.live) return not_found;
    if (base) *base = a.base;
    if (bytes) *bytes = a.bytes;
    return success;
}

MILLRACE_API cuMemAdvise_v2(CUdeviceptr, size_t, int, uint64_t) { return success; }
MILLRACE_API cuMemPrefetchAsync_v2(CUdeviceptr, size_t, uint64_t, unsigned, CUstream) { return not_supported; }
