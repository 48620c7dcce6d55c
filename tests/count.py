#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""Counts a `meson test` run: each doctest case is one, every other test is one.

Usage: count.py BUILD/meson-logs/testlog.json. Prints `N passed, N failed`. A program that crashed, timed out
or was killed counts as a failure even when all the cases that it still reported have passed.
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


def main():
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
