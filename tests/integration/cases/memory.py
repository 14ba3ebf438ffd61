"""Memory objects: windows, invalidation, registering anew, advice."""

import os
import subprocess

from harness.daemon import Daemon
from harness.pairs import embedded
from harness.report import case


@case("memory: windows of both types, invalidate, rereg_mr, advise_mr", tier="full")
def memory_ops(tool):
    program = os.path.join(tool.build, "tests/integration/programs/memory_ops")
    with Daemon(tool) as daemon:
        before = embedded(daemon).crossed()
        done = subprocess.run(daemon.command([program, "roce0", "roce1", "3"]), capture_output=True,
                              text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        octets = int(done.stdout.split()[0])
        crossed = embedded(daemon).crossed() - before
        assert octets > 0 and crossed >= octets, f"{crossed} of {octets} payload octets crossed"
