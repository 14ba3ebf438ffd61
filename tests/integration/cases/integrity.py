"""The data-integrity program: random operations both ways, every byte compared; the daemon is the sanitizer build where there is one."""

import os
import random

from harness.apps import free_port, run_pair
from harness.daemon import Daemon
from harness.report import case


@case("integrity: random operations, every byte compared")
def integrity(tool):
    seconds = tool.integrity_seconds
    seed = random.SystemRandom().randrange(1 << 40)
    program = os.path.join(tool.build, "tests/integration/integrity/rocemu_integrity")
    with Daemon(tool.asan) as daemon:
        port = free_port()
        common = ["--seconds", str(seconds), "--qps", "6", "--seed", str(seed)]
        outcome = run_pair(
            daemon.command([program, "--device", "roce0", "--listen", str(port), *common]),
            daemon.command([program, "--device", "roce1", "--connect", str(port), *common]), port,
            timeout=seconds + 90)
        try:
            outcome.require()
        except AssertionError as failure:
            raise AssertionError(f"{failure}\n{daemon.describe('roce0')}{daemon.describe('roce1')}") from failure
        for text in (outcome.server_text, outcome.client_text):
            assert "mismatches 0" in text, text
        moved = int(outcome.server_text.split("bytes ")[1].split(",")[0])
        counters = [daemon.counters(d) for d in ("roce0", "roce1")]
        crossed = sum(c["rx_payload_bytes"] for c in counters)
        assert crossed >= moved > 0, f"{crossed} of {moved} octets crossed"
        # However slow the machine: the worker takes from the wire as much as it puts there.
        assert all(c["port_xmit_wait"] == 0 for c in counters), "the queue of the built-in wire filled"
        print(f"     seed {seed}: " + outcome.server_text.strip().splitlines()[-1], flush=True)
        assert "ERROR: " not in daemon.log() and "runtime error" not in daemon.log(), daemon.log()[-3000:]
