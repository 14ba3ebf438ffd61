"""Two daemons: over memif, and over AF_PACKET on a veth pair between two network namespaces, where tshark and a decoder written from
the specification look at what crosses."""

import os
import subprocess
import sys
import tempfile
import time

from harness.daemon import Daemon
from harness.namespaces import ip
from harness.pairs import Ends, run_program, whole_windows
from harness.report import case, require_root

HERE = os.path.dirname(os.path.abspath(__file__))
ORACLE = os.path.join(HERE, "..", "..", "interop", "oracle", "roce_oracle.py")

WINDOW = 32

# tshark goes on into the payload when its first bytes look like some protocol's, and finds that malformed: not our frame.
MALFORMED = '_ws.malformed && !(frame.protocols matches "infiniband:[a-z]")'

# A tenth of the matrix that touches every size, MTU and verb.
TENTH = (
    ("ib_write_bw", 1, 256, 1, False), ("ib_read_bw", 63, 1024, 1, False),
    ("ib_send_bw", 4096, 4096, 16, False), ("ib_write_bw", 65537, 1024, 16, True),
    ("ib_read_bw", 65537, 256, 1, True), ("ib_send_bw", 8388608, 1024, 1, False),
    ("ib_write_bw", 8388608, 4096, 1, False), ("ib_read_bw", 4096, 4096, 16, False),
    ("ib_send_bw", 63, 256, 1, True), ("ib_write_bw", 4096, 256, 1, False),
)


def run_tenth(ends, rows, most_mtu=4096, most_bytes=4 << 20):
    for program, size, mtu, qps, both in rows:
        count = whole_windows(max(5, min(3 * WINDOW, most_bytes // (size * qps))), WINDOW)
        depth = str(min(count, WINDOW))
        words = [program, "-s", str(size), "-m", str(min(mtu, most_mtu)), "-q", str(qps), "-n",
                 str(count), "-t", depth]
        if program == "ib_send_bw":
            words += ["-r", depth]
        if both:
            words.append("-b")
        run_program(ends, words, size * count * qps * (2 if both else 1), timeout=120)


@case("two daemons over memif: a tenth of the matrix")
def over_memif(tool):
    place = tempfile.mkdtemp(prefix="rocemu-memif-")
    socket = os.path.join(place, "memif.sock")
    server = Daemon(tool, config=f"[roce0]\nlink = memif:{socket},role=server\nip = 10.101.0.1\n"
                                 "mac = 02:00:52:6f:01:01\n")
    client = Daemon(tool, config=f"[roce1]\nlink = memif:{socket},role=client\nip = 10.101.0.2\n"
                                 "mac = 02:00:52:6f:01:02\n")
    with server, client:
        wait_for_links([(server, "roce0"), (client, "roce1")])
        run_tenth(Ends(server, client), TENTH)
        client.link("roce1", "down")
        try:
            run_program(Ends(server, client), ["ib_write_bw", "-n", "5", "-u", "8"], 1, timeout=20)
        except AssertionError:
            return
        raise AssertionError("the run passed although the link was down")


def wait_for_links(ends, seconds=10):
    deadline = time.monotonic() + seconds
    for daemon, device in ends:
        while daemon.status()["devices"][0]["state"] != "ACTIVE":
            if time.monotonic() > deadline:
                raise AssertionError(f"{device}: the link does not come up\n{daemon.log()}")
            time.sleep(0.05)


class VethPair:
    """Two namespaces joined by a veth pair without kernel addresses, so that the kernel answers nothing."""

    def __init__(self, mtu):
        tag = str(os.getpid())
        self.names = (f"rocemu-a-{tag}", f"rocemu-b-{tag}")
        self.mtu = mtu

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self):
        a, b = self.names
        for name in self.names:
            ip("netns", "add", name)
        ip("link", "add", "va", "mtu", str(self.mtu), "netns", a, "type", "veth", "peer", "name",
           "vb", "mtu", str(self.mtu), "netns", b)
        for name, device in ((a, "va"), (b, "vb")):
            subprocess.run(["ip", "netns", "exec", name, "sysctl", "-qw",
                            f"net.ipv6.conf.{device}.disable_ipv6=1"], check=True)
            ip("-n", name, "link", "set", device, "up")
            ip("-n", name, "link", "set", "lo", "up")

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@case("two daemons over a veth pair: a tenth of the matrix, seen by tshark and the oracle")
def over_veth(tool):
    require_root()
    with VethPair(mtu=4300) as pair:
        a, b = pair.names
        server = Daemon(tool, prefix=["ip", "netns", "exec", a],
                        config="[roce0]\nlink = af_packet:va\nip = 10.102.0.1\nmtu = 4200\n")
        client = Daemon(tool, prefix=["ip", "netns", "exec", b],
                        config="[roce1]\nlink = af_packet:vb\nip = 10.102.0.2\nmtu = 4200\n")
        with server, client:
            # The applications' own TCP connection needs no network: both run on this host's loopback.
            ends = Ends(AppsHere(server), AppsHere(client))
            # Each interface shows what it receives: the ports send past the place where a capture looks.
            with Dump(a, "va") as to_server, Dump(b, "vb") as to_client:
                run_tenth(ends, TENTH, most_bytes=1 << 20)
        look_at(to_server)
        look_at(to_client)


class AppsHere:
    """A daemon in a namespace whose clients run outside it."""

    def __init__(self, daemon):
        self.daemon = daemon

    def command(self, words):
        inner = self.daemon
        return [inner.tool.rocemu, "run", "--runtime-dir", inner.dir, "--", *words]

    def counters(self, device):
        return self.daemon.counters(device)

    def describe(self, device):
        return self.daemon.describe(device)


def look_at(capture):
    """tshark takes every frame but ARP for RRoCE and none for malformed; the oracle agrees on every ICRC."""
    def count(display_filter):
        done = subprocess.run(["tshark", "-r", capture, "-Y", display_filter, "-T", "fields", "-e",
                               "frame.number"], capture_output=True, text=True, check=True)
        return len(done.stdout.split())

    frames = count("not arp")
    roce = count("infiniband")
    assert frames == roce and roce > 1000, f"{frames} frames, {roce} of them RRoCE"
    assert count(MALFORMED) == 0, "tshark finds malformed frames"
    done = subprocess.run([sys.executable, ORACLE, capture, "--summary"], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-500:]


def fields_of(capture, display_filter, *fields):
    """The distinct values of `fields` over the frames that the filter takes, as a set of tuples."""
    command = ["tshark", "-r", capture, "-Y", display_filter, "-T", "fields"]
    for field in fields:
        command += ["-e", field]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {tuple(line.split("\t")) for line in done.stdout.splitlines()}


class Dump:
    """tcpdump on a namespace's interface into a file, while the block runs."""

    def __init__(self, netns, interface):
        self.file = os.path.join(tempfile.mkdtemp(prefix="rocemu-pcap-"), "veth.pcap")
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", netns, "tcpdump", "--immediate-mode", "-U", "-s0", "-B", "65536", "-i",
             interface, "-w", self.file], stderr=subprocess.PIPE, text=True)
        self.process.stderr.readline()

    def __enter__(self):
        return self.file

    def __exit__(self, *_):
        time.sleep(0.3)
        self.process.terminate()
        self.process.wait()
        self.process.stderr.close()


@case("headers on a veth pair: every GID type, traffic class, hop limit, priority, as tshark sees them", tier="full")
def headers_on_the_wire(tool):
    require_root()
    with VethPair(mtu=4300) as pair:
        a, b = pair.names
        for vlan in ("", "vlan = 7\n"):
            server = Daemon(tool, prefix=["ip", "netns", "exec", a],
                            config=f"[roce0]\nlink = af_packet:va\nip = 10.102.0.1, fd12::1\nmtu = 4200\n{vlan}")
            client = Daemon(tool, prefix=["ip", "netns", "exec", b],
                            config=f"[roce1]\nlink = af_packet:vb\nip = 10.102.0.2, fd12::2\nmtu = 4200\n{vlan}")
            with server, client:
                for gid in range(6):
                    ends = Ends(AppsHere(server), AppsHere(client), gid=gid)
                    with Dump(a, "va") as capture:
                        run_program(ends, ["ib_send_bw", "-n", "100", "-s", "4096", "--tclass", "106", "-S", "3"],
                                    100 * 4096)
                    check_headers(capture, gid, bool(vlan))


def check_headers(capture, gid, has_vlan):
    tag = ("3", "7") if has_vlan else ("", "")
    base = ("vlan.priority", "vlan.id")
    if gid % 2 == 0:  # RoCE v1
        seen = fields_of(capture, "infiniband.bth", *base, "infiniband.grh.tclass", "udp.port")
        tclass = {row[2] for row in seen}
        assert {(r[0], r[1], r[3]) for r in seen} == {(*tag, "")}, seen
        assert {int(t, 0) for t in tclass} == {106}, seen
        assert fields_of(capture, "infiniband.bth", "eth.type" if not has_vlan else "vlan.etype") == \
            {("0x8915",)}, capture
        return
    layer = "ip" if gid == 3 else "ipv6"
    hops, tclass = ("ip.ttl", "ip.dsfield") if gid == 3 else ("ipv6.hlim", "ipv6.tclass")
    seen = fields_of(capture, f"{layer} && infiniband.bth", *base, hops, tclass, "udp.dstport")
    assert {(r[0], r[1], r[2], int(r[3], 0), r[4]) for r in seen} == {(*tag, "64", 106, "4791")}, seen
    ports = fields_of(capture, "infiniband.bth", "udp.srcport")
    assert len(ports) == 1 and int(next(iter(ports))[0]) >= 0xc000, ports
