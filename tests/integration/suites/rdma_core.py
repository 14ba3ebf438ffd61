"""rdma-core's own pyverbs test suite against a device of ours, and the comparison with the committed list of what must happen.

Each line of rdma_core_tests.txt: `TEST pass`, `TEST skip REASON` or `TEST later WHAT`, `later` being a test that cannot
pass before WHAT is there. linux_rxe_passes.txt has the tests that pass on Linux's Soft-RoCE: none of them may be a `skip`.
"""

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SUITE = "/usr/share/doc/rdma-core/tests"
# The interpreter for which the distribution's package installs pyverbs.
PYTHON = "/usr/bin/python3"

# Why a test may be skipped for good: what its name and the suite's own text must look like.
REASONS = {
    "vendor": (r"^tests\.test_(mlx5|efa|cuda)", r""),
    "xrc": (r"xrc", r"XRCD? is not supported"),
    "device-memory": (r"", r"^Device memory is not supported$"),
    "raw-packet": (r"raw|test_flow|test_rss", r"(?i)raw packet|QP type 8 is not supported"),
    "tag-matching": (r"test_tag_matching", r"Extended CQ is not supported|(?i:tag.matching)"),
    "parent-domain": (r"test_parent_domain", r"^Parent Domain is not supported"),
    "dma-buf": (r"(?i)dmabuf", r"(?i)dmabuf is not supported"),
    "device-import": (r"", r"^Importing a device is not supported$"),
    "implicit-odp": (r"implicit", r"ODP"),
    "huge-pages": (r"huge", r"^There are no huge pages"),
    "rdma-cm": (r"test_rdmacm", r"doesn't have net interface|(?i:rdma.?cm|cm id)"),
}


def read_list(name):
    """The lines of a list as tuples of words; the last word of three takes the rest of the line."""
    with open(os.path.join(HERE, name), encoding="utf-8") as f:
        lines = [line.split("#")[0].strip() for line in f]
    return [tuple(line.split(None, 2)) for line in lines if line]


def read_expected():
    """{test: (what, why)}, checked: each test once, each skip with an allowed reason, no skip that passes on Linux."""
    expected = {}
    for test, what, *why in read_list("rdma_core_tests.txt"):
        if test in expected:
            raise AssertionError(f"{test} is listed twice")
        if what not in ("pass", "skip", "later") or (what == "pass") != (not why):
            raise AssertionError(f"{test}: not a line of the list")
        if what == "skip" and why[0] not in REASONS:
            raise AssertionError(f"{test}: {why[0]} is no allowed reason for a skip")
        expected[test] = (what, why[0] if why else "")
    for test, in read_list("linux_rxe_passes.txt"):
        if expected.get(test, ("unlisted", ""))[0] not in ("pass", "later"):
            raise AssertionError(f"{test} passes on Linux, and is not expected to pass here")
    return expected


def unpack(folder):
    """The suite as an importable package below `folder`; returns its modules."""
    target = os.path.join(folder, "tests")
    os.mkdir(target)
    for name in os.listdir(SUITE):
        source = os.path.join(SUITE, name)
        if name.endswith(".gz"):
            with gzip.open(source) as packed, open(os.path.join(target, name[:-3]), "wb") as out:
                shutil.copyfileobj(packed, out)
        else:
            shutil.copy(source, target)
    return sorted(name[:-3] for name in os.listdir(target) if re.fullmatch(r"test_\w+\.py", name))


def read_results(path, why_incomplete):
    """{test: (outcome, why)} of drive.py's lines; a test that began and did not end is an error for that reason."""
    results, running = {}, None
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            for line in f:
                record = json.loads(line)
                running = record.get("begin")
                if running is None:
                    results[record["id"]] = (record["is"], record["why"])
    if running is not None:
        results[running] = ("error", why_incomplete)
    return results


def run_module(daemon, folder, module, device, limit_s):
    """Runs one module of the suite for `limit_s` seconds at most. Returns {test: (outcome, why)}."""
    path = os.path.join(folder, module + ".jsonl")
    process = subprocess.Popen(
        daemon.command([PYTHON, os.path.join(HERE, "drive.py"), folder, path, device, module]),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
        start_new_session=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    try:
        text, _ = process.communicate(timeout=limit_s)
        why = f"the process ended with {process.returncode}:\n{text[-2000:]}"
    except subprocess.TimeoutExpired:
        state = daemon.describe(device)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        why = f"no end within {limit_s} s\n{state}"
    results = read_results(path, why)
    if process.returncode != 0 and not any(outcome == "error" for outcome, _ in results.values()):
        results["tests." + module] = ("error", why)
    return results


def judge(expected, results):
    """What is not as listed, as a list of texts."""
    wrong = []
    for test in sorted(expected.keys() | results.keys()):
        if test not in expected:
            wrong.append(f"{test}: not in the list; {' '.join(results[test])}")
            continue
        what, reason = expected[test]
        if test not in results:
            wrong.append(f"{test}: did not run")
            continue
        outcome, why = results[test]
        if what == "later":
            if outcome == "pass":
                wrong.append(f"{test}: passes now: list it as pass, no longer as later ({reason})")
        elif outcome != what:
            wrong.append(f"{test}: {outcome}, expected {what}: {why.strip()[-1500:]}")
        elif what == "skip":
            name_pattern, text_pattern = REASONS[reason]
            if not re.search(name_pattern, test) or not re.search(text_pattern, why):
                wrong.append(f"{test}: skipped, but not for {reason}: {why}")
    return wrong


def run_all(daemon, folder, device, limit_s=60):
    """The whole suite. Returns {test: (outcome, why)} and the seconds that it took."""
    begin = time.monotonic()
    results = {}
    for module in unpack(folder):
        results.update(run_module(daemon, folder, module, device, limit_s))
    return results, time.monotonic() - begin
