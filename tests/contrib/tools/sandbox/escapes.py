"""Attempts to get out of a sandbox, as lines for busybox's shell, which is in both of them.

A line ends with exit code 0 if it has done what it must not. `$OUTSIDE` is the folder that holds the workspace,
`$AGENT` the process id of the agent, `$PORT` a port on which a server of the host listens. `/workspace/.git` exists.
"""

from __future__ import annotations

from collections.abc import Mapping

ATTEMPTS: Mapping[str, str] = {
    # mounts
    "mount tmpfs": "mkdir -p /tmp/m && mount -t tmpfs none /tmp/m",
    "mount proc": "mkdir -p /tmp/m && mount -t proc none /tmp/m",
    "mount sysfs": "mkdir -p /tmp/m && mount -t sysfs none /tmp/m",
    "bind the root": "mkdir -p /tmp/m && mount --bind / /tmp/m", "make the root writable": "mount -o remount,rw /",
    "make .git writable": "mount -o remount,rw,bind /workspace/.git", "unmount .git": "umount /workspace/.git",
    "unmount /proc": "umount -l /proc", "unmount the workspace": "umount -l /workspace",
    "chroot": "chroot /workspace /bin/true || chroot / /bin/true",
    "pivot the root": "mkdir -p /tmp/m && pivot_root / /tmp/m",
    # namespaces
    "new user namespace": "unshare -U true", "new mount namespace": "unshare -m true",
    "new PID namespace": "unshare -p -f true", "new network namespace": "unshare -n true",
    "new user and mount namespace": "unshare -U -r -m mount -t tmpfs none /tmp",
    "enter the namespaces of another process": "nsenter -t 1 -m -p true",
    "enter the namespaces of the agent": "nsenter -t $AGENT -m true",
    # devices
    "make the node of a disk": "mknod /tmp/d b 254 0 && head -c 1 /tmp/d",
    "make the node of the memory": "mknod /workspace/d c 1 1 && head -c 1 /workspace/d",
    "read the memory": "head -c 1 /dev/mem || head -c 1 /dev/kmem || head -c 1 /dev/port",
    "read a disk": "for d in /dev/[sv]d[a-z]* /dev/nvme* /dev/loop* /dev/dm-*; do head -c 1 $d && exit; done; false",
    "set up a loop device": "dd if=/dev/zero of=/tmp/i bs=1k count=64 && losetup -f /tmp/i",
    "open fuse or kvm": "test -e /dev/fuse || test -e /dev/kvm || test -e /dev/net/tun",
    # the kernel, by /proc and /sys; opened, and never written to
    "open core_pattern to write": "(: >> /proc/sys/kernel/core_pattern)",
    "open modprobe to write": "(: >> /proc/sys/kernel/modprobe)",
    "open drop_caches to write": "(: >> /proc/sys/vm/drop_caches)",
    "open ip_forward to write": "(: >> /proc/sys/net/ipv4/ip_forward)",
    "open max_user_namespaces to write": "(: >> /proc/sys/user/max_user_namespaces)",
    "open sysrq-trigger to write": "(: >> /proc/sysrq-trigger)",
    "open a setting of /sys to write": "(: >> /sys/kernel/uevent_helper) || (: >> /sys/power/state)",
    "open the release agent to write": "cd /sys/fs/cgroup && ((: >> memory/release_agent) || (: >> release_agent))",
    "make a control group": "mkdir /sys/fs/cgroup/pids/x || mkdir /sys/fs/cgroup/x || mkdir /sys/fs/cgroup/memory/x",
    "leave the control group": "echo 0 > /sys/fs/cgroup/pids/cgroup.procs || echo 0 > /sys/fs/cgroup/cgroup.procs",
    "read the image of the memory": "head -c 1 /proc/kcore | grep -q .",
    "read where pages are": "head -c 8 /proc/kpagecount | grep -q . || head -c 8 /proc/kpageflags | grep -q .",
    "read the keys of users": "grep -q . /proc/keys", "read addresses of the kernel": "grep -q '^ffff' /proc/kallsyms",
    "read the log of the kernel": "dmesg | grep -q . || head -c 1 /proc/kmsg | grep -q .",
    # processes
    "signal the agent": "kill -0 $AGENT",
    "read the environment of any process": "cat /proc/[0-9]*/environ | grep -q HANDRAIL_TEST_PRIVATE",
    "see the agent": "grep -q python /proc/[0-9]*/comm",
    "write to the memory of the agent": "dd if=/dev/null of=/proc/$AGENT/mem",
    "read through the root of a process": "cat /proc/1/root$OUTSIDE/private || cat /proc/$AGENT/root$OUTSIDE/private",
    "raise a priority": "nice -n -10 true && [ $(nice -n -10 nice) -lt 0 ]",
    "raise a limit of files": "ulimit -n 1000000", "raise the size of files": "ulimit -f unlimited",
    "raise the number of processes": "ulimit -u unlimited; for i in $(seq 40); do sleep 9 & done; kill $!",
    "find a descriptor that was inherited": "ls -l /proc/self/fd /proc/1/fd | grep -q -e socket: -e $OUTSIDE",
    # files
    "read beside the workspace": "cat $OUTSIDE/private || cat /workspace/../private",
    "read through a link": "ln -s $OUTSIDE/private /workspace/l; cat /workspace/l",
    "link a file of the host": "ln $OUTSIDE/private /workspace/h || ln /etc/shadow /workspace/h",
    "read the passwords of the host": "grep -q '^root:[^*!]' /etc/shadow",
    "read the home of the superuser": "ls -A /root | grep -q .",
    "write to programs": "for d in / /bin /usr /usr/bin /etc /lib /dev /proc /sys; do (: > $d/x) && exit; done; false",
    "give a file away": ": > /workspace/o && chown 12345 /workspace/o",
    "take the superuser's rights": "su -c true || [ $(id -u) = 0 ]", "write to .git": "(: >> /workspace/.git/config)",
    "add a hook to .git": "(: > /workspace/.git/hooks/pre-commit)",
    "put another .git in its place": "mv /workspace/.git /workspace/g || rm -rf /workspace/.git",
    # network
    "reach a server of the host": "nc -w 1 127.0.0.1 $PORT < /dev/null",
    "reach another machine": "ping -c 1 -W 1 8.8.8.8 || nc -w 1 8.8.8.8 53 < /dev/null",
    "find another interface": "grep -v -e lo: -e '|' /proc/net/dev | grep -q :",
    "make an interface": "ip link add dummy0 type dummy || ip link set lo down",
    "find the socket of an engine": "ls /run/podman/podman.sock /var/run/docker.sock /run/containerd/containerd.sock",
    # the machine
    "set the clock": "date -s '2001-01-01 00:00' && [ $(date +%Y) = 2001 ]", "name the machine": "hostname evil",
    "load a module": "modprobe dummy || insmod /workspace/data.bin",
    "swap": "dd if=/dev/zero of=/tmp/i bs=1k count=64 && mkswap /tmp/i && swapon /tmp/i",
}  # fmt: skip
"""The attempts that end at once."""

BOMBS: Mapping[str, str] = {
    "fork bomb": "b() { b | b & }; b; sleep 600",
    "fork bomb of orphans": "b() { (setsid sh -c 'sleep 600' &) ; b; }; b",
    "memory": "head -c 1000000000 /dev/zero | tail -c 900000000 | wc -c",
    "memory of many": "for i in 1 2 3 4; do (head -c 50000000 /dev/zero | tail -c 50000000 | sleep 600) & done; wait",
    "large file": "dd if=/dev/zero of=/workspace/f bs=1M count=4000",
    "temporary files": "dd if=/dev/zero of=/tmp/f bs=1M count=4000; dd if=/dev/zero of=/dev/shm/f bs=1M count=4000",
    "endless output": "yes", "endless error output": "yes >&2", "every process": "kill -9 -1; sleep 600",
    "the first process": "kill -9 1; kill -15 1; sleep 600",
    "deep folders": "n=$(head -c 200 /dev/zero | tr '\\0' a); i=0; "
    "while [ $i -lt 30 ]; do i=$((i+1)); mkdir $n; cd $n; done; sleep 600",
}  # fmt: skip
"""The attempts that use up what there is, or do not end. Each call fails or takes nothing, and the next one works."""

COUNTED = frozenset({"raise the number of processes", "fork bomb", "fork bomb of orphans"})
"""What only a limit of processes bounds, and the kernel does not count those of a superuser below bubblewrap."""
