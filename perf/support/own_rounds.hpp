// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The main function of a benchmark program that measures by itself, without Google Benchmark (rounds.hpp),
// and has nothing whose instructions are counted. perf/README.md says what the harness asks for.
#pragma once

#include <cstdio>
#include <string_view>
#include <vector>

namespace linkspan::perf {

/// `round` gets whether it is a quick one.
template <class Round>
int run_own_rounds(int argc, char** argv, Round round) {
  const std::vector<std::string_view> arguments(argv + 1, argv + argc);
  const bool quick = !arguments.empty() && arguments.back() == "--quick";
  if (arguments.size() == 2U + quick && arguments[0] == "--round") {
    round(quick);
    return 0;
  }
  if (arguments.size() == 1U + quick && arguments[0] == "--list-instructions") return 0;
  std::fprintf(stderr, "usage: %s --round N [--quick] | --list-instructions\n", argv[0]);
  return 2;
}

}  // namespace linkspan::perf
