# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""What perf/run does: samples become rows, programs that misbehave are named, interrupted runs go on."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUN = ROOT / "perf" / "run"
BUILD = os.environ.get("LINKSPAN_PERF_BUILD", "")

sys.path.insert(0, str(ROOT / "perf"))
from harness import catalogue, command, measure, rows  # noqa: E402

PROGRAM = r"""#!/bin/sh
echo "$*" >> "$0.calls"
[ "$1" = --round ] || exit 0
sample='{"variant": "%s", "params": {}, "metric": "cpu time", "unit": "ns/op", "value": %s}\n'
printf "$sample" ours $((10 + $2)) theirs $((20 + $2))
"""


def sample(variant, value, **params):
    return {"variant": variant, "params": params, "metric": "cpu time", "unit": "ns/op", "value": value}


class RowsTest(unittest.TestCase):
    def test_a_row_has_the_spread_of_the_rounds_and_of_the_quotients_inside_them(self):
        rounds = [[sample("ours", a, size=64), sample("theirs", b, size=64)]
                  for a, b in [(10, 20), (30, 30), (20, 60)]]
        ours, theirs = rows.aggregate(rounds, "ours")
        self.assertEqual(ours, {"variant": "ours", "params": {"size": 64}, "metric": "cpu time",
                                "unit": "ns/op", "rounds": 3, "min": 10, "median": 20, "max": 30,
                                "ratio": None})
        self.assertEqual(theirs["ratio"], {"to": "ours", "min": 1, "median": 2, "max": 3})

    def test_ratios_are_to_the_same_params_and_absent_without_a_reference(self):
        result = rows.aggregate([[sample("ours", 10, size=1), sample("theirs", 5, size=1),
                                  sample("theirs", 5, size=2)]], "ours")
        self.assertEqual(result[1]["ratio"]["median"], 0.5)
        self.assertIsNone(result[2]["ratio"])

    def test_a_reference_of_zero_gives_no_ratio(self):
        self.assertIsNone(rows.aggregate([[sample("ours", 0), sample("theirs", 5)]], "ours")[1]["ratio"])

    def test_rounds_that_measure_different_things_are_refused(self):
        for rounds in ([[sample("ours", 1)], [sample("theirs", 1)]],
                       [[sample("ours", 1)], []],
                       [[sample("ours", 1), sample("ours", 2)]]):
            with self.assertRaises(rows.BadSample):
                rows.aggregate(rounds, "ours")

    def test_lines_that_are_no_samples_are_refused(self):
        good = sample("ours", 1.5)
        self.assertEqual(rows.parse_sample(json.dumps(good)), good)
        for line in ("", "[]", "hello", json.dumps({**good, "more": 1}), json.dumps({**good, "value": "1"}),
                     json.dumps({**good, "value": True}), json.dumps({**good, "params": []}),
                     json.dumps({key: good[key] for key in good if key != "unit"})):
            with self.assertRaises(rows.BadSample, msg=line):
                rows.parse_sample(line)

    def test_a_table_puts_variants_of_the_same_params_side_by_side(self):
        result = rows.aggregate([[sample("ours", 1, size=1), sample("ours", 2, size=2),
                                  sample("theirs", 3, size=1), sample("theirs", 4, size=2)]], "ours")
        lines = [line.split()[:3] for line in rows.table(result)[2:] if line]
        self.assertEqual(lines, [["1", "ours", "1"], ["1", "theirs", "3"],
                                 ["2", "ours", "2"], ["2", "theirs", "4"]])

    def test_a_profile_gives_instructions_and_calls_of_allocators(self):
        profile = ("fn=(1) main\n10 5\ncfn=(2) malloc\ncalls=3 0\n10 90\ncob=(2)\ncfi=(3)\ncfn=(2)\n"
                   "calls=4 0\n10 9\ncfn=(7) free\ncalls=9 0\n10 9\nfn=(2)\n1 2\ntotals: 1234\n")
        self.assertEqual(measure.profile_totals(profile), (1234, 7))


class HarnessTest(unittest.TestCase):
    """On a build folder with programs of the test's own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = pathlib.Path(folder.name)
        (self.build / "perf").mkdir()
        self.benchmarks = tuple(
            catalogue.Benchmark(name, f"the {name}", "ours", ("ours", "theirs", "missing"))
            for name in ("first", "second"))
        patch = mock.patch.object(catalogue, "BENCHMARKS", self.benchmarks)
        patch.start()
        self.addCleanup(patch.stop)
        for benchmark in self.benchmarks:
            self.program(benchmark.name, PROGRAM)

    def program(self, name, text):
        path = self.build / "perf" / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def calls(self, name):
        path = self.build / "perf" / f"{name}.calls"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def run_harness(self, *arguments, status=0):
        out, error = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            found = command.main([*arguments, "--built", str(self.build)])
        self.assertEqual(found, status, error.getvalue())
        return out.getvalue() if status == 0 else error.getvalue()

    def test_a_full_run_asks_for_five_rounds_and_a_quick_one_for_three(self):
        self.run_harness("first")
        self.assertEqual(self.calls("first"), [f"--round {n}" for n in range(5)] + ["--list-instructions"])
        text = self.run_harness("second", "--quick")
        self.assertEqual(self.calls("second"), [f"--round {n} --quick" for n in range(3)])
        self.assertIn("not to quote", text)

    def test_the_result_says_what_it_is_and_what_is_missing(self):
        file = self.build / "result.json"
        text = self.run_harness("first", "--json", str(file))
        self.assertIn("not built here: missing", text)
        result = json.loads(file.read_text(encoding="utf-8"))
        self.assertEqual(set(result), {"benchmark", "machine", "rows", "bounds"})
        self.assertEqual(result["benchmark"], "first")
        self.assertEqual(set(result["machine"]),
                         {"cpu", "cores", "memory_bytes", "kernel", "compiler", "libraries",
                          "congestion_control", "commit", "quick", "load_average", "notes"})
        self.assertFalse(result["machine"]["quick"])
        self.assertEqual([row["median"] for row in result["rows"]], [12, 22])
        for row in result["rows"]:
            self.assertEqual(set(row), {"variant", "params", "metric", "unit", "rounds", "min", "median",
                                        "max", "ratio"})

    def test_a_run_of_all_that_was_interrupted_goes_on_with_what_is_not_done(self):
        self.program("second", "#!/bin/sh\nexit 3\n")
        self.assertIn("second --round 0 ended with 3", self.run_harness(status=1))
        self.program("second", PROGRAM)
        self.assertIn("done already", self.run_harness())
        self.assertEqual(len(self.calls("first")), 6)
        self.assertEqual(len(self.calls("second")), 6)
        self.run_harness("--again")
        self.assertEqual(len(self.calls("first")), 12)

    def test_results_of_other_programs_or_of_quick_runs_are_not_kept(self):
        self.run_harness("--quick")
        self.run_harness()
        self.assertEqual(len(self.calls("first")), 3 + 6)
        self.program("first", PROGRAM + "# changed\n")
        self.run_harness()
        self.assertEqual(len(self.calls("first")), 3 + 6 + 6)
        self.assertEqual(len(self.calls("second")), 3 + 6)

    def test_a_result_file_that_is_broken_is_measured_again(self):
        self.run_harness()
        (self.build / "perf-results" / "first.json").write_text("{", encoding="utf-8")
        self.run_harness()
        self.assertEqual(len(self.calls("first")), 12)

    def test_a_benchmark_asked_for_by_name_is_measured_anew(self):
        self.run_harness()
        self.run_harness("first")
        self.assertEqual(len(self.calls("first")), 12)

    def test_a_program_that_prints_something_else_is_named(self):
        self.program("first", "#!/bin/sh\necho hello\n")
        self.assertRegex(self.run_harness("first", status=1), "perf/first: not JSON: 'hello'")

    def test_a_benchmark_that_is_not_built_is_named(self):
        (self.build / "perf" / "first").unlink()
        self.assertIn("first is not built", self.run_harness("first", status=1))

    def test_malloc_variables_of_a_test_runner_do_not_reach_the_programs(self):
        self.program("first", "#!/bin/sh\n[ -z \"$MALLOC_PERTURB_\" ] || exit 1\n")
        with mock.patch.dict(os.environ, {"MALLOC_PERTURB_": "7"}):
            self.assertEqual(measure.run([str(self.build / "perf" / "first")]), "")


class CommandLineTest(unittest.TestCase):
    def run_program(self, *arguments):
        return subprocess.run([RUN, *arguments], capture_output=True, text=True, check=False, timeout=300)

    def test_list_names_the_benchmarks(self):
        result = self.run_program("--list")
        self.assertEqual(result.returncode, 0, result.stderr)
        names = [line.split()[0] for line in result.stdout.splitlines()]
        self.assertEqual(names, [benchmark.name for benchmark in catalogue.BENCHMARKS])

    def test_an_unknown_name_is_an_error_that_names_the_known_ones(self):
        result = self.run_program("pigeons", "--built", "/")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, "no benchmark 'pigeons'; there are .*chain")

    def test_an_unknown_option_is_an_error(self):
        self.assertEqual(self.run_program("--pigeons").returncode, 2)

    @unittest.skipUnless(BUILD, "no benchmark programs in this build")
    def test_quick_runs_of_pipeline_and_sleep_give_what_they_compare(self):
        for name, few in (("pipeline", {"linkspan", "linkspan, aside", "virtual calls"}), ("sleep", set())):
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder) / "result.json"
                result = self.run_program(name, "--quick", "--built", BUILD, "--json", str(file))
                if "is not built" in result.stderr and not few:  # without Asio
                    continue
                self.assertEqual(result.returncode, 0, result.stderr)
                variants = {row["variant"] for row in json.loads(file.read_text(encoding="utf-8"))["rows"]}
                self.assertLessEqual(few or set(catalogue.find(name).variants), variants)

    @unittest.skipUnless(BUILD, "no benchmark programs in this build")
    def test_a_quick_run_of_a_real_benchmark_gives_rows_of_its_reference(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "result.json"
            result = self.run_program("chain", "--quick", "--built", BUILD, "--json", str(file))
            self.assertEqual(result.returncode, 0, result.stderr)
            found = json.loads(file.read_text(encoding="utf-8"))
        self.assertTrue(found["machine"]["quick"])
        linkspan = [row for row in found["rows"] if row["variant"] == "linkspan"]
        self.assertEqual({row["params"]["case"] for row in linkspan},
                         {"append", "append foreign", "split", "frames", "iterate", "scatter"})
        for row in found["rows"]:
            self.assertEqual(row["rounds"], 3)
            self.assertLessEqual(row["min"], row["median"])
            self.assertLessEqual(row["median"], row["max"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv, verbosity=2)
