// Watches the memory accesses of kernels that were compiled for it (MILLRACE_SIM_COUNT, MILLRACE_SIM_RACES).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "include/abi.h"

namespace millrace_sim {

struct Runner;
struct Observer;

// A late store is the second half of one that was counted when it was issued.
enum AccessKind { access_load, access_store, access_late_store, access_atomic };

// Called around launches and blocks of modules that were built with observation.
Observer* observe_launch(Runner& runner);
void observe_block(Observer* observer);
void observe_block_end(Observer* observer);
void observe_launch_end(Observer* observer, bool failed);
// Lanes of `group` have passed a __syncwarp.
void observe_warp_sync(Observer* observer, unsigned warp, unsigned group);

// An access by a thread of the block; `site` tells instructions apart.
void observe_access(Observer* observer, unsigned thread, const void* address, size_t bytes, AccessKind kind,
                    const void* site);

}  // namespace millrace_sim
