// The hub of a communicator of the stand-in NCCL: receives the calls of all ranks, matches them and computes.
//
// Sums are chains that start at another rank for each element, as the parts of a ring do, so their bits are those of
// no tree. A send is done when its receive takes it: a program that relies on buffers hangs.

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "nccl.h"

namespace millrace_sim {

size_t width_of(int type) {
    switch (type) {
        case 0:
        case 1: return 1;
        case 2:
        case 3:
        case 7: return 4;
        case 4:
        case 5:
        case 8: return 8;
        case 6:
        case 9: return 2;
        default: return 0;
    }
}

size_t given(const Call& call, int rank, int ranks) {
    size_t bytes = call.count * width_of(call.type);
    switch (call.kind) {
        case Kind::reduce_scatter: return bytes * static_cast<size_t>(ranks);
        case Kind::broadcast: return rank == call.peer ? bytes : 0;
        case Kind::recv: return 0;
        default: return bytes;
    }
}

size_t taken(const Call& call, int ranks) {
    size_t bytes = call.count * width_of(call.type);
    if (call.kind == Kind::send) return 0;
    return call.kind == Kind::all_gather ? bytes * static_cast<size_t>(ranks) : bytes;
}

bool read_all(int file, void* to, size_t bytes) {
    for (char* at = static_cast<char*>(to); bytes > 0;) {
        ssize_t n = recv(file, at, bytes, 0);
        if (n <= 0) return false;
        at += n;
        bytes -= static_cast<size_t>(n);
    }
    return true;
}

bool write_all(int file, const void* from, size_t bytes) {
    for (const char* at = static_cast<const char*>(from); bytes > 0;) {
        ssize_t n = send(file, at, bytes, MSG_NOSIGNAL);
        if (n <= 0) return false;
        at += n;
        bytes -= static_cast<size_t>(n);
    }
    return true;
}

namespace {

// A call and what the rank gave for it; what it gets.
struct Part {
    Call call;
    std::vector<char> in, out;
    bool done = false;
};

struct Rank {
    int file = -1;
    bool gone = false;
    std::vector<Part> group;  // the group in flight: a rank waits for its answer before it sends the next

    bool waits() const { return !group.empty(); }
};

struct Hub {
    std::vector<Rank> ranks;

    int size() const { return static_cast<int>(ranks.size()); }

    void answer(Rank& rank, int code, const std::string& message) {
        Answer answer{};
        answer.code = code;
        snprintf(answer.message, sizeof(answer.message), "%s", message.c_str());
        if (code == nccl_success)
            for (const Part& part : rank.group) answer.bytes += part.out.size();
        write_all(rank.file, &answer, sizeof(answer));
        if (code == nccl_success)
            for (const Part& part : rank.group) write_all(rank.file, part.out.data(), part.out.size());
        rank.group.clear();
    }

    void fail_all(int code, const std::string& message) {
        for (Rank& rank : ranks)
            if (rank.waits()) answer(rank, code, message);
    }

    // False if the rank is gone.
    bool receive(int number) {
        Rank& rank = ranks[static_cast<size_t>(number)];
        uint32_t calls = 0;
        if (!read_all(rank.file, &calls, sizeof(calls))) return false;
        rank.group.resize(calls);
        for (Part& part : rank.group)
            if (!read_all(rank.file, &part.call, sizeof(part.call))) return false;
        for (Part& part : rank.group) {
            part.in.resize(given(part.call, number, size()));
            if (!read_all(rank.file, part.in.data(), part.in.size())) return false;
        }
        return true;
    }

    void reduce(const Call& call, const std::vector<Part*>& parts, size_t first, float* out, size_t count) {
        size_t n = parts.size();
        for (size_t i = 0; i < count; i++) {
            float value = 0;
            for (size_t step = 0; step < n; step++) {
                const std::vector<char>& in = parts[(i + 1 + step) % n]->in;
                float x;
                memcpy(&x, in.data() + (first + i) * sizeof(float), sizeof(x));
                if (step == 0) value = x;
                else if (call.op == 0) value = value + x;
                else value = x > value ? x : value;
            }
            out[i] = value;
        }
    }

    void compute(const std::vector<Part*>& parts) {
        const Call& call = parts[0]->call;
        for (size_t r = 0; r < parts.size(); r++) {
            Part& part = *parts[r];
            part.out.resize(taken(call, size()));
            switch (call.kind) {
                case Kind::broadcast: part.out = parts[static_cast<size_t>(call.peer)]->in; break;
                case Kind::all_gather: {
                    part.out.clear();
                    for (const Part* from : parts) part.out.insert(part.out.end(), from->in.begin(), from->in.end());
                    break;
                }
                default: {
                    size_t first = call.kind == Kind::reduce_scatter ? r * call.count : 0;
                    std::vector<float> sums(call.count);
                    reduce(call, parts, first, sums.data(), call.count);
                    if (call.count) memcpy(part.out.data(), sums.data(), part.out.size());
                }
            }
            part.done = true;
        }
    }

    // The collective that all ranks have begun. False if there is none.
    bool match_collective() {
        std::vector<Part*> parts;
        int gone = -1;
        for (Rank& rank : ranks) {
            bool has = rank.waits() && is_collective(rank.group[0].call.kind) && !rank.group[0].done;
            if (has) parts.push_back(&rank.group[0]);
            if (!rank.waits() && rank.gone) gone = static_cast<int>(&rank - ranks.data());
        }
        if (parts.empty()) return false;
        if (gone >= 0) {
            fail_all(nccl_remote_error, "rank " + std::to_string(gone) + " of the communicator is gone");
            return true;
        }
        if (parts.size() < ranks.size()) {
            bool mixed = true;
            for (Rank& rank : ranks) mixed = mixed && rank.waits();
            if (mixed) fail_all(nccl_invalid_usage, "ranks called a collective and a send or receive at once");
            return mixed;
        }
        for (const Part* part : parts)
            if (!part->call.matches(parts[0]->call)) {
                fail_all(nccl_invalid_argument, "ranks called different collectives, counts, types or roots");
                return true;
            }
        compute(parts);
        return true;
    }

    // A send and the receive that takes it. False if there is none.
    bool match_message() {
        for (Rank& from : ranks) {
            int sender = static_cast<int>(&from - ranks.data());
            std::map<int, bool> blocked;  // messages between two ranks keep their order
            for (Part& sent : from.group) {
                if (sent.call.kind != Kind::send || sent.done || blocked[sent.call.peer]) continue;
                Rank& to = ranks[static_cast<size_t>(sent.call.peer)];
                Part* got = nullptr;
                for (Part& part : to.group)
                    if (!got && part.call.kind == Kind::recv && !part.done && part.call.peer == sender) got = &part;
                blocked[sent.call.peer] = true;
                if (!got) {
                    if (!to.gone) continue;
                    fail_all(nccl_remote_error, "rank " + std::to_string(sent.call.peer) + " is gone");
                    return true;
                }
                if (got->call.count != sent.call.count || got->call.type != sent.call.type) {
                    fail_all(nccl_invalid_argument, "a send and its receive have different counts or types");
                    return true;
                }
                got->out = std::move(sent.in);
                got->done = sent.done = true;
                return true;
            }
        }
        for (Rank& rank : ranks)
            for (Part& part : rank.group)
                if (part.call.kind == Kind::recv && !part.done) {
                    Rank& from = ranks[static_cast<size_t>(part.call.peer)];
                    if (!from.gone || from.waits()) continue;
                    fail_all(nccl_remote_error, "rank " + std::to_string(part.call.peer) + " is gone");
                    return true;
                }
        return false;
    }

    // Messages first: a rank without one may be ahead of the others, in a collective that they come to later.
    void match() {
        while (match_message() || match_collective())
            for (Rank& rank : ranks) {
                bool done = rank.waits();
                for (const Part& part : rank.group) done = done && part.done;
                if (done) answer(rank, nccl_success, "");
            }
    }

    // Waits for all ranks. False if the communicator cannot be made.
    bool gather(int listener) {
        std::vector<std::pair<int, Hello>> callers;
        auto refuse = [&](int code, const char* message) {
            Answer answer{};
            answer.code = code;
            snprintf(answer.message, sizeof(answer.message), "%s", message);
            for (auto& caller : callers) {
                write_all(caller.first, &answer, sizeof(answer));
                close(caller.first);
            }
            return false;
        };
        while (callers.empty() || static_cast<int>(callers.size()) < callers[0].second.ranks) {
            std::vector<pollfd> files{{listener, POLLIN, 0}};
            for (auto& caller : callers) files.push_back({caller.first, POLLIN, 0});
            if (poll(files.data(), files.size(), -1) < 0) continue;
            for (size_t i = 1; i < files.size(); i++)
                if (files[i].revents) return refuse(nccl_remote_error, "a rank left before the communicator was made");
            if (!files[0].revents) continue;
            int file = accept(listener, nullptr, nullptr);
            Hello hello{};
            if (file < 0) continue;
            if (!read_all(file, &hello, sizeof(hello)) || hello.magic != hello_magic) {
                close(file);
                continue;
            }
            callers.push_back({file, hello});
            for (size_t i = 0; i + 1 < callers.size(); i++) {
                const Hello& other = callers[i].second;
                if (other.ranks != hello.ranks || other.rank == hello.rank)
                    return refuse(nccl_invalid_argument, "ranks disagree about the communicator's size or numbers");
                if (!strcmp(other.card, hello.card))
                    return refuse(nccl_invalid_usage, "Duplicate GPU detected : two ranks on one device");
            }
        }
        ranks.resize(callers.size());
        for (auto& caller : callers) ranks[static_cast<size_t>(caller.second.rank)].file = caller.first;
        Answer ready{};
        for (Rank& rank : ranks) write_all(rank.file, &ready, sizeof(ready));
        return true;
    }

    void serve() {
        for (;;) {
            std::vector<pollfd> files;
            std::vector<int> numbers;
            for (Rank& rank : ranks)
                if (!rank.gone) {
                    files.push_back({rank.file, POLLIN, 0});
                    numbers.push_back(static_cast<int>(&rank - ranks.data()));
                }
            if (files.empty()) break;
            if (poll(files.data(), files.size(), -1) < 0) continue;
            for (size_t i = 0; i < files.size(); i++) {
                if (!files[i].revents || receive(numbers[i])) continue;
                Rank& rank = ranks[static_cast<size_t>(numbers[i])];
                rank.gone = true;
                rank.group.clear();
            }
            match();
        }
        for (Rank& rank : ranks) close(rank.file);
    }
};

}  // namespace

void serve_hub(int listener) {
    std::thread([listener] {
        Hub hub;
        bool made = hub.gather(listener);
        close(listener);
        if (made) hub.serve();
    }).detach();
}

}  // namespace millrace_sim
