"""Pairs of application processes: both must end by themselves in time and with exit code 0."""

import os
import signal
import socket
import subprocess
import time


class Outcome:
    def __init__(self, server, client, server_text, client_text):
        self.server = server
        self.client = client
        self.server_text = server_text
        self.client_text = client_text

    @property
    def is_good(self):
        return self.server == 0 and self.client == 0

    def require(self):
        if not self.is_good:
            raise AssertionError(
                f"server exit {self.server}, client exit {self.client}\n"
                f"--- server\n{self.server_text[-6000:]}\n--- client\n{self.client_text[-6000:]}")
        return self


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(command):
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            stdin=subprocess.DEVNULL, start_new_session=True)


def end(process):
    """Ends a process and all that it started."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()


def wait_for(process, deadline, on_timeout=None):
    """Exit code and output; past the deadline `on_timeout` looks at what hangs, then it is ended."""
    try:
        text, _ = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
        return process.returncode, text
    except subprocess.TimeoutExpired:
        seen = on_timeout() if on_timeout else ""
        end(process)
        text, _ = process.communicate()
        return 124, text + "\n(time-out)\n" + seen


def is_listening(port, netns=None):
    """Someone listens on TCP `port` (of a network namespace): looked up, so that no connection is used up."""
    command = ["ip", "netns", "exec", netns] if netns else []
    done = subprocess.run(command + ["cat", "/proc/net/tcp", "/proc/net/tcp6"], capture_output=True,
                          text=True, check=False)
    wanted = f":{port:04X}"
    for line in done.stdout.splitlines():
        fields = line.split()
        if len(fields) > 3 and fields[1].endswith(wanted) and fields[3] == "0A":
            return True
    return False


def run_pair(server, client, port, timeout=60, server_netns=None, on_timeout=None):
    """Starts the server, waits until it listens on `port`, runs the client; bounded by `timeout` seconds."""
    deadline = time.monotonic() + timeout
    server_process = start(server)
    while (time.monotonic() < deadline and server_process.poll() is None
           and not is_listening(port, server_netns)):
        time.sleep(0.01)
    client_process = start(client)
    client_code, client_text = wait_for(client_process, deadline, on_timeout)
    # A server that lost its client has nothing to wait for.
    server_code, server_text = wait_for(
        server_process, min(deadline, time.monotonic() + 5) if client_code else deadline)
    return Outcome(server_code, client_code, server_text, client_text)
