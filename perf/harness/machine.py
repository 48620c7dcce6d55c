# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""What a result says about the machine and the build it comes from."""

import json
import os
import pathlib
import platform
import re
import subprocess


def read(path, default=""):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return default


def first_match(pattern, text, default="unknown"):
    match = re.search(pattern, text, re.M)
    return match.group(1).strip() if match else default


def git(root, *arguments):
    command = ["git", "-c", f"safe.directory={root}", "-C", str(root), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else None


def commit(root):
    found = git(root, "rev-parse", "HEAD")
    if found is None:
        return "unknown"
    return found + ("-changed" if git(root, "status", "--porcelain") else "")


def introspect(build, what):
    return json.loads(read(pathlib.Path(build) / "meson-info" / f"intro-{what}.json", "null"))


def libraries(build):
    found = introspect(build, "dependencies") or []
    return {entry["name"]: entry["version"] for entry in found if entry["version"] != "unknown"}


def compiler(build):
    """The first line that the build's C++ compiler says about itself."""
    command = (introspect(build, "targets") or [{}])[0].get("target_sources", [{}])[0].get("compiler")
    if not command:
        return "unknown"
    result = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    return result.stdout.partition("\n")[0] or "unknown"


def describe(root, build, quick):
    return {
        "cpu": first_match(r"^model name\s*:(.*)$", read("/proc/cpuinfo"), platform.machine()),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "compiler": compiler(build),
        "libraries": libraries(build),
        "congestion_control": read("/proc/sys/net/ipv4/tcp_congestion_control", "unknown"),
        "commit": commit(root),
        "quick": quick,
        "load_average": os.getloadavg()[0],
        "notes": [],
    }
