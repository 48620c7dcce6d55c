// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "perf/support/rounds.hpp"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace linkspan::perf {
namespace {

constexpr double kSecondsPerCase = 0.02;
constexpr double kQuickSecondsPerCase = 0.004;

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

std::string json_of(const std::vector<Parameter>& parameters) {
  std::string json = "{";
  for (const Parameter& parameter : parameters) {
    const char* quote = parameter.quoted ? "\"" : "";
    json += (json.size() > 1 ? ", \"" : "\"") + parameter.name + "\": " + quote + parameter.text + quote;
  }
  return json + "}";
}

std::string name_of(const Case& found) {
  std::string name = found.variant;
  for (const Parameter& parameter : found.parameters) name += "/" + parameter.name + ":" + parameter.text;
  return name;
}

// Prints one line a case; what it measured is a sample of the harness.
class Reporter final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.error_occurred) {
        std::fprintf(stderr, "%s: %s\n", run.benchmark_name().c_str(), run.error_message.c_str());
        std::exit(1);
      }
      const Case& done = cases()[std::stoul(run.run_name.function_name)];
      std::printf(R"({"variant": "%s", "params": %s, "metric": "%s", "unit": "ns/op", "value": %.4g})"
                  "\n",
                  done.variant.c_str(), json_of(done.parameters).c_str(),
                  done.wall ? "wall time" : "cpu time",
                  done.wall ? run.GetAdjustedRealTime() : run.GetAdjustedCPUTime());
    }
    std::fflush(stdout);
  }
};

benchmark::internal::Benchmark* enroll(std::size_t index) {
  auto* enrolled = benchmark::RegisterBenchmark(std::to_string(index).c_str(),
                                                [run = cases()[index].run](auto& state) { run(state); });
  return enrolled->Threads(cases()[index].threads)->UseRealTime();
}

void run_enrolled(benchmark::BenchmarkReporter& reporter) {
  char program[] = "perf";
  char* arguments[] = {program, nullptr};
  int count = 1;
  benchmark::Initialize(&count, arguments);
  benchmark::RunSpecifiedBenchmarks(&reporter);
}

int run_round(bool quick) {
  for (std::size_t i = 0; i < cases().size(); ++i) {
    if (quick && !cases()[i].quick) continue;
    const double seconds = quick ? kQuickSecondsPerCase : kSecondsPerCase;
    enroll(i)->MinTime(seconds)->MinWarmUpTime(seconds / 4);
  }
  Reporter reporter;
  run_enrolled(reporter);
  return 0;
}

int list_instructions() {
  for (const Case& listed : cases()) {
    if (!listed.instructions) continue;
    std::printf(R"({"case": "%s", "variant": "%s", "params": %s})"
                "\n",
                name_of(listed).c_str(), listed.variant.c_str(), json_of(listed.parameters).c_str());
  }
  return 0;
}

int run_iterations(std::string_view name, benchmark::IterationCount iterations) {
  for (std::size_t i = 0; i < cases().size(); ++i) {
    if (name_of(cases()[i]) != name) continue;
    enroll(i)->Iterations(iterations);
    Reporter reporter;
    run_enrolled(reporter);
    return 0;
  }
  std::fprintf(stderr, "no case %.*s\n", static_cast<int>(name.size()), name.data());
  return 2;
}

// Puts cases of the same parameters next to each other, in the order in which they were added.
void interleave() {
  std::vector<std::string> order;
  const auto place = [&order](const Case& found) {
    const std::string parameters = json_of(found.parameters);
    const auto at = std::find(order.begin(), order.end(), parameters);
    const auto index = at - order.begin();
    if (at == order.end()) order.push_back(parameters);
    return index;
  };
  std::vector<std::pair<std::ptrdiff_t, Case>> placed;
  for (Case& found : cases()) placed.emplace_back(place(found), std::move(found));
  std::stable_sort(placed.begin(), placed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < placed.size(); ++i) cases()[i] = std::move(placed[i].second);
}

}  // namespace

void add(Case added) {
  cases().push_back(std::move(added));
}

int run(int argc, char** argv) {
#ifdef __GLIBC__
  // A heap that is empty between two operations would go back to the system each time. Those of services
  // don't.
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_MMAP_THRESHOLD, 1 << 25);
#endif
  interleave();
  const std::string_view command = argc > 1 ? argv[1] : "";
  const bool quick = std::strcmp(argv[argc - 1], "--quick") == 0;
  if (command == "--round" && argc == 3 + quick) return run_round(quick);
  if (command == "--list-instructions" && argc == 2) return list_instructions();
  if (command == "--instructions" && argc == 4) return run_iterations(argv[2], std::atoll(argv[3]));
  std::fprintf(stderr, "usage: %s --round N [--quick] | --list-instructions | --instructions CASE N\n",
               argv[0]);
  return 2;
}

}  // namespace linkspan::perf
