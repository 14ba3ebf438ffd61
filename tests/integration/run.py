#!/usr/bin/env python3
"""Integration tests: real verbs applications on rocemud. usage: run.py --build DIR [--tier quick|full] [--only PART_OF_NAME]"""

import argparse
import os
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from harness import report  # noqa: E402
from harness.daemon import Tool  # noqa: E402
import cases.basic  # noqa: E402,F401
import cases.capture  # noqa: E402,F401
import cases.integrity  # noqa: E402,F401
import cases.matrix  # noqa: E402,F401
import cases.netdev  # noqa: E402,F401
import cases.memory  # noqa: E402,F401
import cases.rdma_core_suite  # noqa: E402,F401
import cases.queues  # noqa: E402,F401
import cases.robust  # noqa: E402,F401
import cases.soft_roce  # noqa: E402,F401
import cases.two_daemons  # noqa: E402,F401
import cases.ucx  # noqa: E402,F401
import cases.unreliable  # noqa: E402,F401


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True, help="build folder with rocemu, rocemud and the shim")
    parser.add_argument("--tier", choices=["quick", "full"], default="quick")
    parser.add_argument("--asan-build", help="build folder of a sanitized daemon, for the cases that want one")
    parser.add_argument("--integrity-seconds", type=int, default=None,
                        help="length of the data-integrity case; default 20, in the full tier 90")
    parser.add_argument("--only", default="", help="run cases whose name contains this")
    given = parser.parse_args()
    allow_list = report.read_allow_list(os.path.join(HERE, "..", "skips.txt"))
    tool = Tool(given.build)
    tool.asan = Tool(given.asan_build or given.build)
    tool.integrity_seconds = given.integrity_seconds or (20 if given.tier == "quick" else 90)
    return report.run_all(tool, given.tier, given.only, allow_list)


if __name__ == "__main__":
    sys.exit(main())
