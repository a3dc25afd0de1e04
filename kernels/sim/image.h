// The image that stands for a cubin: a header and the bytes of a shared object.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "include/abi.h"

namespace millrace_sim {

struct ImageHeader {
    char magic[16];
    uint32_t abi;
    uint32_t dynamic_shared_alignment;  // the largest that a kernel asks for
    uint64_t settings;                  // of the simulator that made the image
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

inline bool enabled(const char* name, bool otherwise) {
    const char* text = getenv(name);
    return text && *text ? *text != '0' : otherwise;
}

// Kernels call the runtime before each access of memory.
inline bool observed_by_request() {
    return enabled("MILLRACE_SIM_COUNT", false) || enabled("MILLRACE_SIM_RACES", false);
}

// The folder of this library and of the headers.
inline std::string own_folder() {
    Dl_info info;
    if (!dladdr(reinterpret_cast<void*>(&own_folder), &info)) return "";
    char* real = realpath(info.dli_fname, nullptr);
    std::string path = real ? real : info.dli_fname;
    free(real);
    return path.substr(0, path.rfind('/'));
}

// What an image depends on besides its source: the simulator's build and the settings of its compilation. Programs
// keep images on disk; one that was made under other settings is refused, and they compile again.
inline uint64_t simulator_settings() {
    std::string text;
    if (FILE* file = fopen((own_folder() + "/stamp").c_str(), "rb")) {
        char part[256];
        for (size_t n; (n = fread(part, 1, sizeof(part), file)) > 0;) text.append(part, n);
        fclose(file);
    }
    text += enabled("MILLRACE_SIM_CHECKS", true) ? " checked" : "";
    text += observed_by_request() ? " observed" : "";
    return image_hash(text.data(), text.size());
}

}  // namespace millrace_sim
