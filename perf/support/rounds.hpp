// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The frame of a benchmark program that Google Benchmark times: cases are added, and run() does what the
// harness asks for (perf/README.md says what that is). Cases with the same parameters run one after the
// other, in the order in which their variants were added, so that noise meets all of them.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace linkspan::perf {

struct Parameter {
  Parameter(std::string name_in, std::int64_t number)
      : name(std::move(name_in)), text(std::to_string(number)), quoted(false) {}
  Parameter(std::string name_in, std::string_view text_in)
      : name(std::move(name_in)), text(text_in), quoted(true) {}

  std::string name;
  std::string text;
  bool quoted;
};

struct Case {
  std::string variant;
  std::vector<Parameter> parameters;
  std::function<void(benchmark::State&)> run;
  int threads = 1;
  bool wall = false;   ///< the time on the wall is of interest: threads inside `run` wait for each other
  bool quick = false;  ///< part of a quick round
  bool instructions = false;  ///< worth counting; such a case is quick to set up
};

/// One operation is one iteration of the state, on any of its threads. Processor time counts, which other
/// processes disturb less than the time on the wall.
void add(Case added);

/// The main function, once all cases are added.
int run(int argc, char** argv);

}  // namespace linkspan::perf
