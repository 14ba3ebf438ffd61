"""The perftest matrix: sizes x path MTU x queue pairs x directions for WRITE, READ and SEND, and the latency programs."""

from harness.daemon import Daemon
from harness.pairs import embedded, run_program, whole_windows
from harness.report import case

SIZES = (1, 63, 4096, 65537, 8388608)
MTUS = (256, 1024, 4096)
VERBS = ("write", "read", "send")
MOST_BYTES = 32 << 20
WINDOW = 64


def iterations(size, qps, both):
    """Few enough to be quick and to move at most MOST_BYTES, enough to wrap what wraps."""
    most = MOST_BYTES // (size * qps * (2 if both else 1))
    return whole_windows(max(5, min(8 * WINDOW, most)), WINDOW)


def run_bandwidth(ends, verb, size, mtu, qps, both):
    count = iterations(size, qps, both)
    # perftest posts a whole window at once: the window follows the iterations.
    depth = str(min(WINDOW, count))
    words = [f"ib_{verb}_bw", "-s", str(size), "-m", str(mtu), "-q", str(qps), "-n", str(count),
             "-t", depth]
    if verb == "send":
        words += ["-r", depth]
    if both:
        words.append("-b")
    try:
        run_program(ends, words, size * count * qps * (2 if both else 1), timeout=60)
    except AssertionError as error:
        raise AssertionError(" ".join(words) + ": " + str(error)) from error


@case("matrix: one run for each size, MTU and verb (quick)")
def quick_matrix(tool):
    with Daemon(tool) as daemon:
        for i, size in enumerate(SIZES):
            for j, verb in enumerate(VERBS):
                run_bandwidth(embedded(daemon), verb, size, MTUS[(i + j) % 3],
                              16 if size < 8388608 and (i + j) % 2 else 1, both=(i + j) % 3 == 1)


def register_bandwidth(verb, mtu):
    @case(f"matrix: ib_{verb}_bw, MTU {mtu}, all sizes, 1 and 16 QPs, one way and both", tier="full")
    def bandwidth(tool):
        with Daemon(tool) as daemon:
            for size in SIZES:
                for qps in (1, 16):
                    for both in (False, True):
                        if size * 5 * qps * (2 if both else 1) > 256 << 20 and qps == 16:
                            continue  # cannot be done within 256 MiB a run
                        run_bandwidth(embedded(daemon), verb, size, mtu, qps, both)


def register_latency(verb):
    @case(f"matrix: ib_{verb}_lat, all MTUs, sizes to 65537", tier="full")
    def latency(tool):
        with Daemon(tool) as daemon:
            for size in (1, 63, 4096, 65537):
                for mtu in MTUS:
                    run_program(embedded(daemon), [f"ib_{verb}_lat", "-s", str(size), "-m", str(mtu),
                                                   "-n", "200"], size * 200)


for the_verb in VERBS:
    for the_mtu in MTUS:
        register_bandwidth(the_verb, the_mtu)
    register_latency(the_verb)
