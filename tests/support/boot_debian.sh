#!/bin/sh
# Boots systemd of the Debian in folder $1: alone among its processes, with its own mounts and its own part of the cgroups
# ($2), on this machine's network. Until whoever started it is killed.
set -eu
root=$1 group=$2

if [ "${3:-}" != inside ]; then
    mkdir "$group"
    echo $$ > "$group/cgroup.procs"
    exec unshare --pid --mount --uts --ipc --cgroup --fork --kill-child sh "$0" "$root" "$group" inside
fi

mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
mknod -m 666 dev/null c 1 3
mknod -m 666 dev/zero c 1 5
mknod -m 666 dev/full c 1 7
mknod -m 666 dev/random c 1 8
mknod -m 666 dev/urandom c 1 9
mknod -m 666 dev/tty c 5 0
mkdir dev/pts dev/shm dev/mqueue
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs tmpfs dev/shm
mount -t mqueue mqueue dev/mqueue
case $group in
    /sys/fs/cgroup/systemd/*)
        mount -t tmpfs tmpfs sys/fs/cgroup
        mkdir sys/fs/cgroup/systemd
        mount -t cgroup -o none,name=systemd,xattr cgroup sys/fs/cgroup/systemd
        ;;
    *) mount -t cgroup2 cgroup2 sys/fs/cgroup ;;
esac
mkdir -p old
pivot_root . old
umount -l /old
mount --make-rshared /
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --log-target=console --unit=multi-user.target
