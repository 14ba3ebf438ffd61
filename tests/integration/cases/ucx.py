"""UCX over our devices: ucx_perftest with its transports forced, so that nothing can go around the link."""

from harness.apps import free_port, run_pair
from harness.daemon import Daemon
from harness.pairs import embedded
from harness.report import case

ITERATIONS = 500
# rc_verbs connects by datagrams.
RC = "rc_verbs,ud_verbs:aux,self"
UD = "ud_verbs,self"
# Options, and the payload octets of an iteration.
RC_RUNS = (
    (["-t", "tag_lat", "-s", "64"], 2 * 64),
    (["-t", "tag_bw", "-s", "65536"], 65536),
    (["-t", "ucp_put_bw", "-s", "4096"], 4096),
    (["-t", "ucp_get", "-s", "4096"], 4096),
    (["-t", "ucp_fadd", "-s", "8"], 8),
    (["-t", "ucp_cswap", "-s", "8"], 8),
    (["-t", "tag_lat", "-s", "64", "-E", "sleep"], 2 * 64),
)
UD_RUNS = (
    (["-t", "tag_lat", "-s", "64"], 2 * 64),
    (["-t", "tag_bw", "-s", "4096"], 4096),
    (["-t", "tag_lat", "-s", "64", "-E", "sleep"], 2 * 64),
)


def run(daemon, transports, options, payload):
    ends = embedded(daemon)
    port = free_port()
    before = ends.crossed()

    def line(device, tail):
        return daemon.command(["env", f"UCX_TLS={transports}", f"UCX_NET_DEVICES={device}:1", "ucx_perftest",
                               "-p", str(port), "-n", str(ITERATIONS), "-w", "10", *options, *tail])

    run_pair(line("roce0", []), line("roce1", ["127.0.0.1"]), port, 60, on_timeout=ends.look).require()
    crossed = ends.crossed() - before
    if crossed < payload * ITERATIONS:
        raise AssertionError(f"{options}: only {crossed} payload octets crossed the link as RoCE")


@case("ucx_perftest over rc_verbs: tag, put, get, atomics, sleep", tier="full")
def ucx_rc(tool):
    with Daemon(tool) as daemon:
        for options, payload in RC_RUNS:
            run(daemon, RC, options, payload)


@case("ucx_perftest over ud_verbs: tag, sleep", tier="full")
def ucx_ud(tool):
    with Daemon(tool) as daemon:
        for options, payload in UD_RUNS:
            run(daemon, UD, options, payload)
