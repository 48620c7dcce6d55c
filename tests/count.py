#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""Counts a `meson test` run: each doctest case is one, every other test is one.

Usage: count.py BUILD/meson-logs/testlog.json    prints `N passed, N failed`
       count.py --self-test

A program that crashed, timed out or was killed counts as a failure even when all the cases that it still
reported have passed.
"""

import json
import re
import sys

CASES = re.compile(r"\[doctest\] test cases:\s*(\d+)\s*\|\s*(\d+) passed\s*\|\s*(\d+) failed")
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def count(lines):
    """Adds up (passed, failed, skipped) over the records of a testlog.json."""
    passed = failed = skipped = 0
    for line in lines:
        if not line.strip():
            continue
        record = json.loads(line)
        good = record["result"] in ("OK", "EXPECTEDFAIL")
        if record["result"] == "SKIP":
            skipped += 1
            continue
        reports = CASES.findall(ANSI.sub("", record.get("stdout") or ""))
        if not reports:
            passed, failed = passed + good, failed + (not good)
            continue
        case_failures = sum(int(report[2]) for report in reports)
        passed += sum(int(report[1]) for report in reports)
        failed += case_failures if good else max(case_failures, 1)
    return passed, failed, skipped


def self_test():
    """Checks the counting of what a run can contain."""
    report = "[doctest] test cases:  5 |  4 passed | 1 failed | 2 skipped\n"
    clean = "[doctest] test cases: 3 | \x1b[32m3 passed\x1b[0m | 0 failed | 0 skipped\n"
    expected = {
        ("OK", clean): (3, 0, 0), ("FAIL", report): (4, 1, 0), ("FAIL", clean): (3, 1, 0),
        ("TIMEOUT", ""): (0, 1, 0), ("FAIL", "killed by signal 11"): (0, 1, 0), ("OK", "fine"): (1, 0, 0),
        ("SKIP", ""): (0, 0, 1), ("OK", clean + clean): (6, 0, 0), ("INTERRUPT", None): (0, 1, 0),
    }
    wrong = {case: found for case, right in expected.items()
             if (found := count([json.dumps({"result": case[0], "stdout": case[1]})])) != right}
    print("self-test:", wrong or "passed")
    return 1 if wrong else 0


def main():
    if sys.argv[1] == "--self-test":
        return self_test()
    try:
        with open(sys.argv[1], encoding="utf-8") as log:
            passed, failed, skipped = count(log)
    except OSError as error:
        print(f"no test log: {error}")
        passed, failed, skipped = 0, 1, 0
    if skipped:
        print(f"{skipped} skipped: not possible on this machine")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
