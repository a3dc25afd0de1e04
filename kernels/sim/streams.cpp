// Work waits in its stream until the host waits for something, or is done earlier if the seed says so. The next
// operation is drawn at random among the heads of all streams whose events have happened, so a host program that
// forgets an event or a synchronisation sees stale data under most seeds. Where an operation of NCCL waits in a stream and
// the host calls nothing for a while, work goes on by itself, as on a card: the host may wait for another process, which
// waits for that operation.

#include "streams.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "memory.h"

namespace millrace_sim {

std::mutex engine_lock;

namespace {

std::condition_variable changed;
std::set<Context*> busy;  // contexts that may have queued work
std::set<Capture*> captures;
std::string last_error;
std::atomic<uint64_t> calls{0};  // of the host, to know whether it is elsewhere
constexpr std::chrono::milliseconds away{20};

double now_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class F>
void each_stream(Context* context, F visit) {
    visit(&context->null_stream);
    for (Stream* stream : context->streams) visit(stream);
}

bool can_run(const Operation& operation) {
    for (const auto& before : operation.after)
        if (!before->done) return false;
    return true;
}

void finish(Stream* stream, const std::shared_ptr<Operation>& operation) {
    operation->done = true;
    operation->seconds = now_seconds();
    operation->after.clear();
    if (!operation->started) operation->work = nullptr;
    stream->queue.pop_front();
}

void drop_queues(Context* context) {
    each_stream(context, [](Stream* stream) {
        while (!stream->queue.empty()) {
            auto operation = stream->queue.front();
            finish(stream, operation);
        }
    });
}

// A node whose predecessors are done, drawn at random.
unsigned draw_node(const Operation& operation, Random& random) {
    std::vector<unsigned> ready;
    for (unsigned i = 0; i < operation.graph->nodes.size(); i++) {
        if (operation.node_done[i]) continue;
        bool free = true;
        for (unsigned before : operation.graph->nodes[i].after) free = free && operation.node_done[before];
        if (free) ready.push_back(i);
    }
    return ready[random.below(static_cast<uint32_t>(ready.size()))];
}

// Does one operation, or one node of a graph, of the context. False if none can be done now.
bool run_one(Hold& hold, Context* context) {
    if (context->executing) return false;
    std::vector<Stream*> ready;
    bool waiting = false;
    each_stream(context, [&](Stream* stream) {
        if (stream->queue.empty()) return;
        waiting = true;
        const Operation& head = *stream->queue.front();
        if (!head.started && can_run(head)) ready.push_back(stream);
    });
    if (!waiting) busy.erase(context);
    if (ready.empty()) return false;
    Stream* stream = ready[context->random.below(static_cast<uint32_t>(ready.size()))];
    std::shared_ptr<Operation> operation = stream->queue.front();
    if (operation->host) {
        operation->started = true;
        std::thread([stream, operation] {
            std::string nothing;
            operation->work(&nothing);
            Hold again(engine_lock);
            if (!operation->done) finish(stream, operation);
            changed.notify_all();
        }).detach();
        return true;
    }
    // The operation may be dropped while its work is done: the work is held here.
    Work own;
    const Work* work = &own;
    unsigned node = 0;
    if (operation->graph) {
        if (operation->nodes_left == 0) {
            finish(stream, operation);
            changed.notify_all();
            return true;
        }
        node = draw_node(*operation, context->random);
        work = &operation->graph->nodes[node].work;
    } else {
        own = std::move(operation->work);
    }
    std::string message;
    int code = 0;
    if (*work) {
        context->executing = true;
        hold.unlock();
        code = (*work)(&message);
        hold.lock();
        context->executing = false;
    }
    if (code) {
        fail_context(hold, context, code, message);
    } else if (!operation->done) {  // not dropped meanwhile
        if (operation->graph) {
            operation->node_done[node] = 1;
            operation->nodes_left--;
        }
        if (!operation->graph || operation->nodes_left == 0) finish(stream, operation);
    }
    changed.notify_all();
    return true;
}

// The context's own work first; where that waits for other devices, theirs.
bool run_some(Hold& hold, Context* context) {
    if (run_one(hold, context)) return true;
    std::vector<Context*> others(busy.begin(), busy.end());
    for (Context* other : others)
        if (other != context && busy.count(other) && run_one(hold, other)) return true;
    return false;
}

bool has_host_work() {
    bool found = false;
    for (Context* context : busy)
        each_stream(context, [&](Stream* stream) {
            for (const auto& operation : stream->queue) found = found || operation->host;
        });
    return found;
}

// Does work while the host is away, if an operation of NCCL is queued.
void work_while_away() {
    for (uint64_t seen = calls;; seen = calls) {
        std::this_thread::sleep_for(away);
        Hold hold(engine_lock);
        bool goes = has_host_work();
        while (goes && calls == seen) {
            goes = false;
            std::vector<Context*> all(busy.begin(), busy.end());
            for (Context* context : all) goes = (busy.count(context) && run_one(hold, context)) || goes;
        }
    }
}

template <class Done>
void run_until(Hold& hold, Context* context, Done done) {
    while (!done()) {
        calls++;
        if (run_some(hold, context)) continue;
        if (done()) break;
        // Another host thread is at it; the time limit covers work that it adds later.
        changed.wait_for(hold, std::chrono::milliseconds(20));
    }
}

bool ancestor_closed(const Graph& graph, const std::vector<unsigned>& from, const std::vector<unsigned>& wanted) {
    std::vector<unsigned char> seen(graph.nodes.size(), 0);
    std::vector<unsigned> open = from;
    while (!open.empty()) {
        unsigned node = open.back();
        open.pop_back();
        if (seen[node]) continue;
        seen[node] = 1;
        for (unsigned before : graph.nodes[node].after) open.push_back(before);
    }
    for (unsigned node : wanted)
        if (!seen[node]) return false;
    return true;
}

void merge(std::vector<unsigned>& into, const std::vector<unsigned>& from) {
    for (unsigned node : from) {
        bool known = false;
        for (unsigned have : into) known = known || have == node;
        if (!known) into.push_back(node);
    }
}

}  // namespace

static std::atomic<uint64_t>& seed_cell() {
    static std::atomic<uint64_t> seed{[] {
        const char* text = getenv("MILLRACE_SIM_SEED");
        return text ? strtoull(text, nullptr, 10) : 1ULL;
    }()};
    return seed;
}

uint64_t simulator_seed() { return seed_cell(); }

void set_last_error(const std::string& message) {
    last_error = message;
    static const char* verbose = getenv("MILLRACE_SIM_VERBOSE");
    if (verbose && *verbose == '1') fprintf(stderr, "millrace simulator: %s\n", message.c_str());
}

void fail_context(Hold& hold, Context* context, int code, const std::string& message) {
    // The host frees memory and modules after an error: another thread may be in a kernel that uses them.
    while (context->executing) changed.wait_for(hold, std::chrono::milliseconds(20));
    if (context->error == 0) {
        context->error = code;
        set_last_error(message);
    }
    drop_queues(context);
    changed.notify_all();
}

int submit(Hold& hold, Stream* stream, const std::string& name, Work work, std::shared_ptr<Operation>* added,
           std::shared_ptr<const Graph> graph, bool host) {
    Context* context = stream->context;
    calls++;
    if (stream->capture) {
        Capture* capture = stream->capture;
        if (capture->broken) return 901;
        std::vector<unsigned> after = stream->tail;
        if (graph) {
            // A graph in a graph: its nodes, their first ones after the tail, the tail replaced by all of them.
            unsigned offset = static_cast<unsigned>(capture->graph->nodes.size());
            std::vector<unsigned> all;
            for (GraphNode node : graph->nodes) {
                for (unsigned& before : node.after) before += offset;
                if (node.after.empty()) node.after = after;
                all.push_back(static_cast<unsigned>(capture->graph->nodes.size()));
                capture->graph->nodes.push_back(std::move(node));
            }
            if (!all.empty()) stream->tail = all;
        } else {
            capture->graph->nodes.push_back(GraphNode{name, std::move(work), after});
            stream->tail = {static_cast<unsigned>(capture->graph->nodes.size() - 1)};
        }
        return 0;
    }
    if (host) {
        static std::once_flag once;
        std::call_once(once, [] { std::thread(work_while_away).detach(); });
    }
    auto operation = std::make_shared<Operation>();
    operation->name = name;
    operation->work = std::move(work);
    operation->host = host;
    operation->after = std::move(stream->waits);
    stream->waits.clear();
    if (graph) {
        operation->graph = graph;
        operation->node_done.assign(graph->nodes.size(), 0);
        operation->nodes_left = graph->nodes.size();
    }
    if (stream == &context->null_stream) {
        if (int code = context_capturing(context)) return code;
        for (Stream* other : context->streams)
            if (other->blocking && other->last && !other->last->done) operation->after.push_back(other->last);
    } else if (stream->blocking) {
        if (context->null_stream.last && !context->null_stream.last->done)
            operation->after.push_back(context->null_stream.last);
    }
    stream->queue.push_back(operation);
    stream->last = operation;
    busy.insert(context);
    if (added) *added = operation;
    // A card may be ahead of the host at any time, by any amount.
    if (context->random.below(4) == 0)
        for (uint32_t n = context->random.below(8); n > 0 && run_one(hold, context); n--) {
        }
    return 0;
}

void wait_for(Hold& hold, Context* context, const std::shared_ptr<Operation>& operation) {
    if (operation) run_until(hold, context, [&] { return operation->done; });
}

void drain(Hold& hold, Context* context) {
    run_until(hold, context, [&] {
        bool empty = !context->executing;
        each_stream(context, [&](Stream* stream) { empty = empty && stream->queue.empty(); });
        return empty;
    });
    if (context->error) return;
    std::string text = check_red_zones(context->device, true);
    if (!text.empty()) fail_context(hold, context, failure_illegal_address, text);
}

void progress(Hold& hold, Context* context) {
    calls++;
    run_some(hold, context);
}

void record_event(Hold& hold, Event* event, Stream* stream, int* code) {
    if (event->capture) event->capture->events.erase(event);
    event->capture = nullptr;
    if (stream->capture) {
        if (stream->capture->broken) {
            *code = 901;
            return;
        }
        event->recorded = nullptr;
        event->capture = stream->capture;
        event->nodes = stream->tail;
        stream->capture->events.insert(event);
        *code = 0;
        return;
    }
    std::shared_ptr<Operation> operation;
    *code = submit(hold, stream, "event record", nullptr, &operation);
    event->recorded = operation;
}

int wait_event(Hold& hold, Stream* stream, Event* event) {
    if (event->capture) {
        Capture* capture = event->capture;
        if (capture->broken) return 901;
        if (stream->capture && stream->capture != capture) {
            stream->capture->broken = capture->broken = true;
            return 902;
        }
        if (!stream->capture) {
            stream->capture = capture;
            stream->tail.clear();
            capture->streams.insert(stream);
        }
        merge(stream->tail, event->nodes);
        return 0;
    }
    if (!event->recorded) return 0;
    if (stream->capture) {
        stream->capture->broken = true;
        return 905;
    }
    if (event->recorded->done) return 0;
    // An operation of its own, so that events recorded and host waits after it include it.
    stream->waits.push_back(event->recorded);
    return submit(hold, stream, "wait for event", nullptr);
}

int context_capturing(Context* context) {
    int code = 0;
    for (Stream* stream : context->streams) {
        if (!stream->capture || !stream->blocking) continue;
        stream->capture->broken = true;
        code = 906;
    }
    return code;
}

int begin_capture(Stream* stream, int mode) {
    if (stream == &stream->context->null_stream) return 900;
    if (stream->capture) return 401;
    Capture* capture = new Capture();
    capture->graph = std::make_shared<Graph>();
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->origin = stream;
    capture->streams.insert(stream);
    captures.insert(capture);
    stream->capture = capture;
    stream->tail.clear();
    return 0;
}

void drop_capture(Capture* capture) {
    for (Stream* stream : capture->streams) {
        stream->capture = nullptr;
        stream->tail.clear();
    }
    for (Event* event : capture->events) {
        event->capture = nullptr;
        event->nodes.clear();
    }
    captures.erase(capture);
    delete capture;
}

int end_capture(Stream* stream, std::shared_ptr<Graph>* graph) {
    Capture* capture = stream->capture;
    if (!capture) return 401;
    if (capture->mode != 2 && capture->thread != std::this_thread::get_id()) return 908;
    if (capture->origin != stream) {
        capture->broken = true;
        return 903;
    }
    int code = capture->broken ? 901 : 0;
    for (Stream* other : capture->streams)
        if (!code && other != stream && !ancestor_closed(*capture->graph, stream->tail, other->tail)) code = 904;
    if (!code) *graph = capture->graph;
    drop_capture(capture);
    return code;
}

int refuse_synchronising(Stream* stream) {
    if (!stream->capture) return 0;
    stream->capture->broken = true;
    return 900;
}

int& capture_mode_of_thread() {
    static thread_local int mode = 0;
    return mode;
}

int refuse_unsafe_call() {
    int mine = capture_mode_of_thread();
    if (mine == 2) return 0;
    int code = 0;
    for (Capture* capture : captures) {
        if (capture->mode == 2) continue;
        bool own = capture->thread == std::this_thread::get_id();
        if (own || (capture->mode == 0 && mine == 0)) {
            capture->broken = true;
            code = 900;
        }
    }
    return code;
}

}  // namespace millrace_sim

// The message of the last failure: what a card would only give a number for. Valid until the thread's next call.
extern "C" const char* millrace_sim_last_error() {
    static thread_local std::string* copy = new std::string();
    millrace_sim::Hold hold(millrace_sim::engine_lock);
    *copy = millrace_sim::last_error;
    return copy->c_str();
}

// Another seed for what follows, for tests that try several in one process; counters start again.
extern "C" void millrace_sim_set_seed(uint64_t seed) {
    millrace_sim::Hold hold(millrace_sim::engine_lock);
    millrace_sim::seed_cell() = seed;
    millrace_sim::reseed_contexts();
}
