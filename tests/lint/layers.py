#!/usr/bin/env python3
"""Layer rules R1-R4, file length, opening comments, left-over marks, and the README's map, by text alone. usage: layers.py TOP"""

import os
import re
import sys

# Folder prefix -> (layer, prefixes that it may include from). Headers of base and abi are open to all.
LAYERS = {
    "include/rocemu/base/": (0, ()),
    "include/rocemu/abi/": (1, ()),
    "dataplane/wire/": (2, ("dataplane/wire/",)),
    "dataplane/memory/host/": (5, ("dataplane/memory/",)),
    "dataplane/memory/": (2, ("dataplane/memory/",)),
    "dataplane/sched/": (2, ("dataplane/sched/",)),
    "dataplane/transport/": (3, ("dataplane/wire/", "dataplane/memory/", "dataplane/sched/",
                                 "dataplane/transport/")),
    "dataplane/engine/": (4, ("dataplane/wire/", "dataplane/memory/", "dataplane/sched/",
                              "dataplane/transport/", "dataplane/engine/")),
    "dataplane/fabric/": (4, ("dataplane/wire/", "dataplane/engine/", "dataplane/fabric/")),
    "dataplane/dpdk/": (5, ("dataplane/",)),
    "control/": (6, ("dataplane/", "control/")),
    "verbs_shim/": (6, ("verbs_shim/",)),
}

CORE = ("dataplane/wire/", "dataplane/memory/", "dataplane/sched/", "dataplane/transport/",
        "dataplane/engine/", "dataplane/fabric/")
OUTER = ("dataplane/memory/host/",)

CORE_FORBIDDEN = [
    (r"\brte_", "DPDK belongs to dataplane/dpdk"),
    (r"infiniband/", "verbs headers belong to the front ends"),
    (r"spdlog|boost/", "logging and options belong to control"),
    (r"<(thread|mutex|condition_variable|shared_mutex|future|chrono|random|iostream)>",
     "no threads, locks, clocks, streams in the core"),
    (r"\b(clock_gettime|steady_clock|system_clock|gettimeofday|rdtsc)\b", "time is an argument"),
    (r"\b(getenv|std::rand|srand|random_device)\b", "no environment, no unseeded randomness"),
]
EVERYWHERE_FORBIDDEN = [
    (r"#include <rte_", ("dataplane/dpdk/",), "<rte_*> only in dataplane/dpdk"),
    (r"#include <(rdma|infiniband)/", ("control/uverbs/", "verbs_shim/", "tests/"),
     "kernel and verbs headers only in the front ends"),
    (r"boost/program_options", ("control/config", "control/cli/", "tests/"),
     "Boost.Program_options only in configuration and the tool"),
    (r"spdlog", ("control/",), "spdlog only in control"),
]
MARKS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
SOURCE = (".h", ".cc", ".c", ".py")
MAX_LINES = 600


def sources(top):
    for folder in ("include", "dataplane", "control", "verbs_shim", "tests", "bench"):
        for path, _, names in os.walk(os.path.join(top, folder)):
            for name in names:
                if name.endswith(SOURCE):
                    yield os.path.relpath(os.path.join(path, name), top)


def layer_of(path):
    found = [prefix for prefix in LAYERS if path.startswith(prefix)]
    return max(found, key=len) if found else None


def check_includes(path, text, complain):
    mine = layer_of(path)
    if mine is None:
        return
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'#include "(?:include/)?([^"]+)"', line)
        if not match or match[1].startswith("rocemu/base/"):
            continue
        target = match[1]
        if target.startswith("rocemu/abi/"):
            if mine == "include/rocemu/base/":
                complain(path, number, "base includes nothing of ours")
            continue
        if not target.startswith(LAYERS[mine][1]):
            complain(path, number, f"{mine} may not include {target}")


def check_tokens(path, text, complain):
    is_core = path.startswith(CORE) and not path.startswith(OUTER)
    for number, line in enumerate(text.splitlines(), 1):
        if is_core:
            for pattern, why in CORE_FORBIDDEN:
                if re.search(pattern, line):
                    complain(path, number, why)
        for pattern, allowed, why in EVERYWHERE_FORBIDDEN:
            if re.search(pattern, line) and not path.startswith(allowed) and \
                    not path.startswith("tests/lint/"):
                complain(path, number, why)
        if MARKS.search(line) and not path.startswith("tests/lint/"):
            complain(path, number, "finish it or drop it; no marks are left behind")


def check_shape(path, text, complain):
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        complain(path, len(lines), f"more than {MAX_LINES} lines: is it still one job?")
    if path.endswith(".h") and not lines[0].startswith(("//", "/*")):
        complain(path, 1, "a header opens with what the module is")


def check_map(top, complain):
    """Every tracked top-level folder is named in the README, and every folder that it names exists."""
    with open(os.path.join(top, "README.md"), encoding="utf-8") as f:
        readme = f.read()
    named = set(re.findall(r"^\| `([\w./]+)/`", readme, re.M))
    folders = {entry for entry in os.listdir(top)
               if os.path.isdir(os.path.join(top, entry)) and not entry.startswith((".", "build"))}
    for folder in sorted(folders):
        if not any(name == folder or name.startswith(folder + "/") for name in named):
            complain("README.md", 1, f"the map does not name {folder}/")
    for name in sorted(named):
        if not os.path.isdir(os.path.join(top, name)):
            complain("README.md", 1, f"the map names {name}/, which is not there")


def main():
    top = sys.argv[1]
    complaints = []

    def complain(path, number, what):
        complaints.append(f"{path}:{number}: {what}")

    count = 0
    for path in sources(top):
        count += 1
        with open(os.path.join(top, path), encoding="utf-8") as f:
            text = f.read()
        check_includes(path, text, complain)
        check_tokens(path, text, complain)
        check_shape(path, text, complain)
    check_map(top, complain)
    print("\n".join(complaints) if complaints else f"{count} files keep the rules")
    return 1 if complaints or count < 50 else 0


if __name__ == "__main__":
    sys.exit(main())
