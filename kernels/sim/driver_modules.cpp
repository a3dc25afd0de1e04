// The driver API: modules, functions, launches and occupancy.

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "driver.h"
#include "image.h"

namespace millrace_sim {

namespace {

struct ModuleObject;

struct Function {
    ModuleObject* module;
    const Kernel* kernel;
    std::string name;
    unsigned max_threads;
    int dynamic_limit = shared_bytes_default;
};

struct ModuleObject {
    Context* context = nullptr;
    void* handle = nullptr;
    int file = -1;
    unsigned dynamic_alignment = 0;
    bool observed = false;
    SharedImage shared;
    std::map<std::string, std::unique_ptr<Function>> functions;
    std::vector<uint64_t> ranges;  // of variables that were asked for
};

// Never destroyed: threads may still run when the process exits.
std::set<ModuleObject*>& modules = *new std::set<ModuleObject*>();
std::set<const Function*>& functions = *new std::set<const Function*>();

void unload(ModuleObject* module) {
    for (auto& entry : module->functions) functions.erase(entry.second.get());
    for (uint64_t base : module->ranges) remove_module_range(base);
    if (module->handle) dlclose(module->handle);
    if (module->file >= 0) close(module->file);
    modules.erase(module);
    delete module;
}

// Kernel objects take the runtime's symbols from this library, which programs open with local visibility.
bool share_own_symbols() {
    static const bool shared = [] {
        Dl_info info;
        return dladdr(reinterpret_cast<void*>(&share_own_symbols), &info) &&
               dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL) != nullptr;
    }();
    return shared;
}

size_t thread_local_bytes(const char* object, size_t bytes) {
    const Elf64_Ehdr* elf = reinterpret_cast<const Elf64_Ehdr*>(object);
    if (bytes < sizeof(*elf) || elf->e_phoff + elf->e_phnum * sizeof(Elf64_Phdr) > bytes) return 0;
    const Elf64_Phdr* header = reinterpret_cast<const Elf64_Phdr*>(object + elf->e_phoff);
    for (int i = 0; i < elf->e_phnum; i++)
        if (header[i].p_type == PT_TLS) return header[i].p_memsz;
    return 0;
}

CUresult refuse_image(const std::string& why) {
    set_last_error("module: " + why);
    return invalid_image;
}

CUresult load(Context* context, const void* image, ModuleObject** out) {
    ImageHeader header;
    if (!image) return invalid_value;
    // The magic first: an image of another kind may be shorter than the header.
    if (strncmp(static_cast<const char*>(image), image_magic, sizeof(image_magic)))
        return refuse_image("the image was not made by the simulator's NVRTC");
    memcpy(&header, image, sizeof(header));
    if (header.header_hash != image_header_hash(header)) return refuse_image("the image's header is damaged");
    if (header.abi != abi_version || header.settings != simulator_settings())
        return refuse_image("the image was made by another simulator or under other MILLRACE_SIM_ settings");
    const char* object = static_cast<const char*>(image) + sizeof(header);
    if (header.object_hash != image_hash(object, header.bytes)) return refuse_image("the image is damaged");
    if (!share_own_symbols()) return refuse_image(dlerror());

    std::unique_ptr<ModuleObject> module(new ModuleObject());
    module->context = context;
    module->dynamic_alignment = header.dynamic_shared_alignment;
    module->file = memfd_create("millrace-sim-kernels", MFD_CLOEXEC);
    size_t written = 0;
    while (module->file >= 0 && written < header.bytes) {
        ssize_t n = write(module->file, object + written, header.bytes - written);
        if (n <= 0) break;
        written += static_cast<size_t>(n);
    }
    if (written < header.bytes) {
        if (module->file >= 0) close(module->file);
        return out_of_memory;
    }
    // The file stays open: the loader knows objects by name, and a number used again would mean the older object.
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", module->file);
    module->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const Module* table = nullptr;
    if (module->handle) table = static_cast<const Module*>(dlsym(module->handle, "millrace_sim_module"));
    if (!table) {
        std::string why = dlerror();
        if (module->handle) dlclose(module->handle);
        close(module->file);
        return refuse_image(why);
    }
    module->shared.bytes = thread_local_bytes(object, header.bytes);
    if (module->shared.bytes && dlinfo(module->handle, RTLD_DI_TLS_MODID, &module->shared.tls_module))
        module->shared.bytes = 0;
    module->observed = table->observed;
    for (unsigned i = 0; i < table->kernels; i++) {
        const Kernel& kernel = table->kernel[i];
        std::string name;
        Dl_info info;
        if (kernel.name)
            name = kernel.name;
        else if (dladdr(kernel.function, &info) && info.dli_sname)
            name = info.dli_sname;
        else
            continue;
        std::unique_ptr<Function> function(new Function());
        function->module = module.get();
        function->kernel = &kernel;
        function->name = name;
        function->max_threads = kernel.max_threads ? kernel.max_threads : 1024;
        functions.insert(function.get());
        module->functions[name] = std::move(function);
    }
    modules.insert(module.get());
    *out = module.release();
    return success;
}

// The parameters of one launch, copied when it is asked for.
struct Arguments {
    std::vector<char> bytes;
    std::vector<void*> pointers;
};

size_t parameter_offset(const Kernel& kernel, unsigned index) {
    size_t offset = 0;
    for (unsigned i = 0;; i++) {
        size_t align = kernel.parameter_alignments[i] ? kernel.parameter_alignments[i] : 1;
        offset = (offset + align - 1) / align * align;
        if (i == index) return offset;
        offset += kernel.parameter_sizes[i];
    }
}

// `extra` is the other way of passing parameters: one packed buffer.
CUresult copy_arguments(const Kernel& kernel, void** parameters, void** extra, Arguments* out) {
    const char* packed = nullptr;
    size_t packed_bytes = 0;
    for (void** at = extra; at && *at; at += 2) {
        if (reinterpret_cast<uintptr_t>(at[0]) == 1) packed = static_cast<const char*>(at[1]);
        if (reinterpret_cast<uintptr_t>(at[0]) == 2) packed_bytes = *static_cast<size_t*>(at[1]);
    }
    if (kernel.parameters && !parameters && !packed) return invalid_value;
    if (parameters && packed) return invalid_value;
    size_t total = kernel.parameters
                       ? parameter_offset(kernel, kernel.parameters - 1) + kernel.parameter_sizes[kernel.parameters - 1]
                       : 0;
    if (packed && packed_bytes < total) return invalid_value;
    out->bytes.resize(total + 64);
    char* base = out->bytes.data() + (-reinterpret_cast<uintptr_t>(out->bytes.data()) & 63);
    for (unsigned i = 0; i < kernel.parameters; i++) {
        size_t offset = parameter_offset(kernel, i);
        const void* source = packed ? packed + offset : parameters[i];
        if (!source) return invalid_value;
        memcpy(base + offset, source, kernel.parameter_sizes[i]);
        out->pointers.push_back(base + offset);
    }
    out->pointers.push_back(nullptr);
    return success;
}

struct Shape {
    uint3 grid, block;
    unsigned dynamic_bytes;
};

CUresult check_shape(const Function& function, const Shape& shape) {
    const uint3 &g = shape.grid, &b = shape.block;
    uint64_t threads = static_cast<uint64_t>(b.x) * b.y * b.z;
    std::string why;
    if (!g.x || !g.y || !g.z)
        why = "an empty grid";
    else if (g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535)
        why = "a grid beyond the limits";
    else if (!threads)
        why = "an empty block";
    else if (b.x > 1024 || b.y > 1024 || b.z > 64 || threads > 1024)
        why = "a block beyond 1024 threads";
    else if (threads > function.max_threads)
        why = "a block beyond the kernel's launch bounds";
    else if (shape.dynamic_bytes > static_cast<unsigned>(function.dynamic_limit))
        why = std::to_string(shape.dynamic_bytes) + " bytes of dynamic shared memory, " +
              std::to_string(function.dynamic_limit) + " allowed";
    if (why.empty()) return success;
    set_last_error("launch of kernel " + function.name + ": " + why);
    return invalid_value;
}

CUresult launch(const Function* function, const Shape& shape, CUstream handle, void** parameters, void** extra) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    if (!functions.count(function)) return invalid_handle;
    if (function->module->context != context) return invalid_handle;
    Stream* stream;
    MILLRACE_TRY(resolve_stream(context, handle, &stream));
    MILLRACE_TRY(check_shape(*function, shape));
    auto arguments = std::make_shared<Arguments>();
    MILLRACE_TRY(copy_arguments(*function->kernel, parameters, extra, arguments.get()));
    if (!stream->capture) MILLRACE_TRY(count_launch(hold, context));
    Launch plan;
    plan.kernel = function->kernel;
    plan.name = function->name;
    plan.grid = shape.grid;
    plan.block = shape.block;
    plan.dynamic_shared_bytes = shape.dynamic_bytes;
    plan.dynamic_shared_alignment = function->module->dynamic_alignment;
    plan.shared = function->module->shared;
    plan.observed = function->module->observed;
    plan.parameters = nullptr;
    plan.seed = 0;
    auto work = [plan, arguments, context](std::string* message) {
        Launch now = plan;
        now.parameters = arguments->pointers.data();
        // Only the thread that executes for this context counts, so the order is the order of execution.
        now.seed = simulator_seed() * 0x9e3779b97f4a7c15ULL +
                   static_cast<uint64_t>(context->device) * 0xbf58476d1ce4e5b9ULL +
                   ++context->launches * 0x94d049bb133111ebULL;
        LaunchResult result = run_launch(now);
        if (result.code == 0) {
            std::string text = check_red_zones(context->device, false);
            if (!text.empty()) result = LaunchResult{failure_illegal_address, "kernel " + now.name + ": " + text};
        }
        *message = result.message;
        return result.code;
    };
    MILLRACE_TRY(submit(hold, stream, function->name, work));
    return context->error;
}

}  // namespace

void destroy_modules_of(Context* context) {
    std::vector<ModuleObject*> all(modules.begin(), modules.end());
    for (ModuleObject* module : all)
        if (module->context == context) unload(module);
}

}  // namespace millrace_sim

using namespace millrace_sim;

MILLRACE_API cuModuleLoadData(ModuleObject** module, const void* image) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    return module ? load(context, image, module) : invalid_value;
}
MILLRACE_API cuModuleLoadDataEx(ModuleObject** module, const void* image, unsigned, int*, void**) {
    return cuModuleLoadData(module, image);
}
MILLRACE_API cuModuleLoadFatBinary(ModuleObject** module, const void* image) { return cuModuleLoadData(module, image); }

MILLRACE_API cuModuleLoad(ModuleObject** module, const char* path) {
    FILE* file = path ? fopen(path, "rb") : nullptr;
    if (!file) return 301;
    std::vector<char> bytes;
    char part[65536];
    for (size_t n; (n = fread(part, 1, sizeof(part), file)) > 0;) bytes.insert(bytes.end(), part, part + n);
    fclose(file);
    ImageHeader header{};
    if (bytes.size() >= sizeof(header)) memcpy(&header, bytes.data(), sizeof(header));
    if (bytes.size() < sizeof(header) || header.bytes > bytes.size() - sizeof(header)) return invalid_image;
    return cuModuleLoadData(module, bytes.data());
}

MILLRACE_API cuModuleUnload(ModuleObject* module) {
    Context* context;
    Hold hold(engine_lock);
    if (!modules.count(module)) return invalid_handle;
    CUresult code = current_context(&context);
    drain(hold, module->context);
    unload(module);
    return code;
}

MILLRACE_API cuModuleGetFunction(const Function** function, ModuleObject* module, const char* name) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    if (!function || !name || !modules.count(module)) return invalid_value;
    auto it = module->functions.find(name);
    if (it == module->functions.end()) return not_found;
    *function = it->second.get();
    return success;
}

MILLRACE_API cuModuleGetFunctionCount(unsigned* count, ModuleObject* module) {
    Hold hold(engine_lock);
    if (!count || !modules.count(module)) return invalid_value;
    *count = static_cast<unsigned>(module->functions.size());
    return success;
}

MILLRACE_API cuModuleGetGlobal_v2(CUdeviceptr* pointer, size_t* bytes, ModuleObject* module, const char* name) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    if (!name || !modules.count(module)) return invalid_value;
    void* at = dlsym(module->handle, name);
    Dl_info info;
    const Elf64_Sym* symbol = nullptr;
    if (!at || !dladdr1(at, &info, reinterpret_cast<void**>(const_cast<Elf64_Sym**>(&symbol)), RTLD_DL_SYMENT) ||
        !symbol || ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT)
        return not_found;
    uint64_t base = reinterpret_cast<uint64_t>(at);
    Allocation known;
    if (!find_allocation(base, &known)) {
        add_module_range(context, context->device, base, symbol->st_size);
        module->ranges.push_back(base);
    }
    if (pointer) *pointer = base;
    if (bytes) *bytes = symbol->st_size;
    return success;
}

MILLRACE_API cuModuleGetLoadingMode(int* mode) {
    *mode = 1;
    return success;
}

// Libraries are modules that belong to no context in particular; here they belong to the current one.
MILLRACE_API cuLibraryLoadData(ModuleObject** library, const void* image, int*, void**, unsigned, int*, void**,
                               unsigned) {
    return cuModuleLoadData(library, image);
}
MILLRACE_API cuLibraryUnload(ModuleObject* library) { return cuModuleUnload(library); }
MILLRACE_API cuLibraryGetKernel(const Function** kernel, ModuleObject* library, const char* name) {
    return cuModuleGetFunction(kernel, library, name);
}
MILLRACE_API cuLibraryGetModule(ModuleObject** module, ModuleObject* library) {
    *module = library;
    return success;
}
MILLRACE_API cuLibraryGetGlobal(CUdeviceptr* pointer, size_t* bytes, ModuleObject* library, const char* name) {
    return cuModuleGetGlobal_v2(pointer, bytes, library, name);
}
MILLRACE_API cuKernelGetFunction(const Function** function, const Function* kernel) {
    *function = kernel;
    return success;
}

MILLRACE_API cuFuncGetName(const char** name, const Function* function) {
    Hold hold(engine_lock);
    if (!functions.count(function)) return invalid_handle;
    *name = function->name.c_str();
    return success;
}
MILLRACE_API cuFuncGetModule(ModuleObject** module, const Function* function) {
    Hold hold(engine_lock);
    if (!functions.count(function)) return invalid_handle;
    *module = function->module;
    return success;
}
MILLRACE_API cuFuncGetParamInfo(const Function* function, size_t index, size_t* offset, size_t* bytes) {
    Hold hold(engine_lock);
    if (!functions.count(function)) return invalid_handle;
    if (index >= function->kernel->parameters) return invalid_value;
    *offset = parameter_offset(*function->kernel, static_cast<unsigned>(index));
    if (bytes) *bytes = function->kernel->parameter_sizes[index];
    return success;
}

// The compiler of a card would know registers; a middling number stands for them.
MILLRACE_API cuFuncGetAttribute(int* value, int attribute, const Function* function) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    if (!functions.count(function)) return invalid_handle;
    switch (attribute) {
        case 0:
            *value = static_cast<int>(function->max_threads);
            return success;
        case 1:
            *value = static_cast<int>(function->module->shared.bytes);
            return success;
        case 2:
        case 3:
            *value = 0;
            return success;
        case 4:
            *value = 32;
            return success;
        case 5:
        case 6:
            *value = 90;
            return success;
        case 7:
            *value = 0;
            return success;
        case 8:
            *value = function->dynamic_limit;
            return success;
        case 9:
            *value = -1;
            return success;
        default:
            if (attribute > 15) return invalid_value;
            *value = 0;
            return success;
    }
}

MILLRACE_API cuFuncSetAttribute(Function* function, int attribute, int value) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    if (!functions.count(function)) return invalid_handle;
    if (attribute == 8) {
        if (value < 0 || value > shared_bytes_optin) return invalid_value;
        function->dynamic_limit = value;
        return success;
    }
    return attribute == 9 && value >= -1 && value <= 100 ? success : invalid_value;
}
MILLRACE_API cuFuncSetCacheConfig(Function*, int) { return success; }

MILLRACE_API cuLaunchKernel(const Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                            unsigned bz, unsigned shared_bytes, CUstream stream, void** parameters, void** extra) {
    return launch(function, Shape{{gx, gy, gz}, {bx, by, bz}, shared_bytes}, stream, parameters, extra);
}

// CUlaunchConfig, laid out as in cuda.h.
struct LaunchConfig {
    unsigned gx, gy, gz, bx, by, bz, shared_bytes;
    CUstream stream;
    struct {
        int id;
        char padding[4];
        char value[64];
    }* attributes;
    unsigned attribute_count;
};

MILLRACE_API cuLaunchKernelEx(const LaunchConfig* config, const Function* function, void** parameters, void** extra) {
    if (!config) return invalid_value;
    for (unsigned i = 0; i < config->attribute_count; i++) {
        int id = config->attributes[i].id;
        unsigned size[3];
        memcpy(size, config->attributes[i].value, sizeof(size));
        // Clusters above one block and cooperative launches need blocks that run together.
        if (id == 4 && size[0] * size[1] * size[2] > 1) return not_supported;
        if (id == 2 && size[0]) return not_supported;
    }
    return cuLaunchKernel(function, config->gx, config->gy, config->gz, config->bx, config->by, config->bz,
                          config->shared_bytes, config->stream, parameters, extra);
}
MILLRACE_API cuLaunchCooperativeKernel(const Function*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                       unsigned, CUstream, void**) {
    return not_supported;
}

MILLRACE_API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const Function* function, int threads,
                                                                  size_t dynamic_bytes, unsigned) {
    Hold hold(engine_lock);
    if (!functions.count(function)) return invalid_handle;
    if (threads <= 0) return invalid_value;
    size_t shared = function->module->shared.bytes + dynamic_bytes + 1024;
    size_t by_shared = 233472 / shared, by_threads = 2048 / static_cast<size_t>((threads + 31) / 32 * 32);
    size_t fit = by_shared < by_threads ? by_shared : by_threads;
    if (threads > static_cast<int>(function->max_threads)) fit = 0;
    *blocks = static_cast<int>(fit < 32 ? fit : 32);
    return success;
}
MILLRACE_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const Function* function, int threads,
                                                         size_t dynamic_bytes) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, dynamic_bytes, 0);
}
MILLRACE_API cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, const Function* function,
                                                       size_t (*bytes_of)(int), size_t dynamic_bytes, int limit,
                                                       unsigned) {
    int threads;
    {
        Hold hold(engine_lock);
        if (!functions.count(function)) return invalid_handle;
        threads = static_cast<int>(function->max_threads);
    }
    if (limit > 0 && limit < threads) threads = limit;
    int blocks = 0;
    size_t bytes = bytes_of ? bytes_of(threads) : dynamic_bytes;
    MILLRACE_TRY(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, threads, bytes));
    *grid = blocks * multiprocessors;
    *block = threads;
    return success;
}
MILLRACE_API cuOccupancyMaxPotentialBlockSize(int* grid, int* block, const Function* function, size_t (*bytes_of)(int),
                                              size_t dynamic_bytes, int limit) {
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, function, bytes_of, dynamic_bytes, limit, 0);
}
MILLRACE_API cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const Function* function, int blocks, int) {
    Hold hold(engine_lock);
    if (!functions.count(function)) return invalid_handle;
    if (blocks <= 0) return invalid_value;
    size_t each = 233472 / static_cast<size_t>(blocks), taken = function->module->shared.bytes + 1024;
    size_t left = each > taken ? each - taken : 0;
    *bytes = left < shared_bytes_optin ? left : shared_bytes_optin;
    return success;
}
MILLRACE_API cuOccupancyMaxActiveClusters(int*, const Function*, const LaunchConfig*) { return not_supported; }
MILLRACE_API cuOccupancyMaxPotentialClusterSize(int*, const Function*, const LaunchConfig*) { return not_supported; }
