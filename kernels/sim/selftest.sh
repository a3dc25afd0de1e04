#!/bin/sh
# Builds the simulator and runs its self-tests: selftest.sh [FOLDER [NAME]]
#
# FOLDER is where to build, by default one under target/; NAME chooses the tests whose names contain it. The last line
# is "N passed, N failed". Exit code 3: there is no C++ compiler.
set -eu
source=$(cd "$(dirname "$0")" && pwd)
out=${1:-$source/../../target/sim}
"$source/build.sh" "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
${CXX:-c++} -std=c++17 -O1 -Wall -Wextra -Wno-psabi -o "$work/selftest" "$source/selftest.cpp" "$source/selftest_kernels.cpp" \
    "$source/selftest_observer.cpp" "$source/selftest_nccl.cpp" "$source/selftest_hopper.cpp" -L"$out" -lcuda -lnvrtc -l:libnccl.so.2 -lpthread -Wl,-rpath,"$out"
"$work/selftest" ${2:+"$2"}
