"""The guest's process 1 after init.sh: takes one JSON line a command from the console, runs it, answers with its exit code.

A command's text and output are files of the shared folder, jobs/ID/{command,out,err}, so that nothing limits their size.
Lines taken: {"op": "run", "id", "seconds"}, {"op": "kill", "id"}, {"op": "off"}. Lines sent: {"event": "ready"},
{"event": "done", "id", "code"}; code 124: it ran past its time.
"""

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
import tty

JOBS = "/run/share/jobs/%s/%s"
TIMED_OUT = 124
POWER_OFF = 0x4321FEDC  # reboot(2)'s LINUX_REBOOT_CMD_POWER_OFF


class Job:
    def __init__(self, name, seconds):
        self.name = name
        self.deadline = time.monotonic() + seconds
        self.timed_out = False


def say(line, **fields):
    left = b"\n" + json.dumps(fields).encode() + b"\n"
    while left:
        left = left[os.write(line, left):]


def signal_group(pid, number):
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass


def start(jobs, request):
    name = request["id"]
    with open(JOBS % (name, "command"), encoding="utf-8") as f:
        command = f.read()
    with open(JOBS % (name, "out"), "wb") as out, open(JOBS % (name, "err"), "wb") as err:
        child = subprocess.Popen(["/bin/bash", "-c", command], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                 start_new_session=True, cwd="/tmp")
    child.returncode = 0  # reaped below, as everything that process 1 inherits
    jobs[child.pid] = Job(name, request["seconds"])


def obey(jobs, request):
    if request["op"] == "run":
        start(jobs, request)
    elif request["op"] == "kill":
        for pid, job in jobs.items():
            if job.name == request["id"]:
                signal_group(pid, signal.SIGTERM)
                job.deadline = min(job.deadline, time.monotonic() + 2)
    elif request["op"] == "off":
        for pid in jobs:
            signal_group(pid, signal.SIGKILL)
        os.sync()
        ctypes.CDLL(None).reboot(POWER_OFF)


def end_late(jobs):
    now = time.monotonic()
    for pid, job in jobs.items():
        if now > job.deadline:
            signal_group(pid, signal.SIGKILL if job.timed_out else signal.SIGTERM)
            job.timed_out = True
            job.deadline = now + 1


def reap(jobs, line):
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        job = jobs.pop(pid, None)
        if job is None:
            continue
        signal_group(pid, signal.SIGKILL)  # what the command left behind
        for stream in ("out", "err"):
            with open(JOBS % (job.name, stream), "rb") as f:
                os.fsync(f.fileno())
        code = os.waitstatus_to_exitcode(status)
        say(line, event="done", id=job.name, code=TIMED_OUT if job.timed_out else (code if code >= 0 else 128 - code))


def main():
    line = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY)
    tty.setraw(line)
    jobs = {}
    say(line, event="ready")
    taken = b""
    while True:
        if select.select([line], [], [], 0.02 if jobs else 1)[0]:
            taken += os.read(line, 65536)
        *whole, taken = taken.split(b"\n")
        for text in whole:
            if text.strip():
                obey(jobs, json.loads(text))
        end_late(jobs)
        reap(jobs, line)


main()
