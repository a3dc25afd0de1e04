#!/bin/sh
# Runs `millrace ARGS...` on simulated CUDA devices: tests/gpu-sim.sh [--devices N] ARGS...
#
# The real kernels and the real host code run on the CPU under the simulator of kernels/sim. Exit code and outputs are
# the program's; 3 if there is no C++ compiler.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
devices=${MILLRACE_SIM_DEVICES:-1}
if [ "${1:-}" = --devices ]; then
    devices=${2:?--devices needs a number}
    shift 2
fi
target=${CARGO_TARGET_DIR:-$root/target}
case $target in
/*) ;;
*) target=$PWD/$target ;;
esac
"$root/kernels/sim/build.sh" "$target/sim"
cargo build --quiet --release --locked --manifest-path "$root/Cargo.toml" -p millrace-pipelines >&2
export LD_LIBRARY_PATH="$target/sim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export MILLRACE_SIM_DEVICES="$devices"
exec "$target/release/millrace" "$@"
