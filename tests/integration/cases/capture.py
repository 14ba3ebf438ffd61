"""`rocemu capture`: what an independent decoder reads back is what the counters say crossed the link."""

import os
import subprocess

from harness.daemon import Daemon
from harness.pairs import embedded, run_program
from harness.report import case


def decoded(path):
    """The capture's frames as (direction, BTH opcode, UDP length), as tshark reads them; opcode and length "" where there is none."""
    done = subprocess.run(
        ["tshark", "-r", path, "-T", "fields", "-E", "separator=/t", "-e",
         "frame.packet_flags_direction", "-e", "infiniband.bth.opcode", "-e", "udp.length"],
        capture_output=True, text=True, check=True, timeout=60)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return [(int(direction, 0), opcode, length) for direction, opcode, length in rows]


@case("capture: what tshark reads is what crossed the link", tier="full")
def capture(tool):
    with Daemon(tool) as daemon:
        path = os.path.join(daemon.dir, "roce0.pcapng")
        daemon.rocemu("capture", "roce0", "start", path)
        again = daemon.rocemu("capture", "roce0", "start", path, check=False)
        assert again.returncode != 0 and "runs already" in again.stderr, again.stderr
        before = daemon.counters("roce0")
        run_program(embedded(daemon), ["ib_write_bw", "-n", "100", "-s", "4096", "-m", "1024"],
                    100 * 4096)
        after = daemon.counters("roce0")
        said = daemon.rocemu("capture", "roce0", "stop").stdout
        frames = decoded(path)
        received = [frame for frame in frames if frame[0] == 1 and frame[1]]  # others are ARP
        sent = [frame for frame in frames if frame[0] == 2 and frame[1]]
        for counter, count in (("port_rcv_packets", len(received)),
                               ("port_xmit_packets", len(sent))):
            assert after[counter] - before[counter] == count, (counter, count, before, after)
        # RC RDMA WRITE First, Middle, Last: four packets of 1024 bytes a message.
        opcodes = [opcode for _, opcode, _ in received]
        assert tuple(opcodes.count(opcode) for opcode in "678") == (100, 200, 100), opcodes
        # UDP header, BTH, payload, ICRC: computed although the wire carries none.
        assert {length for _, opcode, length in received if opcode == "7"} == {
            str(8 + 12 + 1024 + 4)}
        assert f"{len(frames)} frames recorded, 0 dropped" in said, said
        size = os.path.getsize(path)
        run_program(embedded(daemon), ["ib_write_bw", "-n", "100", "-s", "4096"], 100 * 4096)
        assert os.path.getsize(path) == size, "it records after its end"
        daemon.rocemu("capture", "roce0", "start", path)
        daemon.rocemu("capture", "roce0", "stop")
        assert os.path.getsize(path) < size, "the file is not made anew"
