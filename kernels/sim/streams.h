// Streams, events and graphs: what the host has asked for and the orders in which it may happen.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "fibers.h"

namespace millrace_sim {

// The work of one operation; returns a CUDA error code and, if that is not 0, a message.
using Work = std::function<int(std::string*)>;

struct Context;
struct Capture;

struct GraphNode {
    std::string name;
    Work work;
    std::vector<unsigned> after;
};

struct Graph {
    std::vector<GraphNode> nodes;
};

struct Operation {
    std::string name;
    Work work;
    std::vector<std::shared_ptr<Operation>> after;
    std::shared_ptr<const Graph> graph;  // instead of `work`
    std::vector<unsigned char> node_done;
    size_t nodes_left = 0;
    bool host = false;     // a host function: it runs on a thread of its own and may wait for the host
    bool started = false;  // on that thread
    bool done = false;
    double seconds = 0;  // when it was done
};

struct Stream {
    Context* context = nullptr;
    bool blocking = false;  // ordered with the legacy default stream
    int priority = 0;
    uint64_t id = 0;
    std::deque<std::shared_ptr<Operation>> queue;
    std::shared_ptr<Operation> last;
    std::vector<std::shared_ptr<Operation>> waits;  // for the next operation
    Capture* capture = nullptr;
    std::vector<unsigned> tail;  // of the capture: what the next node comes after
};

struct Event {
    Context* context = nullptr;
    unsigned flags = 0;
    std::shared_ptr<Operation> recorded;
    Capture* capture = nullptr;
    std::vector<unsigned> nodes;
};

struct Capture {
    std::shared_ptr<Graph> graph;
    int mode = 0;
    std::thread::id thread;
    Stream* origin = nullptr;
    std::set<Stream*> streams;
    std::set<Event*> events;
    bool broken = false;
};

struct Context {
    int device = 0;
    bool primary = false;
    unsigned references = 0;
    bool alive = false;
    unsigned flags = 0;
    int error = 0;  // sticky
    bool executing = false;
    uint64_t launches = 0;  // executed, for their seeds
    uint64_t launch_calls = 0;
    Stream null_stream;
    std::set<Stream*> streams;
    std::set<Event*> events;
    std::set<Context*> peers;
    Random random{1};
};

// Guards everything above. Operations run without it, one at a time in a context.
extern std::mutex engine_lock;
using Hold = std::unique_lock<std::mutex>;

uint64_t simulator_seed();
void reseed_contexts();

// Adds work to a stream or to the capture it is in. Some of the waiting work may be done on the way. Returns a CUDA
// error code; `added`, if given, is the operation (null in a capture).
int submit(Hold& hold, Stream* stream, const std::string& name, Work work, std::shared_ptr<Operation>* added = nullptr,
           std::shared_ptr<const Graph> graph = nullptr, bool host = false);

// Does work, in an order drawn from what streams and events allow, until the operation is done.
void wait_for(Hold& hold, Context* context, const std::shared_ptr<Operation>& operation);
void drain(Hold& hold, Context* context);
// Does at most one operation; polling hosts get ahead by it.
void progress(Hold& hold, Context* context);

void record_event(Hold& hold, Event* event, Stream* stream, int* code);
int wait_event(Hold& hold, Stream* stream, Event* event);

int begin_capture(Stream* stream, int mode);
int end_capture(Stream* stream, std::shared_ptr<Graph>* graph);
// The refusal of a call that a capture in progress forbids, or 0. The capture is broken by it, as in CUDA.
int refuse_synchronising(Stream* stream);
int refuse_unsafe_call();
int& capture_mode_of_thread();
void drop_capture(Capture* capture);
int context_capturing(Context* context);

void set_last_error(const std::string& message);
// Ends a context, after the operation that is being executed in it: every later call on it returns `code`.
void fail_context(Hold& hold, Context* context, int code, const std::string& message);

}  // namespace millrace_sim
