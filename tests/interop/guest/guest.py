"""Linux Soft-RoCE as a peer on the wire: a User-Mode Linux guest with rdma_rxe, in a network namespace that it shares with a rocemud.

The guest's net0, which carries rxe0, is the tap `g0` there: a daemon with `link = af_packet:g0` is at the other end of that cable.
Its second interface is the tap `g1`, for the applications' own TCP. The guest's root is this machine's `/`, read-only.
"""

import contextlib
import ctypes
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MAC = "02:00:00:00:aa:02"
IP4, IP6 = "10.77.0.2", "fd77::2"  # of rxe0's net0; GID index 1 and 2
HOST_ADDRESS, GUEST_ADDRESS = "10.78.0.1", "10.78.0.2"  # out of band
GID_INDEX = {4: 1, 6: 2}
BOOT_SECONDS = 60
TIMED_OUT = 124  # the agent's exit code for a command that ran past its time
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG, SIGKILL = 1, 9


def kernel(build):
    """The guest's kernel: ROCEMU_GUEST_KERNEL, or the one that build_kernel makes in the build folder (once)."""
    given = os.environ.get("ROCEMU_GUEST_KERNEL")
    if given:
        return given
    made = os.path.join(build, "guest-kernel")
    subprocess.run([os.path.join(HERE, "build_kernel"), made], check=True)
    return made


class Job:
    """A command that runs in the guest."""

    def __init__(self, guest, name):
        self.guest = guest
        self.name = name
        self.folder = os.path.join(guest.share, "jobs", name)

    def wait(self, seconds):
        """(exit code, output, error output); exit code 124: it ran past its time."""
        code = self.guest.wait_done(self.name, seconds)
        texts = []
        for stream in ("out", "err"):
            with open(os.path.join(self.folder, stream), encoding="utf-8", errors="replace") as f:
                texts.append(f.read())
        return code, texts[0], texts[1]

    def kill(self):
        self.guest.send(op="kill", id=self.name)


class Guest:
    """One guest in namespace `self.netns`, up while the block runs."""

    def __init__(self, build, mtu=4300):
        self.kernel = kernel(build)
        self.mtu = mtu
        self.netns = f"rocemu-g-{os.getpid()}"
        self.dir = tempfile.mkdtemp(prefix="rocemu-guest-")
        self.share = os.path.join(self.dir, "share")
        self.jobs = 0
        self.done = {}
        self.buffer = b""
        self.process = None

    def __enter__(self):
        try:
            self._make_wire()
            self._boot()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.process is not None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self.send(op="off")
                self.process.wait(5)
            self._end_processes()
            self.line.close()
        subprocess.run(["ip", "netns", "del", self.netns], check=False, capture_output=True)
        shutil.rmtree(self.dir, ignore_errors=True)

    def start(self, command, seconds=60):
        """Starts a shell command, which the guest ends after `seconds`."""
        self.jobs += 1
        job = Job(self, f"j{self.jobs}")
        os.makedirs(job.folder)
        with open(os.path.join(job.folder, "command"), "w", encoding="utf-8") as f:
            f.write(command)
        self.send(op="run", id=job.name, seconds=seconds)
        return job

    def run(self, command, seconds=60):
        """Runs a shell command; an exit code other than 0 is an AssertionError with what it said."""
        code, out, err = self.start(command, seconds).wait(seconds + 10)
        if code != 0:
            raise AssertionError(f"guest: {command}: exit {code}\n{out[-1500:]}{err[-1500:]}")
        return out

    def send(self, **request):
        self.line.sendall(json.dumps(request).encode() + b"\n")

    def wait_done(self, name, seconds):
        self._read_until(lambda: name in self.done, seconds, f"no answer to {name}")
        return self.done.pop(name)

    def _make_wire(self):
        def ip(*words):
            subprocess.run(["ip", *words], check=True, capture_output=True, text=True)

        ip("netns", "add", self.netns)
        # The wire itself must not speak.
        subprocess.run(["ip", "netns", "exec", self.netns, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1",
                        "net.ipv6.conf.default.disable_ipv6=1", "net.ipv4.conf.all.arp_ignore=1"], check=True)
        for tap in ("g0", "g1"):
            ip("-n", self.netns, "tuntap", "add", "mode", "tap", "name", tap, "vnet_hdr")
            ip("-n", self.netns, "link", "set", tap, "mtu", "9000", "txqueuelen", "4000", "up")
        ip("-n", self.netns, "link", "set", "lo", "up")
        ip("-n", self.netns, "addr", "add", HOST_ADDRESS + "/24", "dev", "g1")

    def _boot(self):
        os.makedirs(os.path.join(self.share, "jobs"))
        for name in ("init.sh", "agent.py"):
            shutil.copy(os.path.join(HERE, name), self.share)
        os.chmod(os.path.join(self.share, "init.sh"), 0o755)
        with open("/proc/cpuinfo", encoding="utf-8") as f, \
                open(os.path.join(self.share, "cpuinfo"), "w", encoding="utf-8") as copy:
            copy.write(f.read())
        self.line, there = socket.socketpair()
        console = there.fileno()
        words = [
            self.kernel, "mem=512M", "rootfstype=hostfs", "rootflags=/", "ro", f"init={self.share}/init.sh", "panic=-1",
            f"vec0:transport=tap,ifname=g0,depth=1024,mac={MAC},mtu={self.mtu}",
            "vec1:transport=tap,ifname=g1,depth=128,mac=02:00:00:00:ab:02,mtu=1500",
            "con=null", "con0=null,fd:1", f"con1=fd:{console},fd:{console}",
            f"uml_dir={self.dir}/uml", "umid=guest",
            f"guest.share={self.share}", f"guest.mtu={self.mtu}", f"guest.ip4={IP4}/24", f"guest.ip6={IP6}/64",
            f"guest.host={GUEST_ADDRESS}/24",
        ]
        os.makedirs(os.path.join(self.dir, "uml"))
        namespace = os.open(f"/run/netns/{self.netns}", os.O_RDONLY)

        def enter():
            libc = ctypes.CDLL(None)
            libc.prctl(PR_SET_PDEATHSIG, SIGKILL)
            if libc.setns(namespace, CLONE_NEWNET):
                os._exit(126)

        with open(self.console_log, "wb") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.dir,
                                            pass_fds=[console], start_new_session=True, preexec_fn=enter)
        there.close()
        os.close(namespace)
        self._read_until(lambda: "ready" in self.done, BOOT_SECONDS, "the guest does not boot")

    @property
    def console_log(self):
        return os.path.join(self.dir, "console.log")

    def _read_until(self, is_met, seconds, complaint):
        deadline = time.monotonic() + seconds
        while not is_met():
            self.line.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                data = self.line.recv(65536)
            except TimeoutError:
                data = b""
            if not data:
                with open(self.console_log, encoding="utf-8", errors="replace") as f:
                    raise AssertionError(f"{complaint}\n{f.read()[-2000:]}")
            *rows, self.buffer = (self.buffer + data).split(b"\n")
            for row in rows:
                self._take(row)

    def _take(self, row):
        try:
            message = json.loads(row)
        except ValueError:
            return  # the console's own chatter
        if message.get("event") == "ready":
            self.done["ready"] = 0
        elif message.get("event") == "done":
            self.done[message["id"]] = message["code"]

    def _end_processes(self):
        """A User-Mode Linux that was killed leaves helpers behind; all carry our folder in their command line."""
        mark = f"guest.share={self.share}".encode()
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError):
                    with open(f"/proc/{entry}/cmdline", "rb") as f:
                        if mark in f.read():
                            os.kill(int(entry), SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
