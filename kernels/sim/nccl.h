// The stand-in NCCL: what the entry points (nccl.cpp) and the hub (nccl_hub.cpp) share.
//
// The ranks of a communicator may be threads or processes of one machine. The process that makes the unique id serves a
// Unix socket, whose name is the id: its hub receives each rank's calls with their data, matches them and answers with
// the results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace millrace_sim {

enum : int {
    nccl_success = 0,
    nccl_unhandled_cuda_error = 1,
    nccl_system_error = 2,
    nccl_internal_error = 3,
    nccl_invalid_argument = 4,
    nccl_invalid_usage = 5,
    nccl_remote_error = 6,
    nccl_in_progress = 7,
};

enum class Kind : int { all_reduce, reduce_scatter, all_gather, broadcast, send, recv };

constexpr bool is_collective(Kind kind) { return kind < Kind::send; }

// One call of a group.
struct Call {
    Kind kind;
    int type;
    int op;
    int peer;  // root of a broadcast, other rank of a send or receive
    uint64_t count;

    bool matches(const Call& other) const {
        return kind == other.kind && type == other.type && op == other.op && peer == other.peer && count == other.count;
    }
};

// What a rank sends first.
struct Hello {
    uint32_t magic;
    int ranks;
    int rank;
    char card[40];
};
constexpr uint32_t hello_magic = 0x4c43434e;

// Before the results of a group, and after the last hello.
struct Answer {
    int code;
    char message[160];
    uint64_t bytes;
};

// Bytes of a number; 0 for a type that the stand-in does not have.
size_t width_of(int type);
// Bytes that a rank gives and gets in a call.
size_t given(const Call& call, int rank, int ranks);
size_t taken(const Call& call, int ranks);

// Whole reads and writes; false once the other end is gone.
bool read_all(int file, void* to, size_t bytes);
bool write_all(int file, const void* from, size_t bytes);

// Serves a listening socket on a thread of its own until all ranks are gone.
void serve_hub(int listener);

}  // namespace millrace_sim
