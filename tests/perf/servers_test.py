# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""Benchmarks over the network: bounds, cores, what becomes of the load generator's numbers, and that each
server that was built does what it is measured for."""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = os.environ.get("LINKSPAN_PERF_BUILD", "")

sys.path.insert(0, str(ROOT / "perf"))
from harness import (block_catalogue, bounds, cache_catalogue, catalogue, command, measure,  # noqa: E402
                     network, server_catalogue, servers)
from harness.bounds import Bound  # noqa: E402
from harness.servers import Job, Server  # noqa: E402

SERVER = """#!/bin/sh
echo "$*" >> "$0.calls"
echo "listening on 7"
cat > /dev/null
"""
LOAD = """#!/bin/sh
echo "$*" >> "$0.calls"
echo '{"requests": 1000, "seconds": 0.5, "cpu_ns": 300000000, "cpu_wall_ns": 600000000,
       "p50_ns": 1000, "p99_ns": 2000, "p99.9_ns": 3000}'
"""


def sample(variant, value, metric="server cpu", **params):
    return {"variant": variant, "params": params, "metric": metric, "unit": "ns/request", "value": value}


def in_rounds(*pairs):
    return [[sample("ours", ours, bytes=64), sample("theirs", theirs, bytes=64)] for ours, theirs in pairs]


class BoundsTest(unittest.TestCase):
    def verdict(self, bound, rounds):
        found, = bounds.evaluate((bound,), rounds)
        return found

    def test_a_bound_is_missed_only_when_every_round_lies_beyond_it(self):
        at_most = Bound("ours", "server cpu", "at most", 0.9, "theirs")
        at_least = Bound("ours", "server cpu", "at least", 0.9, "theirs")
        for bound, rounds, met, median_met in (
                (at_most, in_rounds((8, 10), (9, 10), (10, 10)), True, True),
                (at_most, in_rounds((9, 10), (10, 10), (11, 10)), True, False),
                (at_most, in_rounds((10, 10), (11, 10), (12, 10)), False, False),
                (at_least, in_rounds((8, 10), (8, 10), (9, 10)), True, False),
                (at_least, in_rounds((7, 10), (8, 10), (8, 10)), False, False)):
            found = self.verdict(bound, rounds)
            self.assertEqual((found["met"], found["median_met"]), (met, median_met), (bound.kind, rounds))

    def test_below_is_not_reached_by_being_equal(self):
        below = Bound("ours", "server cpu", "below", 1, "theirs")
        self.assertFalse(self.verdict(below, in_rounds((5, 5)))["met"])
        self.assertTrue(self.verdict(below, in_rounds((4, 5)))["met"])

    def test_without_another_variant_the_value_itself_is_meant(self):
        bound = Bound("ours", "server cpu", "at most", 1024)
        self.assertTrue(self.verdict(bound, in_rounds((1000, 1)))["met"])
        self.assertFalse(self.verdict(bound, in_rounds((1025, 1)))["met"])

    def test_each_job_with_the_params_of_a_bound_is_judged(self):
        rounds = [[sample(variant, value, bytes=64, connections=connections)
                   for connections in (1, 64) for variant, value in (("ours", connections), ("theirs", 10))]]
        wide, narrow = (Bound("ours", "server cpu", "at most", 2, "theirs", params)
                        for params in ({"bytes": 64}, {"connections": 64}))
        self.assertEqual([found["met"] for found in bounds.evaluate((wide,), rounds)], [True, False])
        self.assertEqual([found["met"] for found in bounds.evaluate((narrow,), rounds)], [False])

    def test_what_nobody_measured_is_neither_met_nor_missed(self):
        bound = Bound("ours", "server cpu", "at most", 1, "nobody", {"bytes": 64})
        found = self.verdict(bound, in_rounds((1, 1)))
        self.assertIsNone(found["met"])
        self.assertIn("not measured", bounds.line(found))

    def test_a_line_says_what_was_found_and_what_was_asked(self):
        bound = Bound("ours", "server cpu", "at most", 0.9, "theirs")
        for rounds, state in ((in_rounds((1, 2)), "met "), (in_rounds((2, 2)), "missed "),
                              (in_rounds((1, 2), (2, 2), (3, 2)), "met by spread ")):
            line = bounds.line(self.verdict(bound, rounds))
            self.assertTrue(line.startswith(f"bound {state}"), line)
            self.assertIn("ours: server cpu / theirs", line)
            self.assertIn("at most 0.9 (bytes 64)", line)

    def test_every_bound_of_the_catalogue_names_variants_and_jobs_that_there_are(self):
        for benchmark in catalogue.BENCHMARKS:
            for bound in benchmark.bounds:
                self.assertIn(bound.variant, benchmark.variants)
                self.assertIn(bound.to, (*benchmark.variants, ""))
                meant = [job for job in benchmark.jobs if bounds.contains(job.params, bound.params)]
                self.assertTrue(meant or not benchmark.jobs, bound)


class NetworkTest(unittest.TestCase):
    def test_server_and_load_share_no_core_when_there_are_two(self):
        with mock.patch.object(network, "siblings", lambda core: {core}):
            found = network.cores([0, 1])
            self.assertEqual((found.server[-1], found.load[-1], found.load_threads), ("1", "0", 1))
            found = network.cores(list(range(8)))
            self.assertEqual((found.server[-1], found.load[-1], found.load_threads), ("7", "0,1,2,3", 4))
        with mock.patch.object(network, "siblings", lambda core: {core ^ 1, core}):
            self.assertEqual(network.cores([0, 1, 2, 3]).load[-1], "0,1")
            self.assertEqual(network.cores([0, 1]).load[-1], "0")

    def test_one_core_is_said_to_be_one(self):
        found = network.cores([3])
        self.assertEqual((found.server, found.load), ((), ()))
        self.assertIn("share a core", found.note)

    def test_who_may_not_have_a_namespace_uses_the_network_there_is_and_is_told(self):
        with mock.patch.object(os, "geteuid", lambda: 1000), network.own() as found:
            self.assertEqual(found.prefix, ())
            self.assertTrue(found.note)


class ServersTest(unittest.TestCase):
    """On a build folder with programs of the test's own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = pathlib.Path(folder.name)
        (self.build / "perf").mkdir()
        self.servers = (Server("ours", "one", ("--fast",)),
                        Server("busy", "one", ("--fast",), load=("--busy",), only={"connections": 1}),
                        Server("theirs", "two", countable=False), Server("missing", "three"))
        jobs = tuple(Job({"connections": count}, ("echo", f"--connections={count}"), quick=count == 1)
                     for count in (1, 64))
        bound = Bound("ours", "server cpu", "below", 1, "theirs")
        benchmark = catalogue.Benchmark("net", "the net", "theirs", servers=self.servers, jobs=jobs,
                                        bounds=(bound,))
        for patch in (mock.patch.object(catalogue, "BENCHMARKS", (benchmark,)),
                      mock.patch.object(network, "own", lambda: contextlib.nullcontext(network.Network()))):
            patch.start()
            self.addCleanup(patch.stop)
        self.program("load", LOAD)
        self.program("one", SERVER)
        self.program("two", SERVER)

    def program(self, name, text):
        path = self.build / "perf" / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def calls(self, name):
        path = self.build / "perf" / f"{name}.calls"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def run_harness(self, *arguments, status=0):
        out, error = io.StringIO(), io.StringIO()
        file = self.build / "result.json"
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            found = command.main(["net", *arguments, "--built", str(self.build), "--json", str(file)])
        self.assertEqual(found, status, error.getvalue())
        if status != 0:
            return error.getvalue()
        return out.getvalue(), json.loads(file.read_text(encoding="utf-8"))

    def test_every_round_has_fresh_servers_and_every_job_meets_all_that_fit_it(self):
        text, result = self.run_harness()
        self.assertIn("not built here: missing", text)
        starts_at_all = 1  # asked for each variant
        self.assertEqual(self.calls("one"), ["--fast 0"] * (2 * starts_at_all + 5))
        self.assertEqual(self.calls("two"), ["0"] * (starts_at_all + 5))
        first_round = self.calls("load")[:5]
        self.assertEqual(["--busy" in call for call in first_round], [False, True, False, False, False])
        self.assertTrue(all("--connections=1 " in call for call in first_round[:3]), first_round)
        self.assertEqual(len(self.calls("load")), 25)
        self.assertEqual({row["rounds"] for row in result["rows"]}, {5})

    def test_a_quick_run_does_the_quick_jobs_three_times(self):
        _, result = self.run_harness("--quick")
        self.assertEqual({json.dumps(row["params"]) for row in result["rows"]}, {'{"connections": 1}'})
        self.assertEqual({row["rounds"] for row in result["rows"]}, {3})

    def test_a_run_of_only_some_jobs_does_all_their_rounds_and_is_not_kept_as_the_result(self):
        text, result = self.run_harness("--only", "connections=64")
        self.assertEqual({json.dumps(row["params"]) for row in result["rows"]}, {'{"connections": 64}'})
        self.assertEqual({row["rounds"] for row in result["rows"]}, {5})
        self.assertNotIn("not built here", text)
        self.assertFalse((self.build / "perf-results").exists())
        self.assertIn("no job with connections=2", self.run_harness("--only", "connections=2", status=1))

    def test_processor_time_is_that_of_the_measured_time_for_each_request(self):
        _, result = self.run_harness("--quick")
        values = {row["metric"]: row["median"] for row in result["rows"] if row["variant"] == "ours"}
        self.assertEqual(values, {"requests": 2000, "server cpu": 250000, "server busy": 50, "latency p50": 1,
                                  "latency p99": 2, "latency p99.9": 3})

    def test_bounds_are_printed_and_in_the_result(self):
        text, result = self.run_harness("--quick")
        self.assertIn("bound missed", text)
        self.assertEqual([found["met"] for found in result["bounds"]], [False])

    def test_a_server_that_does_not_start_is_left_out_and_named(self):
        self.program("one", "#!/bin/sh\nexit 1\n")
        text, result = self.run_harness("--quick")
        self.assertIn("note: ours does not start here", text)
        self.assertEqual({row["variant"] for row in result["rows"]}, {"theirs"})
        self.assertIsNone(result["bounds"][0]["met"])

    def test_a_server_that_spins_is_gone_before_the_next_is_measured(self):
        place = servers.Place(self.build, network.Network(), network.cores())
        spinner, job = Server("spinner", "one", spins=True), Job({"connections": 1}, ("echo",))
        close = mock.patch.object(servers.Running, "close", autospec=True, side_effect=servers.Running.close)
        with close as ended, mock.patch.object(
                servers, "one_job", lambda place, servers, server, job, quick:
                [("ended", "1", ended.call_count if servers.find(server, job) else 0)]):
            samples = servers.one_round(place, (spinner, Server("next", "two")), (job,), True)
        self.assertEqual([sample["value"] for sample in samples], [0, 1])

    def test_a_server_that_is_not_complete_counts_as_not_built(self):
        needy = Server("needy", "one", needs=("classes",))
        self.assertEqual(servers.built(self.build, (needy,)), [])
        self.program("classes", "")
        self.assertEqual(servers.built(self.build, (needy,)), [needy])

    def test_a_load_that_fails_or_gets_nothing_back_is_an_error(self):
        self.program("load", "#!/bin/sh\nexit 1\n")
        self.assertRegex(self.run_harness("--quick", status=1), "load .*ended with 1")
        self.program("load", "#!/bin/sh\necho '{\"requests\": 0}'\n")
        self.assertRegex(self.run_harness("--quick", status=1), "nothing came back")

    def test_a_summary_of_strace_gives_all_calls(self):
        text = ("% time     seconds  usecs/call     calls    errors syscall\n"
                "------ ----------- ----------- --------- --------- ----------------\n"
                " 60.00    0.000004           4        20         3 read\n"
                "------ ----------- ----------- --------- --------- ----------------\n"
                "100.00    0.002450          84        29         3 total\n")
        self.assertEqual(servers.system_calls(text), 29)


@unittest.skipUnless(BUILD, "no benchmark programs in this build")
class RealServersTest(unittest.TestCase):
    def test_each_server_sends_back_what_it_gets(self):
        place = servers.Place(pathlib.Path(BUILD), network.Network(), network.Cores())
        loads = (("--connections=64", "--messages=6400"),
                 ("--connections=64", "--pipeline=16", "--bytes=4096", "--messages=6400"),
                 ("--connections=1", "--pipeline=2", "--bytes=1000000", "--messages=20"))
        found = servers.built(place.build, server_catalogue.SERVERS + server_catalogue.COROUTINE_SERVERS)
        found, _ = servers.startable(place, found, server_catalogue.ECHO_JOBS)
        self.assertIn("linkspan epoll", [server.name for server in found])
        for server in found:
            with self.subTest(server.name), servers.Servers(place) as running:
                for load in loads:
                    job = Job({}, ("echo", *load))
                    at, _ = running.find(server, job)
                    result = servers.run_load(place, job, (), at.endpoint)
                    self.assertEqual(result["requests"], int(load[-1].partition("=")[2]))

    def test_connections_that_come_and_go_and_those_that_stay_are_served(self):
        place = servers.Place(pathlib.Path(BUILD), network.Network(), network.Cores())
        come_and_go = Job({}, ("connect", "--connections=16", "--messages=200"))
        stay = Job({"connections": 100}, ("idle",))
        found = servers.built(place.build, server_catalogue.SERVERS)
        found, _ = servers.startable(place, found, server_catalogue.ECHO_JOBS)
        for server in found:
            with self.subTest(server.name), servers.Servers(place) as running, \
                    mock.patch.object(servers, "SETTLE_SECONDS", 0):
                at, _ = running.find(server, come_and_go)
                came = servers.run_load(place, come_and_go, (), at.endpoint)
                self.assertGreaterEqual(came["requests"], 200)
                (metric, unit, _), = servers.idle_values(place, stay, server)
                self.assertEqual((metric, unit), ("private memory", "B/connection"))

    def test_each_sender_sends_what_it_should(self):
        place = servers.Place(pathlib.Path(BUILD), network.Network(), network.Cores())
        memory = ("--bytes=1048576", "--slices=256"), ("--bytes=4096",)
        others = ("--bytes=65536", "--source=file"), ("--bytes=65536", "--slices=16", "--copy")
        for server in servers.built(place.build, server_catalogue.STREAM_SERVERS):
            if "--copy" in server.arguments:
                continue
            for options in memory if server.name == server_catalogue.C_IO_URING else memory + others:
                load = ("stream", "--connections=2", "--messages=100", options[0], "--verify")
                job = Job({}, load, options, unix=options == memory[0])
                with self.subTest(server.name, options=options), servers.Servers(place) as running:
                    at, _ = running.find(server, job)
                    found = servers.run_load(place, job, (), at.endpoint)
                    self.assertGreaterEqual(found["bytes"], 100 * int(options[0].partition("=")[2]))

    def test_each_proxy_passes_on_what_it_gets(self):
        place = servers.Place(pathlib.Path(BUILD), network.Network(), network.Cores())
        found = servers.built(place.build, server_catalogue.PROXIES)
        found, _ = servers.startable(place, found, server_catalogue.PROXY_JOBS)
        for server in found:
            for job in server_catalogue.PROXY_JOBS:
                exact = "--verify" if job.load[0] == "stream" else "--messages=640"
                with self.subTest(server.name, job=job.params), servers.Servers(place) as running:
                    at, _ = running.find(server, job)
                    limits = ("--bytes=1048576", "--messages=20") if job.load[0] == "stream" else ()
                    result = servers.run_load(place, job, (exact, *limits), at.endpoint)
                    self.assertGreater(result.get("requests", result.get("bytes")), 0)
                    self.assertGreater(servers.peak_memory(at.pid)[0][2], 0)
                    running.close()
                    self.assertNotEqual(at.process.returncode, -9)  # it had to be killed

    def test_each_cache_answers_what_it_should(self):
        place = servers.Place(pathlib.Path(BUILD), network.Network(), network.Cores())
        found, _ = servers.startable(place, servers.built(place.build, cache_catalogue.SERVERS),
                                     cache_catalogue.JOBS)
        self.assertTrue(found)
        for server in found:
            with self.subTest(server.name), servers.Servers(place) as running:
                for job in cache_catalogue.JOBS:
                    if job.quick:
                        at, _ = running.find(server, job)
                        result = servers.run_load(place, job, (*server.load, "--messages=100"), at.endpoint)
                        self.assertEqual(result["requests"], 100, job.params)
                running.close()
                self.assertNotEqual(at.process.returncode, -9)  # it had to be killed

    def test_each_way_to_a_block_brings_the_right_bytes(self):
        place = servers.Place(pathlib.Path(BUILD), network.Network(), network.Cores())
        chosen = [server for server in block_catalogue.SERVERS  # the others differ in what they copy
                  if server.name.endswith(("io_uring", "epoll", "io_uring, copied", "unix"))
                  or "linkspan" not in server.name]
        found = servers.built(place.build, chosen)
        found, _ = servers.startable(place, found, block_catalogue.JOBS)
        summed = [job for job in block_catalogue.JOBS if job.params["summed"] == "yes"]
        told = [job for job in block_catalogue.JOBS if job.ledger][:1]
        with servers.Servers(place) as running:
            for job in summed:  # clients compare what they, or their servers, have added up
                for server in found:
                    if not servers.fits(server, job):
                        continue
                    with self.subTest(server.name, job=job.params):
                        at, _ = running.find(server, job)
                        result = servers.run_load(
                            place, job, (*server.load, "--seconds=0.01", "--warm-up=0", f"--server={at.pid}"),
                            at.endpoint, server.client)
                        values = servers.VALUES[job.load[0]](result)
                        self.assertIn("throughput", [metric for metric, _, _ in values])
        with mock.patch.object(servers, "QUICK_TIMES", (0.01, 0)):
            telling = [server for server in found if server.ledger]
            samples = servers.ledgers(place, telling, told)
        payload_copies = [sample for sample in samples if sample["metric"] == "copied, marshal"]
        self.assertTrue(any(sample["value"] > 1000 for sample in payload_copies))  # of those that copy
        for sample in samples:
            if sample["variant"] in (server_catalogue.IO_URING, server_catalogue.EPOLL):
                place_of_copy = sample["metric"].removeprefix("copied, ")
                if place_of_copy in servers.ALWAYS_TOLD:
                    self.assertEqual(sample["value"], 0, sample)

    def test_a_server_ends_when_its_input_closes(self):
        place = servers.Place(pathlib.Path(BUILD), network.Network(), network.Cores())
        for server in servers.built(place.build, server_catalogue.SERVERS):
            with self.subTest(server.name), contextlib.suppress(measure.Failed):
                at = servers.Running(place.server([place.program(server.program), *server.arguments, "0"]))
                at.close()
                self.assertNotEqual(at.process.returncode, -9)  # it had to be killed


if __name__ == "__main__":
    unittest.main(argv=sys.argv, verbosity=2)
