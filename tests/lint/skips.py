#!/usr/bin/env python3
"""Fails when the last `meson test` of a build folder skipped what tests/skips.txt does not allow. usage: skips.py BUILD"""

import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(HERE, "..", "integration"))

from harness.report import read_allow_list  # noqa: E402


def skipped_tests(log):
    """Whole tests that ended as skipped, and single ones within a googletest program (its summary lists them by name)."""
    for line in log:
        test = json.loads(line)
        if test["result"] == "SKIP":
            yield test["name"]
        yield from re.findall(r"^\[  SKIPPED \] (\w\S*)$", test.get("stdout", ""), re.MULTILINE)


def main():
    with open(os.path.join(sys.argv[1], "meson-logs", "testlog.json"), encoding="utf-8") as log:
        skipped = sorted(set(skipped_tests(log)) - set(read_allow_list(os.path.join(HERE, "..", "skips.txt"))))
    for name in skipped:
        print(f"skipped, and not in tests/skips.txt: {name}", file=sys.stderr)
    return 1 if skipped else 0


if __name__ == "__main__":
    sys.exit(main())
