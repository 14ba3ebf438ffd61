"""Clients that die, many clients, many queue pairs."""

import os
import random
import signal
import subprocess
import time

from harness.apps import end, free_port, is_listening, start
from harness.daemon import Daemon
from harness.pairs import embedded, run_program
from harness.report import case

OBJECTS = ("contexts", "pds", "mrs", "cqs", "qps", "ahs", "channels", "inflight_requests",
           "responder_resources", "srqs", "taken_receives")


def wait_until_empty(daemon, seconds=1.5):
    """Everything that the clients held must be gone within a second (and the time to ask)."""
    deadline = time.monotonic() + seconds
    while True:
        left = {d: {k: v for k, v in daemon.objects(d).items() if k in OBJECTS and v}
                for d in ("roce0", "roce1")}
        if not any(left.values()):
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"left behind: {left}")
        time.sleep(0.02)


def kill_during_traffic(tool, times):
    seed = random.SystemRandom().randrange(1 << 32)
    draw = random.Random(seed)
    with Daemon(tool) as daemon:
        for i in range(times):
            port = free_port()
            options = ["-x", "3", "-F", "-p", str(port), "-q", "16", "-b", "-s", "65536", "-D", "30",
                       "-u", "10"]
            verb = draw.choice(["ib_write_bw", "ib_read_bw", "ib_send_bw"])
            server = start(daemon.command([verb, "-d", "roce0", *options]))
            deadline = time.monotonic() + 10
            while not is_listening(port) and time.monotonic() < deadline:
                time.sleep(0.01)
            client = start(daemon.command([verb, "-d", "roce1", *options, "127.0.0.1"]))
            time.sleep(draw.uniform(0.0, 0.5))
            victim = draw.choice([server, client])
            os.kill(victim.pid, signal.SIGKILL)
            if i % 5 == 0:
                # Others are served while the survivor retries.
                run_program(embedded(daemon), ["ib_write_bw", "-n", "50", "-s", "4096"], 50 * 4096)
            end(server)
            end(client)
            try:
                wait_until_empty(daemon)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, kill {i}: {error}") from error
        run_program(embedded(daemon), ["ib_write_bw", "-n", "50", "-s", "4096"], 50 * 4096)


@case("kill -9 during -q 16 -b traffic, 8 times")
def kill_few(tool):
    kill_during_traffic(tool, 8)


@case("kill -9 during -q 16 -b traffic, 100 times", tier="full")
def kill_many(tool):
    kill_during_traffic(tool, 100)


@case("many clients: 12 pairs at once")
def many_clients(tool):
    with Daemon(tool) as daemon:
        pairs = []
        for _ in range(12):
            port = free_port()
            options = ["-g", "3", "-p", str(port), "-n", "200"]
            server = start(daemon.command(["ibv_rc_pingpong", "-d", "roce0", *options]))
            deadline = time.monotonic() + 10
            while not is_listening(port) and time.monotonic() < deadline:
                time.sleep(0.01)
            pairs.append((server, start(daemon.command(
                ["ibv_rc_pingpong", "-d", "roce1", *options, "127.0.0.1"]))))
        for server, client in pairs:
            assert client.wait(timeout=60) == 0, client.stdout.read()
            assert server.wait(timeout=60) == 0, server.stdout.read()
        wait_until_empty(daemon)


def create_many(tool, count):
    with Daemon(tool) as daemon:
        program = os.path.join(tool.build, "tests/integration/programs/many_qps")
        done = subprocess.run(daemon.command([program, "roce0", str(count)]), capture_output=True,
                              text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{count} queue pairs" in done.stdout, done.stdout
        wait_until_empty(daemon, seconds=20)


@case("many queue pairs: 5,000 in one process")
def many_qps(tool):
    create_many(tool, 5000)


@case("many queue pairs: 100,000 in one process", tier="full")
def very_many_qps(tool):
    create_many(tool, 100000)
