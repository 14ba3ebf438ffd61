#!/bin/sh
# First process of the guest. Its root is this machine's file system, read-only; what is written goes to memory, or to the shared folder.
# From the kernel's command line: guest.share, guest.ip4, guest.ip6, guest.host (address of the second, out-of-band interface), guest.mtu
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LANG=C.UTF-8 TERM=dumb
mountpoint -q /proc || mount -t proc proc /proc
mountpoint -q /sys || mount -t sysfs sys /sys
mountpoint -q /dev || mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts -o ptmxmode=666 devpts /dev/pts
for place in /dev/shm /run /var/tmp; do mount -t tmpfs memory $place; done
argument() { sed -n "s/.*\<guest\.$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
share=$(argument share)
mkdir -p /run/share /run/netns
mount -t hostfs -o "$share" share /run/share
mount -t tmpfs memory /tmp
chmod 1777 /tmp
# perftest reads the clock rate from here, and User-Mode Linux gives none
[ -s /run/share/cpuinfo ] && mount --bind /run/share/cpuinfo /proc/cpuinfo
ulimit -l unlimited
ulimit -n 65536
ulimit -c 0
sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.all.router_solicitations=0 \
  net.ipv6.conf.default.router_solicitations=0 net.ipv4.conf.all.arp_ignore=1 kernel.printk="4 4 1 7" \
  net.core.rmem_max=16777216 net.core.wmem_max=16777216
ip link set lo up
ip link set vec0 name net0
ip link set net0 mtu "$(argument mtu)"
ip link set net0 up
# after "up": the driver turns segmentation on as it opens
ethtool -K net0 tx off tso off gso off gro off >/dev/null 2>&1
ip addr add "$(argument ip4)" dev net0
ip addr add "$(argument ip6)" dev net0 nodad
ip link set vec1 up
ip addr add "$(argument host)" dev vec1
rdma link add rxe0 type rxe netdev net0
exec /usr/bin/python3 -I /run/share/agent.py /dev/tty1
