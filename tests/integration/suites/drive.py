#!/usr/bin/env python3
"""Runs test modules of rdma-core's pyverbs suite against one device; says what happened to every test as one JSON line.

usage: drive.py FOLDER RESULTS DEVICE MODULE...

FOLDER holds the suite (tests/ with its __init__.py). A line {"begin": ID} is written and flushed before a test, and
{"id": ID, "is": "pass" | "skip" | "fail" | "error", "why": TEXT} after it: what hangs is the test that began and did not end.
"""

import importlib
import json
import os
import sys
import unittest


class Recorder(unittest.TestResult):
    """A unittest result that writes each test's outcome at once."""

    def __init__(self, out):
        super().__init__()
        self.out = out
        self.outcome = None

    def write(self, record):
        self.out.write(json.dumps(record) + "\n")
        self.out.flush()

    def startTest(self, test):
        super().startTest(test)
        self.outcome = ("pass", "")
        self.write({"begin": test.id()})

    def stopTest(self, test):
        super().stopTest(test)
        self.write({"id": test.id(), "is": self.outcome[0], "why": self.outcome[1]})

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        # A class that is skipped as a whole is never started.
        if self.outcome is None:
            self.write({"id": test.id(), "is": "skip", "why": reason})
        self.outcome = ("skip", reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.outcome = ("fail", self.failures[-1][1])

    def addError(self, test, err):
        super().addError(test, err)
        if self.outcome is None:
            self.write({"id": test.id(), "is": "error", "why": self.errors[-1][1]})
        self.outcome = ("error", self.errors[-1][1])

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.outcome = ("fail", str(err[1]))


def main():
    folder, results, device, *modules = sys.argv[1:]
    sys.path.insert(0, folder)
    sys.path.insert(0, os.path.join(folder, "tests"))
    # The suite reads its options from the command line, as its own run_tests.py does.
    sys.argv = ["run_tests.py", "--dev", device]
    from args_parser import parser
    parser.parse_args()
    with open(results, "w", encoding="utf-8") as out:
        recorder = Recorder(out)
        for module in modules:
            suite = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module("tests." + module))
            suite.run(recorder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
