"""Network namespaces with a netdev of the daemon in each: two devices on the daemon's own wire, and applications that live in them."""

import os
import subprocess

from .daemon import Daemon
from .pairs import Ends


def ip(*words, check=True):
    done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True)
    if check and done.returncode != 0:
        raise AssertionError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class InNamespace:
    """A daemon whose clients run in a network namespace."""

    def __init__(self, daemon, netns):
        self.daemon = daemon
        self.netns = netns

    def inside(self, *words):
        return ["ip", "netns", "exec", self.netns, *words]

    def command(self, words):
        inner = self.daemon
        return self.inside(inner.tool.rocemu, "run", "--runtime-dir", inner.dir, "--", *words)

    def run(self, *words, timeout=30):
        return subprocess.run(self.command(list(words)), capture_output=True, text=True,
                              timeout=timeout, check=False)

    def counters(self, device):
        return self.daemon.counters(device)

    def describe(self, device):
        return self.daemon.describe(device)


class NetdevPair:
    """roce0 with netdev rn0 in one namespace, roce1 with rn1 in another; 10.77.0.1 and .2, fd77::1 and ::2."""

    def __init__(self, tool):
        tag = str(os.getpid())
        self.names = (f"rocemu-n0-{tag}", f"rocemu-n1-{tag}")
        config = "".join(
            f"[roce{i}]\nlink = wire:w\nip = 10.77.0.{i + 1}/24, fd77::{i + 1}/64\nnetdev = rn{i}\n"
            f"netns = {name}\n" for i, name in enumerate(self.names))
        self.daemon = Daemon(tool, config=config)
        self.server = InNamespace(self.daemon, self.names[0])
        self.client = InNamespace(self.daemon, self.names[1])

    def __enter__(self):
        try:
            for name in self.names:
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
            self.daemon.up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.daemon.down()
        for name in self.names:
            ip("netns", "del", name, check=False)

    def gids(self, device):
        """The device's GID table as {index: (gid, type, netdev, vlan)}."""
        for entry in self.daemon.status()["devices"]:
            if entry["name"] == device:
                return {g["index"]: (g["gid"], g["type"], g["netdev"], g["vlan"])
                        for g in entry["gids"]}
        raise KeyError(device)

    def find_gid(self, device, gid_ending, gid_type, vlan=None):
        for index, (gid, its_type, _, its_vlan) in self.gids(device).items():
            if gid.endswith(gid_ending) and its_type == gid_type and its_vlan == vlan:
                return index
        raise AssertionError(f"{device}: no GID ...{gid_ending} {gid_type}: {self.gids(device)}")

    def ends(self, gid, host="10.77.0.1"):
        """Programs in their namespaces; the server is reached by its address on the emulated wire."""
        return Ends(self.server, self.client, host=host, gid=gid, server_netns=self.names[0])
