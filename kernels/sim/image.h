// The image that stands for a cubin: a header and the bytes of a shared object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "include/abi.h"

namespace millrace_sim {

struct ImageHeader {
    char magic[16];
    uint32_t abi;
    uint32_t dynamic_shared_alignment;  // the largest that a kernel asks for
    uint64_t bytes;                     // of the object
    uint64_t object_hash, header_hash;  // damaged images are refused
};

constexpr char image_magic[16] = "MILLRACESIMOBJ1";

inline uint64_t image_hash(const void* data, size_t bytes) {
    uint64_t hash = 0xcbf29ce484222325ULL;
    const unsigned char* at = static_cast<const unsigned char*>(data);
    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
        hash ^= hash >> 29;
    }
    for (; bytes; bytes--, at++) hash = (hash ^ *at) * 0x100000001b3ULL;
    return hash;
}

inline uint64_t image_header_hash(const ImageHeader& header) {
    return image_hash(&header, offsetof(ImageHeader, header_hash));
}

}  // namespace millrace_sim
