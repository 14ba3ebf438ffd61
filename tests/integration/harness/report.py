"""Cases, their tiers and their results. A case is a function; it passes, fails by an exception, or raises Skip with a reason."""

import os
import time
import traceback


class Skip(Exception):
    """Not possible here; the reason must be in the allow-list."""


CASES = []


def case(name, tier="quick"):
    """Registers a case. `tier`: quick cases run in both tiers, full ones only in the full tier."""

    def register(function):
        CASES.append((name, tier, function))
        return function

    return register


def read_allow_list(path):
    with open(path, encoding="utf-8") as f:
        lines = [line.split("#")[0].strip() for line in f]
    return [line for line in lines if line]


def run_all(tool, tier, pattern, allow_list):
    passed, failed, skipped = [], [], []
    for name, case_tier, function in CASES:
        if (tier == "quick" and case_tier != "quick") or pattern not in name:
            continue
        begin = time.monotonic()
        verdict, detail = "ok", ""
        try:
            function(tool)
            passed.append(name)
        except Skip as reason:
            verdict, detail = "skip", str(reason)
            skipped.append(name)
            if name not in allow_list:
                verdict, detail = "FAIL", f"skipped, and not in the allow-list: {reason}"
                skipped.pop()
                failed.append(name)
        except Exception as error:  # a case may fail in any way
            verdict = "FAIL"
            detail = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
            failed.append(name)
        print(f"{verdict:4} {name} ({time.monotonic() - begin:.1f} s) {detail}".rstrip(), flush=True)
    print(f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped", flush=True)
    return 1 if failed or not passed else 0


def require_root():
    if os.geteuid() != 0:
        raise Skip("needs root")
