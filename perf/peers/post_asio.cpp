// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// asio::post to a context that another thread runs.
#include <asio.hpp>
#include <thread>
#include <utility>

#include "perf/support/posts.hpp"

namespace {

class Loop {
 public:
  Loop() = default;
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop() {
    work_.reset();
    thread_.join();
  }

  template <class Function>
  void post(Function function) {
    asio::post(context_, std::move(function));
  }

 private:
  asio::io_context context_;
  asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(context_);
  std::thread thread_{[this] { context_.run(); }};
};

}  // namespace

int main(int argc, char** argv) {
  return linkspan::perf::run_own_rounds(
      argc, argv, [](bool quick) { linkspan::perf::measure_posts<Loop>("Asio", quick); });
}
