# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""Runs benchmark programs: rounds for times, callgrind for instructions."""

import os
import re
import shutil
import subprocess
import tempfile

from . import rows

ITERATIONS = 200
ALLOCATORS = ("malloc", "calloc", "realloc", "aligned_alloc", "memalign", "posix_memalign", "mi_malloc")


class Failed(RuntimeError):
    """A program ended badly, or printed what is not a sample."""


def environment():
    # What a test runner or a debugger sets would be measured, too.
    return {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}


def run(command, **options):
    """The standard output of a program that ends well."""
    try:
        result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment(),
                                **options)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{' '.join(command)} took more than {error.timeout:.0f} s") from error
    if result.returncode != 0:
        raise Failed(f"{' '.join(command)} ended with {result.returncode}")
    return result.stdout


def pinning(one_core):
    """A command prefix: the last core that we may use, as the first ones serve interrupts."""
    cores = sorted(os.sched_getaffinity(0))
    if not one_core or len(cores) < 2 or shutil.which("taskset") is None:
        return []
    return ["taskset", "--cpu-list", str(cores[-1])]


def one_round(programs, number, quick, one_core):
    samples = []
    for program in programs:
        command = [*pinning(one_core), program, "--round", str(number), *(["--quick"] if quick else [])]
        for line in run(command).splitlines():
            try:
                samples.append(rows.parse_sample(line))
            except rows.BadSample as error:
                raise Failed(f"{program}: {error}") from error
    return samples


def profile_totals(text):
    """Instructions and calls of allocation functions in a callgrind profile."""
    total = int(re.search(r"^(?:summary|totals): (\d+)", text, re.M).group(1))
    names = dict(re.findall(r"^c?fn=(\(\d+\)) (\S+)", text, re.M))
    allocations = 0
    for function, calls in re.findall(r"^cfn=(\(\d+\)).*\n(?:.*\n)?calls=(\d+)", text, re.M):
        if names.get(function, "").split("@")[0] in ALLOCATORS:
            allocations += int(calls)
    return total, allocations


def profile(program, case, iterations):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "profile")
        run(["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={path}", program,
             "--instructions", case, str(iterations)])
        with open(path, encoding="utf-8") as file:
            return profile_totals(file.read())


def counts(programs):
    """Samples of instructions and allocations per operation, for the programs' cases that offer it.

    Two runs of N and 2N operations differ by N operations: what starts and ends a program is gone.
    """
    samples = []
    for program in programs:
        listing = run([program, "--list-instructions"])
        for line in listing.splitlines():
            case = rows.json.loads(line)
            once = profile(program, case["case"], ITERATIONS)
            twice = profile(program, case["case"], 2 * ITERATIONS)
            for metric, first, second in zip(("instructions", "allocations"), once, twice):
                samples.append({"variant": case["variant"], "params": case["params"], "metric": metric,
                                "unit": f"{metric}/op", "value": (second - first) / ITERATIONS})
    return samples
