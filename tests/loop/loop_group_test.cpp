// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/loop/loop_group.hpp"

#include <doctest/doctest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cerrno>
#include <future>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/engines.hpp"

using namespace linkspan;
using linkspan::test::make_sleeping_engine;

namespace {

std::unique_ptr<LoopGroup> group_of(std::size_t size, LoopGroupOptions options = {}) {
  options.size = size;
  return LoopGroup::create(&make_sleeping_engine, std::move(options)).value_or_throw();
}

// What `ask` returns on the loop's thread.
template <class Ask>
auto on_loop(EventLoop& loop, Ask ask) {
  std::promise<decltype(ask())> answer;
  auto future = answer.get_future();
  CHECK(loop.post([&] { answer.set_value(ask()); }));
  return future.get();
}

int first_allowed_cpu() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  static_cast<void>(::sched_getaffinity(0, sizeof(allowed), &allowed));
  int cpu = 0;
  while (!CPU_ISSET(static_cast<unsigned>(cpu), &allowed)) ++cpu;
  return cpu;
}

}  // namespace

TEST_CASE("each loop of a group has a thread of its own, named after it") {
  LoopGroupOptions options;
  options.loop.name = "worker";
  const auto group = group_of(3, std::move(options));
  std::set<std::thread::id> threads;
  std::vector<std::string> names;
  for (EventLoop* loop : group->loops()) {
    names.push_back(loop->name());
    CHECK_FALSE(loop->in_loop_thread());
    CHECK(on_loop(*loop, [loop] { return loop->in_loop_thread(); }));
    threads.insert(on_loop(*loop, [] { return std::this_thread::get_id(); }));
    CHECK(on_loop(*loop, [] {
            char name[32] = {};
            ::pthread_getname_np(::pthread_self(), name, sizeof(name));
            return std::string(name);
          }) == loop->name());
  }
  CHECK(threads.size() == 3);
  CHECK(names == std::vector<std::string>{"worker-0", "worker-1", "worker-2"});
}

TEST_CASE("a long name is cut to what a thread may have") {
  LoopGroupOptions options;
  options.loop.name = "a-name-that-is-far-too-long";
  const auto group = group_of(1, std::move(options));
  CHECK(group->loops()[0]->name() == "a-name-that-is-far-too-long-0");
  CHECK(on_loop(*group->loops()[0], [] {
          char name[32] = {};
          ::pthread_getname_np(::pthread_self(), name, sizeof(name));
          return std::string(name);
        }) == "a-name-that-is-");
}

TEST_CASE("loops are bound to the CPUs that were asked for") {
  LoopGroupOptions options;
  const int cpu = first_allowed_cpu();
  options.cpus = {cpu};
  const auto group = group_of(2, std::move(options));
  for (EventLoop* loop : group->loops()) {
    const cpu_set_t set = on_loop(*loop, [] {
      cpu_set_t bound;
      CPU_ZERO(&bound);
      static_cast<void>(::sched_getaffinity(0, sizeof(bound), &bound));
      return bound;
    });
    CHECK(CPU_COUNT(&set) == 1);
    CHECK(CPU_ISSET(static_cast<unsigned>(cpu), &set));
  }
}

TEST_CASE("a CPU that there is not makes an error that names it") {
  for (const int cpu : {-1, CPU_SETSIZE - 1, CPU_SETSIZE, 1 << 30}) {
    CAPTURE(cpu);
    LoopGroupOptions options;
    options.size = 2;
    options.cpus = {first_allowed_cpu(), cpu};
    const auto group = LoopGroup::create(&make_sleeping_engine, std::move(options));
    REQUIRE_FALSE(group.ok());
    CHECK(group.error().code == errc::invalid_argument);
    CHECK(group.error().detail.find("CPU " + std::to_string(cpu)) != std::string::npos);
  }
}

TEST_CASE("a group has 1 to 1024 loops") {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1025}}) {
    LoopGroupOptions options;
    options.size = size;
    const auto group = LoopGroup::create(&make_sleeping_engine, std::move(options));
    REQUIRE_FALSE(group.ok());
    CHECK(group.error().code == errc::invalid_argument);
  }
}

TEST_CASE("an engine that one loop cannot make fails the group with its reason") {
  std::atomic<int> made{0};
  LoopGroupOptions options;
  options.size = 4;
  const auto group = LoopGroup::create(
      [&made](EventLoop& loop) -> Result<std::unique_ptr<Engine>> {
        if (made++ == 2) return Error(system_error_code(EMFILE), "no descriptor left");
        return make_sleeping_engine(loop);
      },
      std::move(options));
  REQUIRE_FALSE(group.ok());
  CHECK(group.error().code == std::errc::too_many_files_open);
  CHECK(group.error().detail == "no descriptor left");
}

TEST_CASE("without a policy of its own, a group takes its loops in turn") {
  const auto group = group_of(3);
  std::vector<EventLoop*> chosen;
  for (int i = 0; i < 6; ++i) chosen.push_back(&group->next());
  const auto loops = group->loops();
  CHECK(chosen == std::vector<EventLoop*>{loops[0], loops[1], loops[2], loops[0], loops[1], loops[2]});
}

TEST_CASE("a policy of the user's chooses, and fewest_bytes takes the quietest loop") {
  LoopGroupOptions options;
  options.policy = [](std::span<EventLoop* const> loops) { return loops.size() - 1; };
  const auto last = group_of(3, std::move(options));
  CHECK(&last->next() == last->loops()[2]);

  LoopGroupOptions quietest;
  quietest.policy = fewest_bytes();
  const auto group = group_of(3, std::move(quietest));
  const auto loops = group->loops();
  CHECK(&group->next() == loops[0]);
  const auto count = [](EventLoop& loop, std::uint64_t received, std::uint64_t sent) {
    CHECK(on_loop(loop, [&] {
      loop.counters().bytes_received.add(received);
      loop.counters().bytes_sent.add(sent);
      return true;
    }));
  };
  count(*loops[0], 5, 5);
  count(*loops[1], 0, 9);
  count(*loops[2], 10, 0);
  CHECK(&group->next() == loops[1]);
}

TEST_CASE("wait returns when all loops have stopped; posts after that are refused") {
  const auto group = group_of(2);
  std::atomic<int> ran{0};
  for (EventLoop* loop : group->loops()) CHECK(loop->post([&ran] { ++ran; }));
  group->stop();
  group->stop();
  group->wait();
  CHECK(ran == 2);
  for (EventLoop* loop : group->loops()) {
    CHECK_FALSE(loop->post([&ran] { ++ran; }));
    CHECK(loop->stopping());
  }
  CHECK(ran == 2);
}

TEST_CASE("a group that is destroyed stops its loops and runs what was posted") {
  std::atomic<int> ran{0};
  {
    const auto group = group_of(2);
    for (EventLoop* loop : group->loops()) CHECK(loop->post([&ran] { ++ran; }));
  }
  CHECK(ran == 2);
}

TEST_CASE("one loop may be stopped alone") {
  const auto group = group_of(2);
  group->loops()[0]->stop();
  CHECK(on_loop(*group->loops()[1], [] { return true; }));
}

TEST_CASE("an engine factory that throws on a group's thread is an error of the group") {
  std::atomic<int> calls{0};
  LoopGroupOptions options;
  options.size = 3;
  const auto made = LoopGroup::create(
      [&calls](EventLoop& loop) -> Result<std::unique_ptr<Engine>> {
        if (calls++ == 1) throw std::runtime_error("no engine today");
        return make_sleeping_engine(loop);
      },
      std::move(options));
  REQUIRE_FALSE(made.ok());
  CHECK(made.error().code == errc::handler_failed);
  CHECK(made.error().detail.ends_with("creating the loop threw: no engine today"));
}
