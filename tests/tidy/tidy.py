#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""Checks the rules of the tree that a compiler does not: see rules.py, one function a rule.

Usage: tidy.py [file...]    check the tracked files, or those named (relative to the root, tracked or not),
                            print `file:line: rule: message`, fail if there is any
       tidy.py --self-test  show that each rule refuses what it should and lets pass what it should
       tidy.py --list       name the rules
"""

import os
import pathlib
import subprocess
import sys

import rules

ROOT = pathlib.Path(__file__).resolve().parents[2]
OWN_FOLDERS = ("include", "lib", "examples", "tests", "perf", "docs", "subprojects/packagefiles", ".ci")


def tracked_files():
    """The paths that belong to the project, relative to the root; without git, those in its folders."""
    command = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "ls-files", "-z"]
    try:
        listing = subprocess.run(command, capture_output=True, check=True).stdout.decode()
        names = [name for name in listing.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = []
    if not names:
        for folder in OWN_FOLDERS:
            for directory, _, files in os.walk(ROOT / folder):
                names += [str((pathlib.Path(directory) / f).relative_to(ROOT)) for f in files]
        names += [p.name for p in ROOT.iterdir() if p.is_file()]
    return sorted(n for n in names if (ROOT / n).is_file() and "__pycache__" not in n)


def clang_format(names):
    """Yields what clang-format 14 would change; other versions format differently and are not asked."""
    sources = [n for n in names if n.endswith(rules.CPP)]
    try:
        version = subprocess.run(["clang-format", "--version"], capture_output=True, text=True,
                                 check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        print("format: clang-format is not installed, not checked")
        return
    if " 14." not in version:
        print(f"format: needs clang-format 14, not checked: {version.strip()}")
        return
    run = subprocess.run(["clang-format", "--dry-run", "-Werror", "--ferror-limit=0", *sources],
                         cwd=ROOT, capture_output=True, text=True, check=False) if sources else None
    for line in run.stderr.splitlines() if run else ():
        place, found, _ = line.partition(": error:")
        if found:
            name, row, _ = place.split(":")
            yield rules.Finding(name, int(row), "format", "clang-format 14 would change this line")


def read_or_none(name):
    path = ROOT / name
    return path.read_text(encoding="utf-8") if path.is_file() else None


def check_tree(names):
    findings = []
    for name in names:
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        findings += rules.check(name, text)
    findings += rules.version_agrees((ROOT / "meson.build").read_text(encoding="utf-8"),
                                     (ROOT / rules.VERSION_HEADER).read_text(encoding="utf-8"))
    for name in names:
        if name == "README.md" or (name.startswith("docs/") and name.endswith(".md")):
            findings += rules.docs_show_real_code(name, read_or_none(name), read_or_none)
    seen = set()
    for finding in clang_format(names):
        if (finding.file, finding.line) not in seen:
            seen.add((finding.file, finding.line))
            findings.append(finding)
    for finding in findings:
        print(finding)
    print(f"tidy: {len(names)} files, {len(findings)} findings")
    return 1 if findings else 0


def main():
    if "--list" in sys.argv[1:]:
        for rule in rules.RULES:
            print(f"{rule.__name__.replace('_', '-')}: {rule.__doc__.splitlines()[0]}")
        return 0
    if "--self-test" in sys.argv[1:]:
        import tidy_test
        return tidy_test.main()
    return check_tree(sys.argv[1:] or tracked_files())


if __name__ == "__main__":
    sys.exit(main())
