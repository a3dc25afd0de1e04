// Self-tests of the stand-in NCCL: results, refusals, and ranks that do not come. Ranks are threads, a device each.

#include <climits>
#include <chrono>
#include <mutex>
#include <thread>

#include "selftest.h"

struct UniqueId {
    char internal[128];
};
struct Config {
    size_t size = sizeof(Config);
    unsigned magic = 0xcafebeef, version = 21800;
    int blocking = 0, rest[3] = {INT_MIN, INT_MIN, INT_MIN};
    const char* net = nullptr;
    int split_share = INT_MIN;
};

extern "C" {
int cuStreamQuery(Handle);
int ncclGetUniqueId(UniqueId*);
int ncclCommInitRankConfig(Handle*, int, UniqueId, int, Config*);
int ncclCommGetAsyncError(Handle, int*);
int ncclCommAbort(Handle);
int ncclGroupStart();
int ncclGroupEnd();
int ncclAllReduce(const void*, void*, size_t, int, int, Handle, Handle);
int ncclAllGather(const void*, void*, size_t, int, Handle, Handle);
int ncclBroadcast(const void*, void*, size_t, int, int, Handle, Handle);
int ncclReduceScatter(const void*, void*, size_t, int, int, Handle, Handle);
int ncclSend(const void*, size_t, int, int, Handle, Handle);
int ncclRecv(void*, size_t, int, int, Handle, Handle);
}

namespace {

constexpr int f32 = 7, sum = 0, in_progress = 7;

void* at(CUdeviceptr pointer, size_t elements = 0) { return reinterpret_cast<void*>(pointer + 4 * elements); }

int settle(Handle comm) {
    int code = in_progress;
    while (code == in_progress) {
        if (int failed = ncclCommGetAsyncError(comm, &code)) return failed;
        std::this_thread::yield();
    }
    return code;
}

// A rank: its device, stream and communicator.
struct Rank {
    int number;
    Device device;
    Handle stream = nullptr, comm = nullptr;
    int joined;

    Rank(int rank, int ranks, int on, UniqueId id) : number(rank), device(on) {
        OK(cuStreamCreate(&stream, 1));
        Config config;
        CHECK_EQUAL(ncclCommInitRankConfig(&comm, ranks, id, rank, &config), in_progress);
        joined = settle(comm);
    }
    ~Rank() { ncclCommAbort(comm); }
};

// Runs a test's body on every rank; the first failure is the test's.
void on_ranks(int ranks, std::function<int(int)> device_of, std::function<void(Rank&)> body) {
    UniqueId id;
    OK(ncclGetUniqueId(&id));
    std::vector<std::thread> threads;
    std::mutex lock;
    std::exception_ptr failed;
    for (int r = 0; r < ranks; r++)
        threads.emplace_back([&, r] {
            try {
                Rank rank(r, ranks, device_of(r), id);
                body(rank);
            } catch (...) {
                std::unique_lock<std::mutex> hold(lock);
                if (!failed) failed = std::current_exception();
            }
        });
    for (std::thread& thread : threads) thread.join();
    if (failed) std::rethrow_exception(failed);
}

int own(int rank) { return rank; }

// The error that a communicator gets while its stream goes on.
int error_of(Rank& rank) {
    int code = 0;
    while (code == 0 || code == in_progress) {
        OK(ncclCommGetAsyncError(rank.comm, &code));
        cuStreamQuery(rank.stream);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return code;
}

}  // namespace

TEST(nccl_collectives_give_every_rank_its_numbers) {
    on_ranks(4, own, [](Rank& rank) {
        OK(rank.joined);
        float r = static_cast<float>(rank.number);
        CUdeviceptr x = upload<float>({r, 10 + r, 20 + r, 30 + r}), y = fresh(64), z = fresh(16), w = fresh(4);
        OK(ncclAllGather(at(x), at(y), 4, f32, rank.comm, rank.stream) % in_progress);
        OK(settle(rank.comm));
        OK(ncclReduceScatter(at(x), at(w), 1, f32, sum, rank.comm, rank.stream) % in_progress);
        OK(settle(rank.comm));
        OK(ncclBroadcast(at(x), at(z), 4, f32, 2, rank.comm, rank.stream) % in_progress);
        OK(settle(rank.comm));
        OK(ncclAllReduce(at(x), at(x), 4, f32, sum, rank.comm, rank.stream) % in_progress);
        OK(settle(rank.comm));
        OK(cuStreamSynchronize(rank.stream));
        CHECK_EQUAL(download<float>(x, 4)[3], 126.0f);
        CHECK_EQUAL(download<float>(y, 16)[13], 13.0f);
        CHECK_EQUAL(download<float>(z, 4)[1], 12.0f);
        CHECK_EQUAL(download<float>(w, 1)[0], 40.0f * r + 6.0f);
    });
}

TEST(nccl_sends_and_receives_of_a_group_cross) {
    on_ranks(3, own, [](Rank& rank) {
        OK(rank.joined);
        CUdeviceptr x = upload<float>({static_cast<float>(rank.number)}), y = fresh(12);
        OK(ncclGroupStart());
        for (int peer = 0; peer < 3; peer++) {
            if (peer == rank.number) continue;
            OK(ncclSend(at(x), 1, f32, peer, rank.comm, rank.stream));
            OK(ncclRecv(at(y, static_cast<size_t>(peer)), 1, f32, peer, rank.comm, rank.stream));
        }
        OK(ncclGroupEnd() % in_progress);
        OK(settle(rank.comm));
        OK(cuStreamSynchronize(rank.stream));
        int next = (rank.number + 1) % 3;
        CHECK_EQUAL(download<float>(y, 3)[static_cast<size_t>(next)], static_cast<float>(next));
    });
}

// A rank without a message may already be in the collective that follows it.
TEST(nccl_sends_go_on_beside_a_collective_of_another_rank) {
    on_ranks(3, own, [](Rank& rank) {
        OK(rank.joined);
        CUdeviceptr x = upload<float>({static_cast<float>(rank.number)}), y = fresh(4), z = fresh(12);
        if (rank.number) {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            OK(ncclGroupStart());
            OK(ncclSend(at(x), 1, f32, 3 - rank.number, rank.comm, rank.stream));
            OK(ncclRecv(at(y), 1, f32, 3 - rank.number, rank.comm, rank.stream));
            OK(ncclGroupEnd() % in_progress);
            OK(settle(rank.comm));
        }
        OK(ncclAllGather(at(x), at(z), 1, f32, rank.comm, rank.stream) % in_progress);
        OK(settle(rank.comm));
        OK(cuStreamSynchronize(rank.stream));
        CHECK_EQUAL(download<float>(z, 3)[2], 2.0f);
        if (rank.number) CHECK_EQUAL(download<float>(y, 1)[0], 3.0f - static_cast<float>(rank.number));
    });
}

TEST(nccl_refuses_two_ranks_on_one_device) {
    on_ranks(2, [](int) { return 1; }, [](Rank& rank) { CHECK_EQUAL(rank.joined, 5); });
}

TEST(nccl_refuses_counts_that_differ) {
    on_ranks(2, own, [](Rank& rank) {
        CUdeviceptr x = fresh(32);
        ncclAllReduce(at(x), at(x), rank.number ? 8 : 4, f32, sum, rank.comm, rank.stream);
        CHECK_EQUAL(error_of(rank), 4);
    });
}

TEST(nccl_refuses_misuse) {
    on_ranks(1, own, [](Rank& rank) {
        CUdeviceptr x = fresh(16);
        CHECK_EQUAL(ncclGroupEnd(), 5);
        CHECK_EQUAL(ncclAllReduce(at(x), at(x), 5, f32, sum, rank.comm, rank.stream), 4);  // past its end
        CHECK_EQUAL(ncclAllReduce(at(x), at(x), 4, 99, sum, rank.comm, rank.stream), 4);
        CHECK_EQUAL(ncclBroadcast(at(x), at(x), 4, f32, 1, rank.comm, rank.stream), 4);
        CHECK_EQUAL(ncclAllReduce(nullptr, at(x), 4, f32, sum, rank.comm, rank.stream), 4);
        Handle comm = rank.comm;
        OK(ncclCommAbort(comm));
        CHECK_EQUAL(ncclAllReduce(at(x), at(x), 4, f32, sum, comm, rank.stream), 4);  // use after abort
    });
}

TEST(nccl_reports_a_rank_that_is_gone) {
    on_ranks(2, own, [](Rank& rank) {
        if (rank.number == 1) return;
        CUdeviceptr x = fresh(16);
        ncclAllReduce(at(x), at(x), 4, f32, sum, rank.comm, rank.stream);
        CHECK_EQUAL(error_of(rank), 6);
        OK(ncclCommAbort(rank.comm));
        OK(cuStreamSynchronize(rank.stream));  // the abort ends the wait of the stream
    });
}
