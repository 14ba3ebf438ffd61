"""Linux Soft-RoCE as the peer: a guest with rdma_rxe at one end of a cable, rocemud at the other. Every program in both roles,
over IPv4 and IPv6, clean and with 1 % of the frames lost in each direction; tshark looks at all that crossed."""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

from harness.apps import end, free_port, is_listening, start, wait_for
from harness.daemon import Daemon
from harness.report import case, require_root

from .two_daemons import MALFORMED

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "interop"))
from guest import guest as soft_roce  # noqa: E402

OUR_GID = {4: 3, 6: 5}
CONFIG = "[roce0]\nlink = af_packet:g0\nip = 10.77.0.1, fd77::1\nmtu = 4200\n"
MTUS = (256, 1024, 4096)
# Drops one of a hundred RoCE frames in each direction, in the guest's kernel.
LOSS = """nft -f - <<RULES
table netdev loss {
  chain in { type filter hook ingress device net0 priority 0; udp dport 4791 numgen random mod 100 == 0 counter drop; }
  chain out { type filter hook egress device net0 priority 0; udp dport 4791 numgen random mod 100 == 0 counter drop; }
}
RULES"""


class Cable:
    """Guest and daemon on one cable, and a capture of it, which is kept when the block fails."""

    def __init__(self, tool):
        require_root()
        self.guest = soft_roce.Guest(tool.build)
        self.daemon = Daemon(tool, prefix=["ip", "netns", "exec", self.guest.netns], config=CONFIG)
        self.place = tempfile.mkdtemp(prefix="rocemu-guest-capture-")
        self.capture = os.path.join(self.place, "cable.pcapng")

    def __enter__(self):
        self.guest.__enter__()
        try:
            self.daemon.up()
            self.daemon.rocemu("capture", "roce0", "start", self.capture)
        except BaseException:
            self.daemon.down()
            self.guest.__exit__()
            raise
        return self

    def __exit__(self, failure, *_):
        self.daemon.down()
        self.guest.__exit__()
        if failure:
            print(f"     capture kept: {self.capture}", flush=True)
        else:
            shutil.rmtree(self.place)

    def moved(self):
        """Payload octets that our device accepted or sent, and RoCE packets that it received, so far."""
        counters = self.daemon.counters("roce0")
        return counters["rx_payload_bytes"] + counters["tx_payload_bytes"], counters["unicast_rcv_packets"]

    def run(self, words, we_serve, payload, packets=1, seconds=60, attempts=1):
        """Runs words(is it our side?, TCP port) at both ends, the client's with the server's address behind it.

        Both must end with 0, and `payload` octets and `packets` packets must have crossed as RoCE. `attempts`: more than one for a program that ends
        without a farewell: under loss one end may be gone before the other has its last ACK. Ours fails then, rdma_rxe asks for ever.
        """
        port = free_port()
        ours = words(True, port)
        before = self.moved()
        our_code, our_text, code, their_text = self._run_once(ours, " ".join(words(False, port)), port, we_serve, seconds)
        is_last_ack_lost = (our_code == 0) != (code == 0) and (
            "retry counter exceeded" in our_text or code == soft_roce.TIMED_OUT)
        if is_last_ack_lost and attempts > 1:
            return self.run(words, we_serve, payload, packets, seconds, attempts - 1)
        if our_code or code:
            raise AssertionError(f"{' '.join(ours)}: our exit {our_code}, the guest's {code}\n--- ours\n{our_text[-3000:]}\n"
                                 f"--- guest's\n{their_text[-3000:]}")
        moved = [after - start for after, start in zip(self.moved(), before)]
        if moved[0] < payload or moved[1] < packets:
            raise AssertionError(f"{' '.join(ours)}: only {moved} of {payload} payload octets and {packets} packets crossed as RoCE")

    def _run_once(self, ours, theirs, port, we_serve, seconds):
        """(our exit code, our output, the guest's exit code, its output)"""
        deadline = time.monotonic() + seconds
        process = None
        try:
            if we_serve:
                process = start(self.daemon.command(ours))
                while time.monotonic() < deadline and process.poll() is None and not is_listening(port, self.guest.netns):
                    time.sleep(0.02)
                job = self.guest.start(f"{theirs} {soft_roce.HOST_ADDRESS}", seconds + 10)
            else:
                job = self.guest.start(theirs, seconds + 10)
                self.guest.run(f"for i in $(seq 200); do grep -q ':{port:04X} 0*:0000 0A' /proc/net/tcp /proc/net/tcp6 && exit 0; "
                               "sleep 0.05; done; exit 1", 20)
                process = start(self.daemon.command([*ours, soft_roce.GUEST_ADDRESS]))
            our_code, our_text = wait_for(process, deadline, lambda: self.daemon.describe("roce0"))
            if our_code:
                job.kill()
            code, out, err = job.wait(seconds + 10)
            return our_code, our_text, code, out + err
        finally:
            if process is not None:
                end(process)

    def require_well_formed(self):
        """tshark finds nothing malformed in all that crossed, in either direction."""
        self.daemon.rocemu("capture", "roce0", "stop")

        def count(display_filter):
            done = subprocess.run(["tshark", "-r", self.capture, "-Y", display_filter, "-T", "fields", "-e", "frame.number"],
                                  capture_output=True, text=True, check=True)
            return len(done.stdout.split())

        for side in (f"eth.src == {soft_roce.MAC}", f"eth.src != {soft_roce.MAC}"):
            assert count(f"infiniband.bth && {side}") > 100, f"few frames with {side}"
        assert count(MALFORMED) == 0, "tshark finds malformed frames"


def device_and_gid(is_ours, version):
    return ("roce0", str(OUR_GID[version])) if is_ours else ("rxe0", str(soft_roce.GID_INDEX[version]))


def perftest(program, version, mtu, *options):
    def words(is_ours, port):
        device, gid = device_and_gid(is_ours, version)
        return [program, "-d", device, "-x", gid, "-F", "-p", str(port), "-m", str(mtu), *options]
    return words


def pingpong(program, version, *options):
    def words(is_ours, port):
        device, gid = device_and_gid(is_ours, version)
        return [program, "-d", device, "-g", gid, "-p", str(port), "-c", "-n", "100", *options]
    return words


def run_pingpongs(cable, versions, mtus, attempts=1):
    for version in versions:
        for we_serve in (True, False):
            for mtu in mtus:
                for words in (pingpong("ibv_rc_pingpong", version, "-m", str(mtu)),
                              pingpong("ibv_srq_pingpong", version, "-m", str(mtu), "-q", "4")):
                    cable.run(words, we_serve, 100 * 4096, seconds=15, attempts=attempts)


def run_datagram_pingpongs(cable):
    """UC and UD lose what is lost: only on a clean cable."""
    for version in (4, 6):
        for we_serve in (True, False):
            cable.run(pingpong("ibv_ud_pingpong", version), we_serve, 100 * 2048)
            for mtu in MTUS:
                cable.run(pingpong("ibv_uc_pingpong", version, "-m", str(mtu)), we_serve, 100 * 4096)


def run_perftest(cable, versions, mtus, count):
    for version in versions:
        for we_serve in (True, False):
            for mtu in mtus:
                for verb in ("write", "read", "send"):
                    cable.run(perftest(f"ib_{verb}_bw", version, mtu, "-s", "65536", "-n", str(count), "-t", "16", "-Q", "1"),
                              we_serve, count * 65536)
                    cable.run(perftest(f"ib_{verb}_lat", version, mtu, "-s", "4097", "-n", str(count)), we_serve, count * 4097)
            for operation in ("CMP_AND_SWAP", "FETCH_AND_ADD"):
                cable.run(perftest("ib_atomic_bw", version, 1024, "-A", operation, "-n", str(count), "-t", "16", "-Q", "1"),
                          we_serve, 0, packets=count)


def run_integrity(cable, tool, seconds):
    """Our data-integrity program at both ends: random SENDs and WRITEs both ways, every octet compared on both sides.

    Neither READs nor atomics: rdma_rxe goes back without need when a response is late, and once it has gone back behind a READ, the ACK that
    it gets for the duplicate (its own responder gives the same) can leave it waiting for ever.
    """
    program = os.path.join(tool.build, "tests/integration/integrity/rocemu_integrity")
    shutil.copy(program, cable.guest.share)
    for we_serve in (True, False):
        seed = random.SystemRandom().randrange(1 << 40)

        def words(is_ours, port, we_serve=we_serve, seed=seed):
            path = program if is_ours else "/run/share/rocemu_integrity"
            device, gid = device_and_gid(is_ours, 4)
            serves = is_ours == we_serve
            line = [path, "--device", device, "--gid-index", gid, "--seconds", str(seconds), "--qps", "4", "--seed", str(seed),
                    "--no-reads", "--ack-timeout", "16",
                    "--listen" if serves else "--connect", str(port)]
            return line + (["--host", "0.0.0.0"] if serves else ["--host"])
        cable.run(words, we_serve, 1 << 20, seconds=seconds + 60)
        print(f"     integrity with the guest, seed {seed}: every octet right", flush=True)


@case("Soft-RoCE guest: RC and SRQ pingpongs in both roles, IPv4 and IPv6, every MTU", tier="full")
def guest_pingpongs(tool):
    with Cable(tool) as cable:
        run_pingpongs(cable, (4, 6), MTUS)
        cable.require_well_formed()


@case("Soft-RoCE guest: UC and UD pingpongs in both roles, IPv4 and IPv6", tier="full")
def guest_datagrams(tool):
    with Cable(tool) as cable:
        run_datagram_pingpongs(cable)
        cable.require_well_formed()


@case("Soft-RoCE guest: perftest in both roles, IPv4 and IPv6, every MTU", tier="full")
def guest_perftest(tool):
    with Cable(tool) as cable:
        run_perftest(cable, (4, 6), MTUS, 100)
        cable.require_well_formed()


@case("Soft-RoCE guest: random SENDs and WRITEs, every octet compared at both ends", tier="full")
def guest_integrity(tool):
    with Cable(tool) as cable:
        run_integrity(cable, tool, 5)
        cable.require_well_formed()


@case("Soft-RoCE guest: 1 % loss in each direction", tier="full")
def guest_with_loss(tool):
    with Cable(tool) as cable:
        cable.guest.run(LOSS)
        run_pingpongs(cable, (4, 6), (1024,), attempts=3)
        run_perftest(cable, (4, 6), (1024,), 100)
        run_integrity(cable, tool, 5)
        counted = cable.guest.run("nft list table netdev loss")
        dropped = [int(row.split("packets ")[1].split()[0]) for row in counted.splitlines() if "packets " in row]
        assert len(dropped) == 2 and min(dropped) > 0, counted
        cable.require_well_formed()


@case("Soft-RoCE guest: says no when the link is down", tier="full")
def guest_link_down(tool):
    words = perftest("ib_write_bw", 4, 1024, "-s", "4096", "-n", "5", "-u", "8")
    with Cable(tool) as cable:
        cable.run(words, True, 5 * 4096)
        cable.daemon.link("roce0", "down")
        try:
            cable.run(words, True, 5 * 4096, seconds=15)
        except AssertionError:
            return
        raise AssertionError("the run passed although the link was down")
