"""Devices with a netdev in a network namespace each: the host's own traffic and RoCE on one emulated wire, and a GID table that follows
the netdev's addresses."""

import json
import subprocess
import threading
import time

from harness.apps import end, free_port, is_listening, run_pair, start
from harness.daemon import Daemon, ordinary_users_daemon
from harness.namespaces import NetdevPair, ip
from harness.pairs import embedded, run_program
from harness.report import case, require_root


def eventually(what, condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("did not happen: " + what)
        time.sleep(0.02)


@case("netdev: ping, iperf3 and ib_write_bw by address at once")
def all_at_once(tool):
    require_root()
    with NetdevPair(tool) as pair:
        port = free_port()
        server = start(pair.server.inside("iperf3", "-s", "-1", "-p", str(port)))
        pings = None
        try:
            eventually("iperf3 listens", lambda: is_listening(port, pair.names[0]))
            results = {}

            def iperf():
                results["iperf"] = subprocess.run(
                    pair.client.inside("iperf3", "-J", "-c", "10.77.0.1", "-p", str(port), "-t", "4"),
                    capture_output=True, text=True, timeout=60, check=False)

            def ping(address):
                results[address] = subprocess.run(
                    pair.client.inside("ping", "-i", "0.1", "-c", "30", "-W", "5", address),
                    capture_output=True, text=True, timeout=60, check=False)

            pings = [threading.Thread(target=iperf)] + [
                threading.Thread(target=ping, args=(a,)) for a in ("10.77.0.1", "fd77::1")]
            for thread in pings:
                thread.start()
            gid = pair.find_gid("roce0", "ffff:0a4d:0001", "RoCE v2")
            for _ in range(3):
                run_program(pair.ends(gid), ["ib_write_bw", "-s", "65536", "-n", "2000"], 2000 * 65536)
            for thread in pings:
                thread.join()
        finally:
            end(server)
        iperf_result = json.loads(results["iperf"].stdout)
        received = iperf_result["end"]["sum_received"]["bytes"]
        assert received > 10 << 20, f"iperf3 moved {received} octets"
        for address in ("10.77.0.1", "fd77::1"):
            assert " 0% packet loss" in results[address].stdout, results[address].stdout
        counters = pair.daemon.counters("roce0")
        # The TCP octets went over the emulated wire as well.
        assert counters["netdev_rx_frames"] * 4200 > received, counters["netdev_rx_frames"]


class Watch:
    """ibv_asyncwatch on a device, and what it has said so far."""

    def __init__(self, where, device):
        self.process = subprocess.Popen(where.command(["stdbuf", "-oL", "ibv_asyncwatch", "-d", device]),
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        stdin=subprocess.DEVNULL, start_new_session=True)
        self.lines = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        eventually("ibv_asyncwatch opens the device", lambda: any("FD" in l for l in self.lines))

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line)

    def count(self, text):
        return sum(text in line for line in self.lines)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end(self.process)
        self.reader.join()


def libibverbs_gids(where, device):
    """GIDs of ibv_devinfo -v, by index."""
    done = where.run("ibv_devinfo", "-v", "-d", device)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {}
    for line in done.stdout.splitlines():
        if "GID[" in line:
            index = int(line.split("[")[1].split("]")[0])
            found[index] = line.split(":", 1)[1].strip()
    return found


@case("netdev: an address that comes and goes changes the GID table and raises the event")
def changing_addresses(tool):
    require_root()
    with NetdevPair(tool) as pair, Watch(pair.server, "roce0") as watch:
        name = pair.names[0]
        table = pair.gids("roce0")
        assert table[0][0].startswith("fe80:") and table[0][1] == "IB/RoCE v1", table
        assert table[1][0] == table[0][0] and table[1][1] == "RoCE v2", table
        assert table[3][0].endswith("ffff:0a4d:0001") and table[3][1:] == ("RoCE v2", "rn0", None), table
        assert table[5][0].startswith("fd77:"), table
        assert len(table) == 6, table
        ip("-n", name, "addr", "add", "10.78.0.1/24", "dev", "rn0")
        eventually("the new address is a GID", lambda: len(pair.gids("roce0")) == 8)
        index = pair.find_gid("roce0", "ffff:0a4e:0001", "RoCE v2")
        assert index == 7, pair.gids("roce0")
        eventually("the event", lambda: watch.count("GID") > 0)
        assert "10.78.0.1" in libibverbs_gids(pair.server, "roce0")[7]
        ndev = pair.server.run("cat", "/sys/class/infiniband/roce0/ports/1/gid_attrs/ndevs/7")
        assert ndev.stdout == "rn0\n", ndev
        # The engine takes frames for it: traffic over the new pair of addresses.
        ip("-n", pair.names[1], "addr", "add", "10.78.0.2/24", "dev", "rn1")
        eventually("the peer's address is a GID", lambda: len(pair.gids("roce1")) == 8)
        run_program(pair.ends(7, "10.78.0.1"), ["ib_write_bw", "-n", "200"], 200 * 65536)
        # Removed: a hole, its sysfs entry empty, the engine's answer no.
        events = watch.count("GID")
        ip("-n", name, "addr", "del", "10.77.0.1/24", "dev", "rn0")
        eventually("the old address is no GID any more", lambda: len(pair.gids("roce0")) == 6)
        eventually("the event", lambda: watch.count("GID") > events)
        assert 3 not in pair.gids("roce0") and 7 in pair.gids("roce0"), pair.gids("roce0")
        shown = libibverbs_gids(pair.server, "roce0")
        assert 3 not in shown and "10.78.0.1" in shown[7], shown
        run_program(pair.ends(7, "10.78.0.1"), ["ib_write_bw", "-n", "200"], 200 * 65536)
        # What comes next takes the hole.
        ip("-n", name, "addr", "add", "10.79.0.1/24", "dev", "rn0")
        eventually("the hole is filled", lambda: 3 in pair.gids("roce0"))
        assert pair.gids("roce0")[3][0].endswith("ffff:0a4f:0001"), pair.gids("roce0")


@case("netdev: perftest over every GID type; RoCE v1 against v2 fails by name")
def every_gid_type(tool):
    require_root()
    with NetdevPair(tool) as pair:
        for gid in range(6):
            for options in ([], ["--tclass", "106", "-S", "3"]):
                run_program(pair.ends(gid), ["ib_send_bw", "-n", "200", "-s", "4096", *options],
                            200 * 4096)
        # The requester hears nothing and says so; the responder's counter says why.
        port = free_port()
        words = ["ib_write_bw", "-F", "-p", str(port), "-n", "5", "-u", "8"]
        outcome = run_pair(pair.server.command([*words, "-d", "roce0", "-x", "2"]),
                           pair.client.command([*words, "-d", "roce1", "-x", "3", "10.77.0.1"]), port,
                           timeout=30, server_netns=pair.names[0])
        assert outcome.client != 0 and "Failed status 12" in outcome.client_text, outcome.client_text
        assert pair.daemon.counters("roce0")["drop_wrong_roce_version"] > 0


@case("netdev: link down and up: carrier, state, events, sysfs, ibstat, ibstatus")
def link_down_and_up(tool):
    require_root()
    with NetdevPair(tool) as pair, Watch(pair.server, "roce0") as watch:
        def carrier():
            shown = json.loads(ip("-n", pair.names[0], "-j", "link", "show", "rn0"))
            return "NO-CARRIER" not in shown[0]["flags"]

        def views():
            state = pair.server.run("cat", "/sys/class/infiniband/roce0/ports/1/state").stdout.strip()
            info = pair.server.run("ibv_devinfo", "-d", "roce0").stdout
            stat = pair.server.run("ibstat", "roce0").stdout
            status = pair.server.run("ibstatus", "roce0").stdout
            return state, "PORT_ACTIVE" in info, "State: Active" in stat, "4: ACTIVE" in status

        assert views() == ("4: ACTIVE", True, True, True), views()
        pair.daemon.link("roce0", "down")
        eventually("the carrier goes", lambda: not carrier())
        eventually("PORT_ERR", lambda: watch.count("port error") or watch.count("PORT_ERR"))
        assert views() == ("1: DOWN", False, False, False), views()
        pair.daemon.link("roce0", "up")
        eventually("the carrier is back", carrier)
        eventually("PORT_ACTIVE", lambda: watch.count("port active") or watch.count("PORT_ACTIVE"))
        assert views() == ("4: ACTIVE", True, True, True), views()
        # A netdev that is set down takes the port with it.
        ip("-n", pair.names[0], "link", "set", "rn0", "down")
        eventually("the port goes down", lambda: views()[0] == "1: DOWN")
        ip("-n", pair.names[0], "link", "set", "rn0", "up")
        eventually("the port is up", lambda: views()[0] == "4: ACTIVE")


@case("netdev: sysfs names it; perftest -W reads two live counters")
def sysfs_tree(tool):
    require_root()
    with NetdevPair(tool) as pair:
        listed = pair.server.run("ls", "/sys/class/infiniband/roce0/device/net")
        assert listed.stdout.split() == ["rn0"], listed
        gid = pair.find_gid("roce0", "ffff:0a4d:0001", "RoCE v2")
        outcome = run_program(
            pair.ends(gid), ["ib_write_bw", "-s", "4096", "-n", "500", "-W",
                             "counters/port_rcv_packets,hw_counters/rx_write_requests"], 500 * 4096)
        text = outcome.server_text + outcome.client_text
        assert "port_rcv_packets" in text and "rx_write_requests" in text, text


@case("netdev: without the right to make one the device has its configured addresses")
def no_right(tool):
    require_root()
    config = ("[roce0]\nlink = wire:w\nip = 10.77.0.1\nnetdev = rn0\n"
              "[roce1]\nlink = wire:w\nip = 10.77.0.2\n")
    with ordinary_users_daemon(tool, config) as daemon:
        assert "CAP_NET_ADMIN" in daemon.log(), daemon.log()
        run_program(embedded(daemon), ["ib_write_bw", "-n", "50"], 50 * 65536)
    missing = Daemon(tool, config="[roce0]\nnetdev = rn0\nnetns = rocemu-no-such\n")
    try:
        missing.up()
    except AssertionError as error:
        assert "rocemu-no-such" in str(error), error
    else:
        raise AssertionError("a namespace that does not exist was taken")
    finally:
        missing.down()
