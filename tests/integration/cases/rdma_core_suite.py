"""The judge: rdma-core's own tests of verbs against roce0, test by test as the committed list says; and that the judge can say no."""

import tempfile
from collections import Counter

from harness.daemon import Daemon
from harness.report import case
from suites import rdma_core

# What the suite's traffic tests carry at least, each of them hundreds of small messages.
MIN_PAYLOAD_BYTES = 500_000


@case("rdma-core's own test suite", tier="full")
def suite(tool):
    expected = rdma_core.read_expected()
    with Daemon(tool) as daemon, tempfile.TemporaryDirectory() as folder:
        results, seconds = rdma_core.run_all(daemon, folder, "roce0")
        crossed = daemon.counters("roce0")["rx_payload_bytes"]
        left = {kind: count for kind, count in daemon.objects("roce0").items() if count}
    print("     " + ", ".join(f"{count} {outcome}" for outcome, count in
                              sorted(Counter(outcome for outcome, _ in results.values()).items())) +
          f" in {seconds:.0f} s, {crossed} payload octets crossed", flush=True)
    wrong = rdma_core.judge(expected, results)
    if wrong:
        raise AssertionError(f"{len(wrong)} tests are not as listed:\n" + "\n".join(wrong))
    if crossed < MIN_PAYLOAD_BYTES:
        raise AssertionError(f"only {crossed} payload octets crossed the link as RoCE")
    if left:
        raise AssertionError(f"objects left: {left}")


@case("rdma-core's test suite says no when the link is down", tier="full")
def suite_negative(tool):
    expected = {test: what for test, what in rdma_core.read_expected().items()
                if test.startswith("tests.test_atomic.")}
    with Daemon(tool) as daemon, tempfile.TemporaryDirectory() as folder:
        rdma_core.unpack(folder)
        good = rdma_core.run_module(daemon, folder, "test_atomic", "roce0", 60)
        wrong = rdma_core.judge(expected, good)
        if wrong:
            raise AssertionError("with the link up: " + "\n".join(wrong))
        daemon.link("roce0", "down")
        before = daemon.counters("roce0")["rx_payload_bytes"]
        bad = rdma_core.run_module(daemon, folder, "test_atomic", "roce0", 60)
        if daemon.counters("roce0")["rx_payload_bytes"] != before:
            raise AssertionError("payload crossed a link that is down")
    passing = [test for test, (what, _) in expected.items() if what == "pass"]
    missed = [test for test in passing if not any(test in line for line in rdma_core.judge(expected, bad))]
    if missed:
        raise AssertionError("not noticed with the link down: " + ", ".join(missed))
