"""UC and UD: pingpongs, perftest and multicast. What is not acknowledged may be lost where the receiver is slow: the programs
that wait for every message (latency, pingpong) run as they are, bandwidth is measured with receives posted far ahead."""

from harness.daemon import Daemon
from harness.pairs import embedded, run_program
from harness.report import case

GROUP = "0:0:0:0:0:0:0:0:0:0:255:255:239:1:2:3"


@case("unreliable: ibv_uc_pingpong and ibv_ud_pingpong, plain and with events, over each GID")
def pingpongs(tool):
    with Daemon(tool) as daemon:
        for program, size in (("ibv_uc_pingpong", 4096), ("ibv_ud_pingpong", 2048)):
            for options in ([], ["-e"]):
                run_program(embedded(daemon), [program, "-s", str(size), "-n", "500", *options],
                            2 * size * 500, is_perftest=False)
            for gid in range(6):
                ends = embedded(daemon)
                ends.gid = gid
                run_program(ends, [program, "-s", "512", "-n", "50"], 2 * 512 * 50, is_perftest=False)


@case("unreliable: perftest over UC, WRITE and SEND, bandwidth and latency")
def perftest_uc(tool):
    with Daemon(tool) as daemon:
        for size in (1, 4096, 65537):
            run_program(embedded(daemon), ["ib_write_bw", "-c", "UC", "-s", str(size), "-n", "500"],
                        size * 500)
            run_program(embedded(daemon), ["ib_write_lat", "-c", "UC", "-s", str(size), "-n", "500"],
                        size * 500)
            run_program(embedded(daemon), ["ib_send_lat", "-c", "UC", "-s", str(size), "-n", "500"],
                        size * 500)
            run_program(embedded(daemon), ["ib_send_bw", "-c", "UC", "-s", str(size), "-n", "500",
                                           "-r", "500"], size * 500)


@case("unreliable: perftest over UC, many queue pairs and both directions", tier="full")
def perftest_uc_more(tool):
    with Daemon(tool) as daemon:
        for options in (["-q", "16"], ["-b"], ["-q", "8", "-b"], ["-m", "256"]):
            run_program(embedded(daemon), ["ib_write_bw", "-c", "UC", "-s", "8192", "-n", "512",
                                           *options], 8192 * 512)


@case("unreliable: perftest over UD, SEND, bandwidth and latency")
def perftest_ud(tool):
    with Daemon(tool) as daemon:
        for size in (1, 64, 1024, 4096):
            run_program(embedded(daemon), ["ib_send_lat", "-c", "UD", "-s", str(size), "-n", "1000"],
                        size * 1000)
            run_program(embedded(daemon), ["ib_send_bw", "-c", "UD", "-s", str(size), "-n", "500",
                                           "-r", "500"], size * 500)


@case("unreliable: perftest to a multicast group, bandwidth and latency")
def multicast(tool):
    with Daemon(tool) as daemon:
        run_program(embedded(daemon), ["ib_send_bw", "-c", "UD", "-g", "-M", GROUP, "-s", "1024", "-n",
                                       "500", "-r", "500"], 1024 * 500)
        run_program(embedded(daemon), ["ib_send_lat", "-c", "UD", "-g", "-M", GROUP, "-s", "64", "-n",
                                       "500"], 64 * 500)
        counters = daemon.counters("roce0")
        assert counters["multicast_rcv_packets"] >= 500, counters["multicast_rcv_packets"]
