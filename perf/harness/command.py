# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""The command line of perf/run."""

import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys

from . import bounds, catalogue, machine, measure, network, rows, servers

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUICK_ROUNDS = 3
MESSAGES = 6400  # of a server whose instructions and system calls are counted
QUICK_MESSAGES = 1280

PREPARE = """
cd "$1" && . .ci/setup || exit 1
prepare "$2" $needs_build $needs_perf || exit 1
prepare "$2" $needs_peers || step "what is missing of the peers is left out"
configure build $(cat build/options 2>/dev/null || echo --buildtype=release)
"""


class Refused(RuntimeError):
    """Says what the user can do about it."""


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="perf/run", description="Builds what the benchmarks need, runs them and prints tables. Without "
        "a name all benchmarks run, and a run that was interrupted goes on where it stopped.")
    parser.add_argument("name", nargs="?", default="all", help="a benchmark, or all (the default)")
    parser.add_argument("--list", action="store_true", help="name the benchmarks")
    parser.add_argument("--quick", action="store_true", help="few cases and rounds: to look at, not to quote")
    parser.add_argument("--only", metavar="NAME=VALUE", action="append", default=[],
                        help="of a benchmark with servers, just the jobs with this parameter, "
                        "connections=64 say; may be repeated")
    parser.add_argument("--again", action="store_true", help="measure all again, whatever is done already")
    parser.add_argument("--json", metavar="FILE", help="write the results there, too")
    parser.add_argument("--no-install", action="store_true", help="fail when something is missing")
    parser.add_argument("--built", metavar="FOLDER", help="use the programs of this build, as they are")
    return parser.parse_args(arguments)


def say(text=""):
    print(text, flush=True)


def targets(build):
    return {pathlib.Path(name).resolve() for target in machine.introspect(build, "targets") or []
            for name in target["filename"]}


def prepare(no_install):
    command = ["bash", "-c", PREPARE, "prepare", str(ROOT), "yes" if no_install else "no"]
    if subprocess.run(command, check=False).returncode != 0:
        raise Refused("the build could not be prepared")


def make(build, benchmark):
    """Compiles the programs of a benchmark that this build has."""
    known = targets(build)
    wanted = [f"perf/{name}" for name in (*benchmark.programs, *benchmark.needs)
              if (build / "perf" / name).resolve() in known]
    command = ["ninja", "-C", str(build), "--quiet", *wanted]
    if wanted and subprocess.run(command, check=False).returncode != 0:
        raise Refused(f"{benchmark.name} does not compile")


def programs_of(build, benchmark):
    found = [str(build / "perf" / name) for name in benchmark.programs]
    found = [program for program in found if os.path.isfile(program)]
    if not found or benchmark.servers and not servers.built(build, benchmark.servers):
        raise Refused(f"{benchmark.name} is not built: see what 'meson setup' leaves out")
    return found


def fingerprint(build, programs):
    """Of what was measured: a change of comments does not spoil a result, one of code or flags does."""
    digest = hashlib.sha256()
    libraries = sorted((build / "lib").glob("liblinkspan*.so.*.*.*"))
    for path in [*programs, *libraries]:
        if os.path.isfile(path):
            digest.update(pathlib.Path(path).read_bytes())
    return digest.hexdigest()


def results_of(build, benchmark):
    return build / "perf-results" / f"{benchmark.name}.json"


def kept_result(build, benchmark, quick, mark):
    """The result of an earlier run of the same programs, or None."""
    try:
        kept = json.loads(results_of(build, benchmark).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    same = kept.get("programs") == mark and kept["result"]["machine"]["quick"] == quick
    return kept["result"] if same else None


def write_atomically(path, document):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def measure_programs(benchmark, programs, quick):
    """The rounds and what was counted, lists of samples."""
    rounds = []
    for number in range(QUICK_ROUNDS if quick else benchmark.rounds):
        say(f"==> {benchmark.name}: round {number + 1}")
        rounds.append(measure.one_round(programs, number, quick, benchmark.one_core))
    if quick:
        return rounds, []
    say(f"==> {benchmark.name}: instructions")
    return rounds, measure.counts(programs)


def jobs_of(benchmark, options):
    wanted = [name.partition("=") for name in options.only]
    jobs = [job for job in benchmark.jobs if (job.quick or not options.quick) and
            all(str(job.params.get(name)) == value for name, _, value in wanted)]
    if not jobs:
        raise Refused(f"{benchmark.name} has no job with {' and '.join(options.only)}")
    return jobs


def measure_servers(build, benchmark, about, options):
    """The same for servers; `about` is told what they met."""
    quick = options.quick
    with network.own() as net:
        place = servers.Place(build, net, network.cores())
        jobs = jobs_of(benchmark, options)
        variants, refused = servers.startable(place, servers.built(build, benchmark.servers), jobs)
        about["notes"] = [note for note in (net.note, place.cores.note) if note]
        about["notes"] += [f"{name} does not start here" for name in refused]
        about["congestion_control"] = "cubic" if net.prefix else about["congestion_control"]
        rounds = []
        for number in range(QUICK_ROUNDS if quick else benchmark.rounds):
            say(f"==> {benchmark.name}: round {number + 1}")
            rounds.append(servers.one_round(place, variants, jobs, quick))
        told = servers.ledgers(place, variants, [job for job in jobs if job.ledger])
        counted = [job for job in jobs if job.counted][:1 if quick else None]
        if not counted:
            return rounds, told
        say(f"==> {benchmark.name}: system calls and instructions")
        return rounds, told + servers.counts(place, variants, counted, QUICK_MESSAGES if quick else MESSAGES)


def show(result, benchmark, options):
    about = result["machine"]
    say()
    say(f"{benchmark.name}: {benchmark.summary}")
    say(f"{about['cpu']}, {about['cores']} cores, Linux {about['kernel']}, {about['compiler']}")
    say(f"commit {about['commit']}; ratios are to {benchmark.reference}, round by round")
    for note in about["notes"]:
        say(f"note: {note}")
    missing = [name for name in benchmark.variants
               if name not in {row["variant"] for row in result["rows"]}]
    if missing and not options.only:
        say(f"not built here: {', '.join(missing)}")
    say()
    for line in rows.table(result["rows"]):
        say(line)
    for line in benchmark.published:
        say(f"published: {line}")
    for verdict in result["bounds"]:
        if verdict["met"] is not None or not options.only:
            say(bounds.line(verdict))
    if about["quick"]:
        say("QUICK: few cases, short rounds. To look at, not to quote.")


def one_benchmark(build, benchmark, options, keep):
    programs = programs_of(build, benchmark)
    mark = fingerprint(build, [*programs, *(build / "perf" / name for name in benchmark.needs)])
    result = kept_result(build, benchmark, options.quick, mark) if keep else None
    if result is None:
        about = machine.describe(ROOT, build, options.quick)
        if benchmark.servers:
            rounds, counted = measure_servers(build, benchmark, about, options)
        elif options.only:
            raise Refused(f"{benchmark.name} has no servers: it is measured as a whole")
        else:
            rounds, counted = measure_programs(benchmark, programs, options.quick)
        measured = rows.aggregate(rounds, benchmark.reference)
        measured += rows.aggregate([counted], benchmark.reference) if counted else []
        verdicts = bounds.evaluate(benchmark.bounds, rounds + ([counted] if counted else []))
        result = {"benchmark": benchmark.name, "machine": about, "rows": measured, "bounds": verdicts}
        if not options.only:
            write_atomically(results_of(build, benchmark), {"programs": mark, "result": result})
    else:
        say(f"==> {benchmark.name}: done already ({results_of(build, benchmark)}; --again measures anew)")
    show(result, benchmark, options)
    return result


def execute(options):
    everything = options.name == "all"
    if everything and options.only:
        raise Refused("--only needs the name of a benchmark")
    chosen = catalogue.BENCHMARKS if everything else (catalogue.find(options.name),)
    build = pathlib.Path(options.built or ROOT / "build").resolve()
    if not options.built:
        prepare(options.no_install)
    results = []
    for benchmark in chosen:
        if not options.built:
            make(build, benchmark)
        results.append(one_benchmark(build, benchmark, options, keep=everything and not options.again))
    if options.json:
        write_atomically(options.json, results if everything else results[0])


def main(arguments):
    options = parse(arguments)
    if options.list:
        for benchmark in catalogue.BENCHMARKS:
            say(f"{benchmark.name:<12} {benchmark.summary}")
        return 0
    try:
        execute(options)
    except (Refused, LookupError, measure.Failed, rows.BadSample) as error:
        print(f"perf/run: {error.args[0]}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("perf/run: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    return 0
