"""Memory objects: windows, invalidation, registering anew, advice."""

import os
import subprocess

from cases.robust import wait_until_empty
from harness.daemon import Daemon
from harness.pairs import embedded
from harness.report import case


def run(tool, daemon, *options):
    """Runs the program between both devices. What it says that it moved must have crossed the link."""
    program = os.path.join(tool.build, "tests/integration/programs/memory_ops")
    before = embedded(daemon).crossed()
    done = subprocess.run(daemon.command([program, "roce0", "roce1", "3", *options]),
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    octets = int(done.stdout.split()[0])
    crossed = embedded(daemon).crossed() - before
    assert octets > 0 and crossed >= octets, f"{crossed} of {octets} payload octets crossed"


@case("memory: windows of both types, invalidate, rereg_mr, advise_mr", tier="full")
def memory_ops(tool):
    with Daemon(tool) as daemon:
        run(tool, daemon)
        wait_until_empty(daemon)


@case("memory: a process that ends with bound windows leaves nothing", tier="full")
def bound_windows_left(tool):
    with Daemon(tool) as daemon:
        run(tool, daemon, "leave")
        wait_until_empty(daemon)
        run(tool, daemon)
