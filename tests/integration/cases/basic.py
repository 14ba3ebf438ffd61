"""Devices, pingpongs, events, errors of the tool, the negative control."""

import json
import os
import shutil
import subprocess
import tempfile

from harness.apps import free_port, run_pair
from harness.daemon import Daemon, ordinary_users_daemon
from harness.pairs import embedded, perftest_row, run_program
from harness.report import case, require_root


def run_alone(daemon, *words):
    return subprocess.run(daemon.command(list(words)), capture_output=True, text=True, timeout=30,
                          check=False)


@case("devices: ibv_devices and ibv_devinfo -v")
def devices(tool):
    with Daemon(tool) as daemon:
        listed = run_alone(daemon, "ibv_devices")
        assert listed.returncode == 0, listed.stderr
        assert "roce0" in listed.stdout and "roce1" in listed.stdout, listed.stdout
        info = run_alone(daemon, "ibv_devinfo", "-v")
        assert info.returncode == 0, info.stderr
        assert info.stdout.count("PORT_ACTIVE (4)") == 2, info.stdout
        for gid in ("::ffff:10.100.0.1", "::ffff:10.100.0.2", "RoCE v2"):
            assert gid in info.stdout, gid


@case("pingpong: ibv_rc_pingpong plain, -e, -c, -N")
def pingpong(tool):
    with Daemon(tool) as daemon:
        for options in ([], ["-e"], ["-c"], ["-N"], ["-m", "256"], ["-s", "70000", "-n", "100"]):
            size = 70000 * 100 if "-s" in options else 4096 * 1000
            run_program(embedded(daemon), ["ibv_rc_pingpong", *options], 2 * size, is_perftest=False)


@case("pingpong: every GID of the table")
def every_gid(tool):
    with Daemon(tool) as daemon:
        for gid in range(6):
            ends = embedded(daemon)
            ends.gid = gid
            run_program(ends, ["ibv_rc_pingpong", "-n", "50"], 2 * 4096 * 50, is_perftest=False)


@case("negative control: with the link down the same run fails")
def link_down(tool):
    with Daemon(tool) as daemon:
        ends = embedded(daemon)
        run_program(ends, ["ib_write_bw", "-n", "50", "-s", "4096"], 50 * 4096)
        daemon.link("roce1", "down")
        before = ends.crossed()
        port = free_port()
        server = daemon.command(["ib_write_bw", "-d", "roce0", "-x", "3", "-F", "-p", str(port),
                                 "-n", "50", "-s", "4096", "-u", "8"])
        client = daemon.command(["ib_write_bw", "-d", "roce1", "-x", "3", "-F", "-p", str(port),
                                 "-n", "50", "-s", "4096", "-u", "8", "127.0.0.1"])
        outcome = run_pair(server, client, port, timeout=20)
        assert outcome.client != 0, "the run passed although the link was down"
        assert ends.crossed() == before, "payload crossed a link that was down"
        daemon.link("roce1", "up")
        run_program(ends, ["ib_write_bw", "-n", "50", "-s", "4096"], 50 * 4096)


@case("events: ib_send_bw -e, and a solicited wait")
def events(tool):
    with Daemon(tool) as daemon:
        run_program(embedded(daemon), ["ib_send_bw", "-e", "-n", "500", "-s", "4096"], 500 * 4096)
        # A send queue of one: its place must be free when the completion is seen.
        run_program(embedded(daemon), ["ib_send_lat", "-e", "-n", "2000", "-s", "64"], 2000 * 64)
        run_program(embedded(daemon), ["ib_read_lat", "-e", "-n", "2000", "-s", "64"], 2000 * 64)


@case("atomics: ib_atomic_bw, both kinds")
def atomics(tool):
    with Daemon(tool) as daemon:
        for kind in ("FETCH_AND_ADD", "CMP_AND_SWAP"):
            run_program(embedded(daemon), ["ib_atomic_bw", "-A", kind, "-n", "500"], 500 * 8)


@case("latency: ib_write_lat and ib_send_lat, 8 bytes, median under 20 us", tier="full")
def latency(tool):
    with Daemon(tool) as daemon:
        for program in ("ib_write_lat", "ib_send_lat"):
            medians = []
            for _ in range(5):
                text = run_program(embedded(daemon), [program, "-s", "8", "-n", "5000"],
                                   5000 * 8).client_text
                medians.append(perftest_row(text)[4])
                if medians[-1] < 20:
                    break
            print(f"     {program}: typical {medians} us", flush=True)
            assert min(medians) < 20, f"{program}: medians {medians} us"


@case("tool: no daemon, bad configuration, unknown commands")
def tool_errors(tool):
    place = tempfile.mkdtemp()
    try:
        def run(*words):
            return subprocess.run([tool.rocemu, *words], capture_output=True, text=True, timeout=30,
                                  check=False)

        for words in (["status"], ["down"], ["run", "--", "true"]):
            done = run(words[0], "--runtime-dir", place, *words[1:])
            assert done.returncode == 1 and "rocemu up" in done.stderr, (words, done)
        assert run("frobnicate").returncode == 2
        config = os.path.join(place, "bad.conf")
        with open(config, "w", encoding="utf-8") as f:
            f.write("[roce0]\nlink = wire:w0\ncolour = blue\n")
        done = run("up", "--runtime-dir", place, "--config", config)
        for part in (config + ":3", "colour", "link, ip"):
            assert done.returncode == 1 and part in done.stderr, done.stderr
    finally:
        shutil.rmtree(place)


@case("tool: status, stat and a second daemon in the same place")
def tool_views(tool):
    with Daemon(tool) as daemon:
        status = daemon.status()
        assert [d["name"] for d in status["devices"]] == ["roce0", "roce1"], status
        counters = daemon.counters("roce0")
        assert counters["port_rcv_errors"] == 0 and "drop_bad_icrc" in counters
        second = daemon.rocemu("up", check=False)
        assert second.returncode == 1 and "another rocemud" in second.stderr, second.stderr
        missing = daemon.rocemu("stat", "nosuch", check=False)
        assert missing.returncode == 1 and "nosuch" in missing.stderr
        json.dumps(status)


@case("ordinary user: pingpong and ib_write_bw without capabilities")
def ordinary_user(tool):
    require_root()
    with ordinary_users_daemon(tool) as daemon:
        run_program(embedded(daemon), ["ibv_rc_pingpong"], 2 * 4096 * 1000, is_perftest=False)
        run_program(embedded(daemon), ["ib_write_bw", "-n", "200", "-s", "65536"], 200 * 65536)
