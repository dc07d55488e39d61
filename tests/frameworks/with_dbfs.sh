#!/usr/bin/env bash
# with_dbfs.sh FOLDER COMMAND...: runs the command with an empty /dbfs of its own. FOLDER, an empty one, becomes the root
# of a mount namespace that has all else of the machine; the machine's own /, and a /dbfs in it, are never touched.
set -euo pipefail
if [ "$1" != --inside ]; then
    # Who is not root is so in a namespace of users of its own.
    [ "$(id -u)" -eq 0 ] || users=--map-root-user
    exec unshare --mount --propagation private ${users:+"$users"} "$0" --inside "$@"
fi
root=$2
shift 2
# A copy of another test's mount would keep its daemon, and its disk, from ending.
awk '/ - fuse[.]runfs / || $5 ~ "/runfs-" { print $5 }' /proc/self/mountinfo | tac | while read -r point; do
    umount -l "$point" 2>/dev/null || true
done
mount -t tmpfs -o mode=755 dbfs "$root"
for entry in /* /.[!.]*; do
    name=$root$entry
    if [ "$entry" = /dbfs ]; then
        continue
    elif [ -L "$entry" ]; then
        cp -P "$entry" "$name"
    elif [ -d "$entry" ]; then
        mkdir "$name"
        mount --rbind "$entry" "$name"
    elif [ -e "$entry" ]; then
        : >"$name"
        mount --bind "$entry" "$name"
    fi
done
mkdir "$root/dbfs"
exec chroot "$root" /usr/bin/env --chdir="$PWD" "$@"
