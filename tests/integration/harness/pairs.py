"""perftest and the ibv pingpongs between two devices, with proof from our counters that the payload crossed the link as RoCE."""

import re

from .apps import free_port, run_pair


class Ends:
    """Where the server and the client run: a daemon and a device each, and the address of the out-of-band TCP connection."""

    def __init__(self, server_daemon, client_daemon, server_device="roce0", client_device="roce1",
                 host="127.0.0.1", gid=3, server_netns=None):
        self.server_daemon = server_daemon
        self.client_daemon = client_daemon
        self.server_device = server_device
        self.client_device = client_device
        self.host = host
        self.gid = gid
        self.server_netns = server_netns

    def crossed(self):
        """Payload octets accepted at both ends so far."""
        server = self.server_daemon.counters(self.server_device)
        client = self.client_daemon.counters(self.client_device)
        return server["rx_payload_bytes"] + client["rx_payload_bytes"]

    def look(self):
        """Counters and queue pairs of both ends, for a run that hangs."""
        return (self.server_daemon.describe(self.server_device) +
                self.client_daemon.describe(self.client_device))


def embedded(daemon):
    return Ends(daemon, daemon)


def run_program(ends, words, payload, timeout=60, is_perftest=True):
    """Runs `words` (program and options) at both ends. At least `payload` octets must have crossed."""
    port = free_port()
    before = ends.crossed()

    def line(daemon, device, tail):
        if is_perftest:
            options = ["-d", device, "-x", str(ends.gid), "-F", "-p", str(port)]
        else:
            options = ["-d", device, "-g", str(ends.gid), "-p", str(port)]
        return daemon.command([words[0], *options, *words[1:], *tail])

    outcome = run_pair(line(ends.server_daemon, ends.server_device, []),
                       line(ends.client_daemon, ends.client_device, [ends.host]), port, timeout,
                       ends.server_netns, ends.look)
    outcome.require()
    crossed = ends.crossed() - before
    if crossed < payload:
        raise AssertionError(f"only {crossed} of {payload} payload octets crossed the link as RoCE")
    return outcome


def whole_windows(count, window):
    """An iteration count near `count` that perftest can do with several QPs: less than a window, or whole windows.

    perftest signals one request a window and counts a whole one for it, also for what remains at the end. With a
    remainder it takes the run for complete while a QP lags behind, polls no more, and turns for ever with completions in
    its queue.
    """
    return count if count < window else count // window * window


def perftest_row(text):
    """The numbers of perftest's last result line."""
    rows = [line for line in text.splitlines() if re.match(r"^\s*\d+\s+\d+\s+[\d.]+", line)]
    if not rows:
        raise AssertionError("no result line in:\n" + text[-800:])
    return [float(field) for field in rows[-1].split() if re.match(r"^[\d.]+$", field)]
