"""A rocemud of our own: started in a private run-time directory, asked by the rocemu tool, ended with everything that it started."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile


class Tool:
    """The build's programs."""

    def __init__(self, build):
        self.build = os.path.abspath(build)
        self.rocemu = os.path.join(self.build, "rocemu")
        self.rocemud = os.path.join(self.build, "rocemud")


class Daemon:
    """One daemon. `prefix` runs its processes elsewhere (a network namespace, another user)."""

    def __init__(self, tool, config=None, prefix=(), options=(), directory_mode=0o755):
        self.tool = tool
        self.prefix = list(prefix)
        self.dir = tempfile.mkdtemp(prefix="rocemu-test-")
        os.chmod(self.dir, directory_mode)
        self.config = None
        if config is not None:
            self.config = os.path.join(self.dir, "rocemu.conf")
            with open(self.config, "w", encoding="utf-8") as f:
                f.write(config)
        self.options = list(options)

    def rocemu(self, *words, check=True, timeout=30):
        command = self.prefix + [self.tool.rocemu, words[0], "--runtime-dir", self.dir, *words[1:]]
        return subprocess.run(command, check=check, timeout=timeout, capture_output=True, text=True)

    def up(self):
        words = ["up"]
        if self.config:
            words += ["--config", self.config]
        for option in self.options:
            words += ["-o", option]
        done = self.rocemu(*words, check=False, timeout=60)
        if done.returncode != 0:
            raise AssertionError("rocemu up: " + done.stderr.strip())
        return self

    def down(self):
        self.rocemu("down", check=False)
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self.up()

    def __exit__(self, *_):
        self.down()

    def command(self, words):
        """`words` as a command line that sees this daemon's devices."""
        return self.prefix + [self.tool.rocemu, "run", "--runtime-dir", self.dir, "--", *words]

    def status(self):
        return json.loads(self.rocemu("status", "--json").stdout)

    def objects(self, device):
        for entry in self.status()["devices"]:
            if entry["name"] == device:
                return entry["objects"]
        raise KeyError(device)

    def counters(self, device):
        return json.loads(self.rocemu("stat", device, "--json").stdout)[device]["counters"]

    def describe(self, device):
        return self.rocemu("stat", device, "--nonzero", "--qps", check=False).stdout

    def link(self, device, state):
        self.rocemu("link", device, state)

    def log(self):
        with open(os.path.join(self.dir, "rocemud.log"), encoding="utf-8") as f:
            return f.read()


@contextlib.contextmanager
def ordinary_users_daemon(tool, config=None):
    """A daemon of a user without any capability, whose commands run as that user, too.

    Its programs are copies: the build may stand where only root may look (/root).
    """
    user = 65534
    programs = tempfile.mkdtemp(prefix="rocemu-programs-")
    try:
        os.chmod(programs, 0o755)
        for part in ("rocemu", "rocemud", "verbs_shim/librocemu_shim.so"):
            shutil.copy(os.path.join(tool.build, part), programs)
        prefix = ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups", "--inh-caps=-all",
                  "--bounding-set=-all", "--no-new-privs"]
        daemon = Daemon(Tool(programs), config=config, prefix=prefix)
        os.chown(daemon.dir, user, user)
        with daemon:
            yield daemon
    finally:
        shutil.rmtree(programs)
