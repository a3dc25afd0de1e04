// cp.async: a copy is seen only after the issuing thread has waited for its group.
//
// The target is poisoned when the copy is issued, since a card may write it from then on, and written when the thread
// waits: a missing wait reads poison, and so does a target that others still use.

#include <cstring>

#include "runner.h"

namespace millrace_sim {
namespace {

void finish_copies(Runner& r, Copies& copies, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        const Copy& copy = copies.copies[i];
        // A later reader must be ordered after the wait, not only after the instruction.
        if (r.observer) observe_access(r.observer, r.now, copy.target, copy.bytes, access_late_store, copy.site);
        memcpy(copy.target, copy.source, copy.source_bytes);
        memset(copy.target + copy.source_bytes, 0, copy.bytes - copy.source_bytes);
    }
    copies.copies.erase(copies.copies.begin(), copies.copies.begin() + count);
}

}  // namespace
}  // namespace millrace_sim

using namespace millrace_sim;

extern "C" void millrace_sim_copy_async(void* target, const void* source, int bytes, int source_bytes, int line) {
    if (bytes != 4 && bytes != 8 && bytes != 16)
        millrace_sim_fail(failure_illegal_instruction, "cp.async moves 4, 8 or 16 bytes", nullptr, line);
    if (source_bytes < 0 || source_bytes > bytes)
        millrace_sim_fail(failure_illegal_instruction, "cp.async with more source bytes than bytes", nullptr, line);
    if ((reinterpret_cast<unsigned long>(target) | reinterpret_cast<unsigned long>(source)) %
        static_cast<unsigned>(bytes))
        millrace_sim_fail(failure_misaligned, "misaligned cp.async", nullptr, line);
    Runner& r = runner();
    Copies& mine = r.copies[r.now];
    if (!r.in_shared(target, static_cast<size_t>(bytes)))
        millrace_sim_fail(failure_illegal_address, "the target of cp.async is not in shared memory", nullptr, line);
    // A fault at a bad source belongs to the instruction, not to the wait.
    if (source_bytes) {
        volatile const char* at = static_cast<const char*>(source);
        (void)at[0];
        (void)at[source_bytes - 1];
    }
    if (r.observer) {
        observe_access(r.observer, r.now, target, static_cast<size_t>(bytes), access_store,
                       __builtin_return_address(0));
        if (source_bytes)
            observe_access(r.observer, r.now, source, static_cast<size_t>(source_bytes), access_load,
                           __builtin_return_address(0));
    }
    memset(target, poison_byte, static_cast<size_t>(bytes));
    mine.copies.push_back(Copy{static_cast<char*>(target), static_cast<const char*>(source),
                               static_cast<unsigned>(bytes), static_cast<unsigned>(source_bytes),
                               __builtin_return_address(0)});
    mine.uncommitted++;
}

extern "C" void millrace_sim_copy_commit() {
    Runner& r = runner();
    Copies& mine = r.copies[r.now];
    mine.groups.push_back(mine.uncommitted);
    mine.uncommitted = 0;
}

extern "C" void millrace_sim_copy_wait(int groups_left) {
    Runner& r = runner();
    Copies& mine = r.copies[r.now];
    while (mine.groups.size() > static_cast<size_t>(groups_left)) {
        finish_copies(r, mine, mine.groups.front());
        mine.groups.erase(mine.groups.begin());
    }
}

extern "C" void millrace_sim_copy_wait_all() {
    Runner& r = runner();
    Copies& mine = r.copies[r.now];
    finish_copies(r, mine, static_cast<unsigned>(mine.copies.size()));
    mine.groups.clear();
    mine.uncommitted = 0;
}
