#!/usr/bin/env bash
# full.sh MILLRACE: the tiny curation in a small file system that fills up again and again, on Linux, as root.
#
# A tmpfs of a few hundred kilobytes holds the job's folder. Each run fails with "No space left on device" and the name of a
# file; then the file system grows a little and the same command is run again, until it ends. Its results must be, byte for
# byte, those of a run with room. A loop file system in place of the tmpfs: FULL_DISK=ext4 full.sh MILLRACE (grown with
# resize2fs). Everything lies in a temporary folder, which is unmounted and removed at the end.
set -euo pipefail
repository=$(cd "$(dirname "$0")/../.." && pwd)
millrace=$(realpath "$1")
kind=${FULL_DISK:-tmpfs}
source "$repository/tests/clusters/common.sh"
folder=$(mktemp -d)
disk=$folder/disk
mkdir "$disk"
trap 'umount "$disk" 2>/dev/null || true; rm -rf "$folder"' EXIT

kilobytes=400
if [ "$kind" = tmpfs ]; then
  mount -t tmpfs -o size=${kilobytes}k millrace-full "$disk"
else
  kilobytes=1000
  truncate -s ${kilobytes}k "$folder/image"
  mkfs.ext4 -q -m 0 -O ^has_journal "$folder/image"
  mount -o loop "$folder/image" "$disk"
fi
grow() {
  kilobytes=$((kilobytes * 3 / 2))
  if [ "$kind" = tmpfs ]; then
    mount -o remount,size=${kilobytes}k "$disk"
  else
    umount "$disk"
    truncate -s ${kilobytes}k "$folder/image"
    e2fsck -fp "$folder/image" >/dev/null || true
    resize2fs "$folder/image" >/dev/null 2>&1
    mount -o loop "$folder/image" "$disk"
  fi
}

{ echo "name = \"full\""; echo "out = \"$folder/room\""; curation; } > "$folder/job.toml"
"$millrace" curate "$folder/job.toml" 2>/dev/null
"$millrace" dedup "$folder/job.toml" 2>/dev/null
failures=0
for stage in curate dedup; do
  until "$millrace" $stage "$folder/job.toml" --set "out=\"$disk/out\"" 2> "$folder/told"; do
    grep -q "No space left on device" "$folder/told" || { cat "$folder/told"; echo "another error"; exit 1; }
    grep -q "$disk/out" "$folder/told" || { cat "$folder/told"; echo "no file named"; exit 1; }
    ! grep -q "panicked" "$folder/told" || { cat "$folder/told"; exit 1; }
    failures=$((failures + 1))
    [ $failures = 1 ] && tail -1 "$folder/told"
    grow
  done
done
[ $failures -gt 2 ] || { echo "only $failures failures: nothing was tested"; exit 1; }
grow # for the sums
compare "$folder/room" "$disk/out"
echo "full.sh: $failures times without room, $kilobytes kB in the end, the same results"
