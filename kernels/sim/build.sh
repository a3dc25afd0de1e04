#!/bin/sh
# Builds the simulator into a folder: build.sh FOLDER
#
# The folder then holds stand-ins for libcuda, libnvrtc and libnccl under the names that programs look for, and the
# headers that the stand-in NVRTC compiles kernels with. Put it in LD_LIBRARY_PATH. A folder that is up to date is left alone;
# several builds at once do not disturb each other. Exit code 3: there is no C++ compiler.
set -eu

if [ $# -ne 1 ]; then
    echo "usage: build.sh FOLDER" >&2
    exit 2
fi
source=$(cd "$(dirname "$0")" && pwd)
case $1 in
/*) out=$1 ;;
*) out=$PWD/$1 ;;
esac
cxx=${CXX:-c++}
if ! command -v ${cxx%% *} >/dev/null 2>&1; then
    echo "build.sh: no C++ compiler: $cxx not found (set CXX or install g++)" >&2
    exit 3
fi

# The second of two processes waits for the first and finds its work done.
mkdir -p "$(dirname "$out")"
if command -v flock >/dev/null 2>&1; then
    exec 9>"$out.lock"
    flock 9
fi
stamp=$(cd "$source" && cat *.cpp *.h include/*.h build.sh | cksum; $cxx -dumpfullversion)
if [ -f "$out/stamp" ] && [ "$(cat "$out/stamp")" = "$stamp" ]; then
    exit 0
fi

work=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/include"
cp "$source"/include/*.h "$work/include/"

flags="-std=c++17 -O2 -g1 -fPIC -fno-strict-aliasing -ffp-contract=off -mavx2 -mfma -fcf-protection=none -Wall -Wextra -Werror"
(
    cd "$source"
    for file in fibers memory streams driver driver_memory driver_streams driver_modules copies checks mma hopper driver_tensor_maps observer hooks; do
        echo "$file.cpp"
    done | xargs -P 2 -I{} sh -c "$cxx $flags -c {} -o '$work/{}.o'"
    $cxx $flags -fvisibility=hidden -shared -Wl,-soname,libnvrtc.so.13 -o "$work/libnvrtc.so.13" nvrtc.cpp scan.cpp
)
# Only the interfaces are seen from outside; the driver opens itself for all when it loads kernels.
echo '{ global: cu*; millrace_sim_*; __tsan_*; __ubsan_*; local: *; };' >"$work/exports"
$cxx -shared -Wl,-soname,libcuda.so.1 -Wl,--version-script="$work/exports" -o "$work/libcuda.so.1" "$work"/*.o -ldl -lpthread
rm "$work"/*.o "$work/exports"
(
    cd "$source"
    $cxx $flags -fvisibility=hidden -shared -Wl,-soname,libnccl.so.2 -Wl,-rpath,'$ORIGIN' -o "$work/libnccl.so.2" nccl.cpp nccl_hub.cpp \
        -L"$work" -l:libcuda.so.1 -lpthread
)
ln -s libcuda.so.1 "$work/libcuda.so"
ln -s libnvrtc.so.13 "$work/libnvrtc.so"
printf '%s\n' "$stamp" >"$work/stamp"
chmod 755 "$work"

# Programs that run from the old folder keep their mapped files. Without flock another process may have come first;
# its folder is as good.
if [ -d "$out" ]; then
    mv "$out" "$work.old" 2>/dev/null || true
fi
if mv -T "$work" "$out" 2>/dev/null; then
    trap - EXIT
elif [ "$(cat "$out/stamp" 2>/dev/null)" != "$stamp" ]; then
    echo "build.sh: cannot put the simulator into $out" >&2
    exit 1
fi
rm -rf "$work.old"
