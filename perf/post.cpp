// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Tasks from another thread on Linkspan's loops.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "linkspan/loop/loop_group.hpp"
#include "linkspan/transport/transport.hpp"
#include "perf/support/posts.hpp"

namespace {

using namespace linkspan;

class Loop {
 public:
  explicit Loop(std::string_view transport)
      : group_(LoopGroup::create(transport_engine(transport).value_or_throw()).value_or_throw()),
        loop_(*group_->loops()[0]) {}

  template <class Function>
  void post(Function function) {
    if (!loop_.post(std::move(function))) std::abort();
  }

 private:
  std::unique_ptr<LoopGroup> group_;
  EventLoop& loop_;
};

}  // namespace

int main(int argc, char** argv) try {
  return perf::run_own_rounds(argc, argv, [](bool quick) {
    for (const std::string_view transport : transport_names()) {
      perf::measure_posts<Loop>("linkspan " + std::string(transport), quick, transport);
    }
  });
} catch (const Exception& error) {
  std::fprintf(stderr, "post: %s\n", error.what());
  return 1;
}
