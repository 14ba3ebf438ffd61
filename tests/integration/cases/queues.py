"""Shared receive queues, asynchronous events and the sizes of queues, by programs of rdma-core and perftest."""

from harness.daemon import Daemon
from harness.pairs import embedded, run_program
from harness.report import case


@case("SRQ: ibv_srq_pingpong plain, -e, many QPs")
def srq_pingpong(tool):
    with Daemon(tool) as daemon:
        for options, messages in (([], 1000), (["-e"], 1000), (["-q", "4", "-s", "20000"], 1000)):
            size = 20000 if "-s" in options else 4096
            run_program(embedded(daemon), ["ibv_srq_pingpong", *options], 2 * size * messages,
                        is_perftest=False)


@case("SRQ: ib_send_bw and ib_send_lat with --use-srq")
def srq_perftest(tool):
    with Daemon(tool) as daemon:
        for qps in (1, 4):
            run_program(embedded(daemon),
                        ["ib_send_bw", "--use-srq", "-q", str(qps), "-n", "640", "-s", "10000"],
                        640 * qps * 10000)
        run_program(embedded(daemon), ["ib_send_lat", "--use-srq", "-n", "1000", "-s", "100"],
                    2 * 1000 * 100)
