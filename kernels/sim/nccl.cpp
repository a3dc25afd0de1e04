// The stand-in libnccl.so.2: the entry points that programs here call. Work runs when its stream reaches it, as a host
// function of the driver, and reads and writes device memory directly.
//
// Refused as by NCCL: two ranks on one device, calls on a communicator that is not ready, in error or gone, unmatched
// group calls, memory or streams of another device. Refused although NCCL takes it: groups over several communicators,
// more than one collective in a group, sums of other numbers than f32.

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "nccl.h"

using namespace millrace_sim;

#define NCCL_API extern "C" __attribute__((visibility("default")))

extern "C" {
int cuCtxGetCurrent(void**);
int cuCtxGetDevice(int*);
int cuDeviceGetPCIBusId(char*, int, int);
int cuPointerGetAttribute(void*, int, uint64_t);
int cuStreamGetCtx(void*, void**);
int cuLaunchHostFunc(void*, void (*)(void*), void*);
}

struct ncclUniqueId {
    char internal[128];
};

// ncclConfig_t as of 2.18; later versions append to it.
struct ncclConfig {
    size_t size;
    unsigned magic;
    unsigned version;
    int blocking;
    int rest[3];
    const char* net;
    int split_share;
};

namespace {

constexpr int version = 22809;

struct Communicator {
    int rank = 0, ranks = 0;
    int device = 0;
    void* context = nullptr;
    bool blocking = true;
    int file = -1;

    std::mutex lock;
    std::condition_variable changed;
    int state = nccl_in_progress;  // the asynchronous error
    bool ready = false;
    bool aborted = false;
    unsigned busy_polls = 0;  // so many answers "in progress", as a real communicator may give
    uint64_t next_ticket = 0, running = 0;
    unsigned open = 0;  // threads that use it
    std::string message;

    void fail(int code, const std::string& text) {
        std::unique_lock<std::mutex> hold(lock);
        if (state == nccl_success || state == nccl_in_progress) {
            state = code;
            message = text;
        }
        ready = true;
        changed.notify_all();
    }
};

std::mutex registry_lock;
// Never destroyed: threads may still run when the process exits.
std::set<Communicator*>& registry = *new std::set<Communicator*>();
thread_local std::string last_error;

int refuse(int code, const std::string& text) {
    last_error = text;
    const char* verbose = getenv("MILLRACE_SIM_VERBOSE");
    if (verbose && *verbose == '1') fprintf(stderr, "millrace simulator: nccl: %s\n", text.c_str());
    return code;
}

bool is_known(Communicator* comm) {
    std::unique_lock<std::mutex> hold(registry_lock);
    return registry.count(comm) > 0;
}

// MILLRACE_SIM_NCCL_FAIL = DEVICE:N:kill|hang|error: operation N of the device's communicators.
struct Failure {
    int device = -1;
    uint64_t at = 0;
    std::string how;
    std::atomic<uint64_t> seen{0};

    Failure() {
        const char* text = getenv("MILLRACE_SIM_NCCL_FAIL");
        char word[16] = "";
        unsigned long long number = 0;
        if (text && sscanf(text, "%d:%llu:%15s", &device, &number, word) == 3) {
            at = number;
            how = word;
        }
    }
    bool hits(int on) { return on == device && ++seen == at; }
};
Failure& failure() {
    static Failure* one = new Failure();
    return *one;
}

// A group on its way through the stream.
struct Work {
    Communicator* comm;
    uint64_t ticket;
    std::vector<Call> calls;
    std::vector<const void*> from;
    std::vector<void*> to;
};

// Waits until the communicator is aborted, as a kernel does whose peer never comes.
void hang(Communicator* comm) {
    std::unique_lock<std::mutex> hold(comm->lock);
    comm->changed.wait(hold, [&] { return comm->aborted; });
}

bool exchange(Work* work) {
    Communicator* comm = work->comm;
    uint32_t count = static_cast<uint32_t>(work->calls.size());
    bool sent = write_all(comm->file, &count, sizeof(count));
    for (const Call& call : work->calls) sent = sent && write_all(comm->file, &call, sizeof(call));
    for (size_t i = 0; i < work->calls.size(); i++)
        sent = sent && write_all(comm->file, work->from[i], given(work->calls[i], comm->rank, comm->ranks));
    Answer answer{};
    if (!sent || !read_all(comm->file, &answer, sizeof(answer))) {
        comm->fail(nccl_remote_error, "the process that made the communicator is gone");
        return false;
    }
    if (answer.code) {
        comm->fail(answer.code, answer.message);
        return false;
    }
    for (size_t i = 0; i < work->calls.size(); i++)
        if (!read_all(comm->file, work->to[i], taken(work->calls[i], comm->ranks))) {
            comm->fail(nccl_remote_error, "the process that made the communicator is gone");
            return false;
        }
    return true;
}

void run(void* data) {
    Work* work = static_cast<Work*>(data);
    Communicator* comm = work->comm;
    bool goes;
    {
        // operations of a communicator run in the order of their calls, whatever their streams
        std::unique_lock<std::mutex> hold(comm->lock);
        comm->changed.wait(hold, [&] { return comm->aborted || comm->running == work->ticket; });
        goes = !comm->aborted && comm->state == nccl_success;
    }
    if (goes && failure().hits(comm->device)) {
        if (failure().how == "kill") raise(SIGKILL);
        if (failure().how == "error") comm->fail(nccl_system_error, "MILLRACE_SIM_NCCL_FAIL");
        goes = false;
    }
    if (!goes || !exchange(work)) hang(comm);
    std::unique_lock<std::mutex> hold(comm->lock);
    comm->running = work->ticket + 1;
    comm->open--;
    comm->changed.notify_all();
    hold.unlock();
    delete work;
}

// The calls of the thread's open group.
struct Group {
    int depth = 0;
    Communicator* comm = nullptr;
    void* stream = nullptr;
    Work* work = nullptr;
    int error = nccl_success;
};
thread_local Group group;

int submit(Group& of) {
    Communicator* comm = of.comm;
    bool collective = false;
    for (const Call& call : of.work->calls) collective = collective || is_collective(call.kind);
    if (collective && of.work->calls.size() > 1) {
        delete of.work;
        return refuse(nccl_internal_error, "not simulated: a group of a collective and other calls");
    }
    {
        std::unique_lock<std::mutex> hold(comm->lock);
        of.work->ticket = comm->next_ticket++;
        comm->open++;
        comm->busy_polls = comm->blocking ? 0 : of.work->ticket % 3;
    }
    if (int code = cuLaunchHostFunc(of.stream, run, of.work))
        return refuse(nccl_unhandled_cuda_error, "CUDA error " + std::to_string(code));
    return comm->blocking || of.work->ticket % 3 == 0 ? nccl_success : nccl_in_progress;
}

int check_memory(Communicator* comm, const void* memory, size_t bytes, const char* name) {
    if (bytes == 0) return nccl_success;
    int device = -1;
    uint64_t at = reinterpret_cast<uint64_t>(memory);
    if (!memory || cuPointerGetAttribute(&device, 9, at) || cuPointerGetAttribute(&device, 9, at + bytes - 1) ||
        device != comm->device)
        return refuse(nccl_invalid_argument, std::string(name) + " is no memory of the communicator's device");
    return nccl_success;
}

int add(Communicator* comm, Call call, const void* from, void* to, void* stream) {
    if (!is_known(comm)) return refuse(nccl_invalid_argument, "no such communicator: it was aborted or destroyed");
    {
        std::unique_lock<std::mutex> hold(comm->lock);
        if (!comm->ready || comm->busy_polls)
            return refuse(nccl_invalid_argument, "the communicator's previous operation is in progress");
        if (comm->state != nccl_success) return refuse(comm->state, comm->message);
    }
    size_t width = width_of(call.type);
    bool adds = call.kind == Kind::all_reduce || call.kind == Kind::reduce_scatter;
    if (width == 0) return refuse(nccl_invalid_argument, "no such type");
    if (call.op < 0 || call.op > 4) return refuse(nccl_invalid_argument, "no such reduction");
    if (adds && (call.type != 7 || (call.op != 0 && call.op != 2)))
        return refuse(nccl_internal_error, "not simulated: reductions other than sums and maxima of f32");
    if (call.peer < 0 || call.peer >= comm->ranks) return refuse(nccl_invalid_argument, "no such rank");
    if (int code = check_memory(comm, from, given(call, comm->rank, comm->ranks), "the send buffer")) return code;
    if (int code = check_memory(comm, to, taken(call, comm->ranks), "the receive buffer")) return code;
    void* context = nullptr;
    if (cuStreamGetCtx(stream, &context) || context != comm->context)
        return refuse(nccl_invalid_usage, "the stream is of another device than the communicator");
    bool alone = group.depth == 0;
    if (!group.comm) {
        group.comm = comm;
        group.stream = stream;
        group.work = new Work{comm, 0, {}, {}, {}};
    } else if (group.comm != comm || group.stream != stream) {
        return refuse(nccl_internal_error, "not simulated: a group over communicators or streams");
    }
    group.work->calls.push_back(call);
    group.work->from.push_back(from);
    group.work->to.push_back(to);
    if (!alone) return nccl_success;
    Group of = group;
    group = Group();
    return submit(of);
}

// An error inside a group is also that of its end.
int noted(int code) {
    if (code && group.depth && !group.error) group.error = code;
    return code;
}

sockaddr_un address_of(const ncclUniqueId& id, socklen_t* length) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    size_t bytes = strnlen(id.internal, 100);
    memcpy(address.sun_path + 1, id.internal, bytes);  // in the abstract namespace: no file is left
    *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
    return address;
}

void connect_to_hub(Communicator* comm, ncclUniqueId id, Hello hello) {
    socklen_t length;
    sockaddr_un address = address_of(id, &length);
    Answer answer{};
    if (connect(comm->file, reinterpret_cast<sockaddr*>(&address), length))
        comm->fail(nccl_system_error, "the process that made the unique id is gone");
    else if (!write_all(comm->file, &hello, sizeof(hello)) || !read_all(comm->file, &answer, sizeof(answer)))
        comm->fail(nccl_remote_error, "a rank left before the communicator was made");
    else if (answer.code)
        comm->fail(answer.code, answer.message);
    std::unique_lock<std::mutex> hold(comm->lock);
    if (comm->state == nccl_in_progress) comm->state = nccl_success;
    comm->ready = true;
    comm->open--;
    comm->changed.notify_all();
}

int close_communicator(Communicator* comm, bool waits) {
    {
        std::unique_lock<std::mutex> hold(registry_lock);
        if (!registry.erase(comm)) return refuse(nccl_invalid_argument, "no such communicator");
    }
    std::unique_lock<std::mutex> hold(comm->lock);
    if (waits) comm->changed.wait(hold, [&] { return comm->open == 0 || comm->state > nccl_success; });
    comm->aborted = true;
    comm->changed.notify_all();
    shutdown(comm->file, SHUT_RDWR);
    // work that streams have yet to reach finds it aborted; its memory stays for that
    return nccl_success;
}

}  // namespace

NCCL_API int ncclGetVersion(int* out) {
    if (!out) return nccl_invalid_argument;
    const char* text = getenv("MILLRACE_SIM_NCCL_VERSION");
    *out = text ? atoi(text) : version;
    return nccl_success;
}

NCCL_API const char* ncclGetErrorString(int code) {
    switch (code) {
        case nccl_success: return "no error";
        case nccl_unhandled_cuda_error: return "unhandled cuda error";
        case nccl_system_error: return "unhandled system error";
        case nccl_internal_error: return "internal error";
        case nccl_invalid_argument: return "invalid argument";
        case nccl_invalid_usage: return "invalid usage";
        case nccl_remote_error: return "remote process exited or there was a network error";
        case nccl_in_progress: return "NCCL operation in progress";
        default: return "unknown result code";
    }
}

NCCL_API const char* ncclGetLastError(Communicator* comm) {
    static thread_local std::string copy;
    copy = last_error;
    if (is_known(comm)) {
        std::unique_lock<std::mutex> hold(comm->lock);
        if (!comm->message.empty()) copy = comm->message;
    }
    return copy.c_str();
}

NCCL_API int ncclGetUniqueId(ncclUniqueId* id) {
    static std::atomic<unsigned> made{0};
    if (!id) return nccl_invalid_argument;
    memset(id, 0, sizeof(*id));
    snprintf(id->internal, sizeof(id->internal), "millrace-sim-nccl-%d-%u", static_cast<int>(getpid()), made++);
    socklen_t length;
    sockaddr_un address = address_of(*id, &length);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&address), length) || listen(listener, 64))
        return refuse(nccl_system_error, "no socket for the hub");
    serve_hub(listener);
    return nccl_success;
}

NCCL_API int ncclCommInitRankConfig(Communicator** out, int ranks, ncclUniqueId id, int rank, ncclConfig* config) {
    if (!out || ranks < 1 || rank < 0 || rank >= ranks) return refuse(nccl_invalid_argument, "rank or size");
    if (config && (config->magic != 0xcafebeef || config->size < 40))
        return refuse(nccl_invalid_argument, "the configuration was not initialised");
    if (config && config->blocking != INT_MIN && config->blocking != 0 && config->blocking != 1)
        return refuse(nccl_invalid_argument, "blocking is neither 0 nor 1");
    Communicator* comm = new Communicator();
    comm->rank = rank;
    comm->ranks = ranks;
    comm->blocking = !config || config->blocking != 0;
    Hello hello{};
    hello.magic = hello_magic;
    hello.ranks = ranks;
    hello.rank = rank;
    if (cuCtxGetCurrent(&comm->context) || !comm->context || cuCtxGetDevice(&comm->device) ||
        cuDeviceGetPCIBusId(hello.card, sizeof(hello.card), comm->device)) {
        delete comm;
        return refuse(nccl_unhandled_cuda_error, "no current device");
    }
    comm->file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    comm->open = 1;
    {
        std::unique_lock<std::mutex> hold(registry_lock);
        registry.insert(comm);
    }
    *out = comm;
    if (comm->blocking) {
        connect_to_hub(comm, id, hello);
        return comm->state == nccl_success ? nccl_success : refuse(comm->state, comm->message);
    }
    std::thread([=] { connect_to_hub(comm, id, hello); }).detach();
    return nccl_in_progress;
}

NCCL_API int ncclCommGetAsyncError(Communicator* comm, int* code) {
    if (!code || !is_known(comm)) return refuse(nccl_invalid_argument, "no such communicator");
    std::unique_lock<std::mutex> hold(comm->lock);
    *code = comm->state;
    if (comm->state == nccl_success && comm->busy_polls) {
        comm->busy_polls--;
        *code = nccl_in_progress;
    }
    return nccl_success;
}

NCCL_API int ncclCommAbort(Communicator* comm) { return close_communicator(comm, false); }
NCCL_API int ncclCommDestroy(Communicator* comm) { return close_communicator(comm, true); }

NCCL_API int ncclGroupStart() {
    group.depth++;
    return nccl_success;
}

NCCL_API int ncclGroupEnd() {
    if (group.depth == 0) return refuse(nccl_invalid_usage, "ncclGroupEnd without ncclGroupStart");
    if (--group.depth > 0) return nccl_success;
    Group of = group;
    group = Group();
    if (of.error) {
        delete of.work;
        return of.error;
    }
    return of.comm ? submit(of) : nccl_success;
}

NCCL_API int ncclAllReduce(const void* from, void* to, size_t count, int type, int op, Communicator* comm,
                           void* stream) {
    return noted(add(comm, Call{Kind::all_reduce, type, op, 0, count}, from, to, stream));
}
NCCL_API int ncclReduceScatter(const void* from, void* to, size_t count, int type, int op, Communicator* comm,
                               void* stream) {
    return noted(add(comm, Call{Kind::reduce_scatter, type, op, 0, count}, from, to, stream));
}
NCCL_API int ncclAllGather(const void* from, void* to, size_t count, int type, Communicator* comm, void* stream) {
    return noted(add(comm, Call{Kind::all_gather, type, 0, 0, count}, from, to, stream));
}
NCCL_API int ncclBroadcast(const void* from, void* to, size_t count, int type, int root, Communicator* comm,
                           void* stream) {
    return noted(add(comm, Call{Kind::broadcast, type, 0, root, count}, from, to, stream));
}
NCCL_API int ncclSend(const void* from, size_t count, int type, int peer, Communicator* comm, void* stream) {
    return noted(add(comm, Call{Kind::send, type, 0, peer, count}, from, nullptr, stream));
}
NCCL_API int ncclRecv(void* to, size_t count, int type, int peer, Communicator* comm, void* stream) {
    return noted(add(comm, Call{Kind::recv, type, 0, peer, count}, nullptr, to, stream));
}
