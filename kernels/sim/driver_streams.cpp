// The driver API: streams, events, host functions and graphs.

#include <map>
#include <memory>

#include "driver.h"

namespace millrace_sim {
void register_stream(Stream* stream);
void forget_stream(Stream* stream);
void register_event(Event* event);
void forget_event(Event* event);

namespace {

// What CUgraph and CUgraphExec point to.
struct GraphHandle {
    std::shared_ptr<Graph> graph;
};
// Never destroyed: threads may still run when the process exits.
std::set<GraphHandle*>& live_graphs = *new std::set<GraphHandle*>();
uint64_t next_stream_id = 1;

constexpr unsigned event_disable_timing = 2;
constexpr unsigned event_interprocess = 4;

CUresult event_in_use(Event* event) {
    if (!is_event(event)) return invalid_handle;
    return success;
}

}  // namespace
}  // namespace millrace_sim

using namespace millrace_sim;

MILLRACE_API cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    if (!stream || flags > 1) return invalid_value;
    Stream* made = new Stream();
    made->context = context;
    made->blocking = flags == 0;
    made->priority = priority < -5 ? -5 : priority > 0 ? 0 : priority;
    made->id = next_stream_id++;
    context->streams.insert(made);
    register_stream(made);
    *stream = made;
    return success;
}
MILLRACE_API cuStreamCreate(CUstream* stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

// Work that is queued is still done; the handle is gone at once.
MILLRACE_API cuStreamDestroy_v2(CUstream handle) {
    Context* context;
    Hold hold(engine_lock);
    CUresult code = current_context(&context);
    if (code == not_initialized || code == invalid_context) return code;
    Stream* stream;
    MILLRACE_TRY(resolve_stream(context, handle, &stream));
    if (stream == &context->null_stream) return invalid_handle;
    if (stream->capture) drop_capture(stream->capture);
    wait_for(hold, context, stream->last);
    forget_stream(stream);
    context->streams.erase(stream);
    delete stream;
    return code;
}

MILLRACE_API cuStreamSynchronize(CUstream handle) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    Stream* stream;
    MILLRACE_TRY(resolve_stream(context, handle, &stream));
    MILLRACE_TRY(refuse_synchronising(stream));
    if (stream == &context->null_stream) {
        MILLRACE_TRY(context_capturing(context));
        std::vector<std::shared_ptr<Operation>> last;  // streams come and go while others run
        for (Stream* other : context->streams)
            if (other->blocking) last.push_back(other->last);
        for (const auto& operation : last) wait_for(hold, context, operation);
    }
    wait_for(hold, context, stream->last);
    if (context->error == 0) {
        std::string text = check_red_zones(context->device, false);
        if (!text.empty()) fail_context(hold, context, failure_illegal_address, text);
    }
    return context->error;
}

MILLRACE_API cuStreamQuery(CUstream handle) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    Stream* stream;
    MILLRACE_TRY(resolve_stream(context, handle, &stream));
    MILLRACE_TRY(refuse_synchronising(stream));
    progress(hold, context);
    MILLRACE_TRY(context->error);
    return !stream->last || stream->last->done ? success : not_ready;
}

MILLRACE_API cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    Stream* stream;
    MILLRACE_TRY(resolve_stream(context, handle, &stream));
    if (flags > 1) return invalid_value;
    MILLRACE_TRY(event_in_use(event));
    return wait_event(hold, stream, event);
}

MILLRACE_API cuStreamGetPriority(CUstream handle, int* priority) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    Stream* stream;
    MILLRACE_TRY(resolve_stream(context, handle, &stream));
    *priority = stream->priority;
    return success;
}
MILLRACE_API cuStreamGetFlags(CUstream handle, unsigned* flags) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    Stream* stream;
    MILLRACE_TRY(resolve_stream(context, handle, &stream));
    *flags = stream->blocking ? 0 : 1;
    return success;
}
MILLRACE_API cuStreamGetCtx(CUstream handle, CUcontext* out) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    Stream* stream;
    MILLRACE_TRY(resolve_stream(context, handle, &stream));
    *out = stream->context;
    return success;
}
MILLRACE_API cuStreamGetId(CUstream handle, unsigned long long* id) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    Stream* stream;
    MILLRACE_TRY(resolve_stream(context, handle, &stream));
    *id = stream->id;
    return success;
}
MILLRACE_API cuStreamAttachMemAsync(CUstream, CUdeviceptr, size_t, unsigned) { return not_supported; }

MILLRACE_API cuLaunchHostFunc(CUstream handle, void (*function)(void*), void* data) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    Stream* stream;
    MILLRACE_TRY(resolve_stream(context, handle, &stream));
    if (!function) return invalid_value;
    auto work = [=](std::string*) {
        function(data);
        return 0;
    };
    return submit(hold, stream, "host function", work, nullptr, nullptr, true);
}

MILLRACE_API cuStreamAddCallback(CUstream handle, void (*callback)(CUstream, CUresult, void*), void* data, unsigned) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    Stream* stream;
    MILLRACE_TRY(resolve_stream(context, handle, &stream));
    MILLRACE_TRY(refuse_synchronising(stream));
    if (!callback) return invalid_value;
    auto work = [=](std::string*) {
        callback(handle, success, data);
        return 0;
    };
    return submit(hold, stream, "callback", work, nullptr, nullptr, true);
}

MILLRACE_API cuEventCreate(CUevent* event, unsigned flags) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    if (!event || flags > 7 || (flags & event_interprocess)) return invalid_value;
    Event* made = new Event();
    made->context = context;
    made->flags = flags;
    context->events.insert(made);
    register_event(made);
    *event = made;
    return success;
}

MILLRACE_API cuEventDestroy_v2(CUevent event) {
    Hold hold(engine_lock);
    MILLRACE_TRY(event_in_use(event));
    if (event->capture) event->capture->events.erase(event);
    event->context->events.erase(event);
    forget_event(event);
    delete event;
    return success;
}

MILLRACE_API cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned flags) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    Stream* stream;
    MILLRACE_TRY(resolve_stream(context, handle, &stream));
    if (flags) return invalid_value;
    MILLRACE_TRY(event_in_use(event));
    if (event->context != stream->context) return invalid_handle;
    int code;
    record_event(hold, event, stream, &code);
    return code;
}
MILLRACE_API cuEventRecord(CUevent event, CUstream stream) { return cuEventRecordWithFlags(event, stream, 0); }

MILLRACE_API cuEventQuery(CUevent event) {
    Hold hold(engine_lock);
    MILLRACE_TRY(event_in_use(event));
    Context* context = event->context;
    MILLRACE_TRY(context->error);
    if (event->capture) return captured_event;
    MILLRACE_TRY(refuse_unsafe_call());
    // A host that polls sees the card get ahead.
    progress(hold, context);
    MILLRACE_TRY(context->error);
    return !event->recorded || event->recorded->done ? success : not_ready;
}

MILLRACE_API cuEventSynchronize(CUevent event) {
    Hold hold(engine_lock);
    MILLRACE_TRY(event_in_use(event));
    Context* context = event->context;
    MILLRACE_TRY(context->error);
    if (event->capture) return captured_event;
    MILLRACE_TRY(refuse_unsafe_call());
    wait_for(hold, context, event->recorded);
    return context->error;
}

MILLRACE_API cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
    Hold hold(engine_lock);
    MILLRACE_TRY(event_in_use(start));
    MILLRACE_TRY(event_in_use(end));
    if (!milliseconds) return invalid_value;
    if ((start->flags | end->flags) & event_disable_timing) return invalid_handle;
    if (start->capture || end->capture) return captured_event;
    if (!start->recorded || !end->recorded) return invalid_handle;
    if (!start->recorded->done || !end->recorded->done) return not_ready;
    *milliseconds = static_cast<float>((end->recorded->seconds - start->recorded->seconds) * 1e3);
    return success;
}
MILLRACE_API cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
    return cuEventElapsedTime_v2(milliseconds, start, end);
}

MILLRACE_API cuStreamBeginCapture_v2(CUstream handle, int mode) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    Stream* stream;
    MILLRACE_TRY(resolve_stream(context, handle, &stream));
    if (mode < 0 || mode > 2) return invalid_value;
    return begin_capture(stream, mode);
}

MILLRACE_API cuStreamEndCapture(CUstream handle, GraphHandle** graph) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    Stream* stream;
    MILLRACE_TRY(resolve_stream(context, handle, &stream));
    if (!graph) return invalid_value;
    *graph = nullptr;
    std::shared_ptr<Graph> captured;
    MILLRACE_TRY(end_capture(stream, &captured));
    *graph = new GraphHandle{captured};
    live_graphs.insert(*graph);
    return success;
}

MILLRACE_API cuStreamIsCapturing(CUstream handle, int* status) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    Stream* stream;
    MILLRACE_TRY(resolve_stream(context, handle, &stream));
    if (stream == &context->null_stream) MILLRACE_TRY(context_capturing(context));
    *status = !stream->capture ? 0 : stream->capture->broken ? 2 : 1;
    return success;
}

MILLRACE_API cuThreadExchangeStreamCaptureMode(int* mode) {
    if (!mode || *mode < 0 || *mode > 2) return invalid_value;
    int& mine = capture_mode_of_thread();
    int before = mine;
    mine = *mode;
    *mode = before;
    return success;
}

MILLRACE_API cuGraphInstantiateWithFlags(GraphHandle** exec, GraphHandle* graph, unsigned long long flags) {
    Hold hold(engine_lock);
    // 1 frees memory nodes at launch, 8 uses the priorities of nodes; launches from the device are not simulated.
    if (!exec || (flags & ~9ULL)) return invalid_value;
    if (!live_graphs.count(graph)) return invalid_value;
    *exec = new GraphHandle{std::make_shared<Graph>(*graph->graph)};
    live_graphs.insert(*exec);
    return success;
}
MILLRACE_API cuGraphInstantiate_v2(GraphHandle** exec, GraphHandle* graph, void**, char*, size_t) {
    return cuGraphInstantiateWithFlags(exec, graph, 0);
}

MILLRACE_API cuGraphLaunch(GraphHandle* exec, CUstream handle) {
    Context* context;
    Hold hold(engine_lock);
    MILLRACE_TRY(current_context(&context));
    Stream* stream;
    MILLRACE_TRY(resolve_stream(context, handle, &stream));
    if (!live_graphs.count(exec)) return invalid_value;
    if (!stream->capture) MILLRACE_TRY(count_launch(hold, context));
    MILLRACE_TRY(submit(hold, stream, "graph", nullptr, nullptr, exec->graph));
    return context->error;
}
MILLRACE_API cuGraphUpload(GraphHandle* exec, CUstream) {
    Hold hold(engine_lock);
    return live_graphs.count(exec) ? success : invalid_value;
}
MILLRACE_API cuGraphGetNodes(GraphHandle* graph, void** nodes, size_t* count) {
    Hold hold(engine_lock);
    if (!live_graphs.count(graph) || nodes) return invalid_value;
    *count = graph->graph->nodes.size();
    return success;
}

static CUresult destroy_graph(GraphHandle* graph) {
    Hold hold(engine_lock);
    if (!live_graphs.erase(graph)) return invalid_value;
    delete graph;
    return success;
}
MILLRACE_API cuGraphDestroy(GraphHandle* graph) { return destroy_graph(graph); }
MILLRACE_API cuGraphExecDestroy(GraphHandle* exec) { return destroy_graph(exec); }
