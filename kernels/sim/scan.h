// Finds kernels and shared arrays in preprocessed CUDA source and turns the source into plain C++.
#pragma once

#include <string>
#include <vector>

namespace millrace_sim {

struct ScanResult {
    std::string source;  // the rewritten source with the table of its kernels
    std::string error;   // "FILE:LINE: error: ...", empty if there is none
    unsigned dynamic_alignment = 16;
};

struct NameExpression {
    std::string expression, lowered;
};

ScanResult scan(const std::string& preprocessed, const std::vector<NameExpression>& expressions, bool observed);

}  // namespace millrace_sim
