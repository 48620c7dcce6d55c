// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What getting zeroed memory, and giving it back, does to the loop it happens on: the time until the memory
// can be used, and how late a heartbeat of 1 ms comes meanwhile, until the last page is back. A late beat
// delays none of those after it: each has its own due time, so a stall of 100 ms is 100 late beats. Memory
// below 1 MiB is the heap's, from there on it is fresh pages, never a mix of fresh and reused ones. Recycled
// memory is the loop's pool's, or above 256 KiB a block that is kept.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linkspan/buffer/page_allocator.hpp"
#include "linkspan/loop/event_loop.hpp"
#include "linkspan/loop/large_memory.hpp"
#include "linkspan/loop/timer.hpp"
#include "linkspan/transport/transport.hpp"
#include "perf/support/own_rounds.hpp"

namespace {

using namespace linkspan;

constexpr Duration kBeat = std::chrono::milliseconds(1);
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kPagesFrom = kMiB;
constexpr std::size_t kBudget = std::size_t{5} << 30;

struct Size {
  const char* name;
  std::size_t bytes;
  int operations;
  bool quick;
};
constexpr Size kSizes[] = {
    {"128 B", 128, 200, false},
    {"1 KiB", 1024, 200, true},
    {"1 MiB", kMiB, 100, true},
    {"64 MiB", 64 * kMiB, 4, true},
    {"2 GiB - 1", 2048 * kMiB - 1, 1, false},
    {"2 GiB", 2048 * kMiB, 1, false},
};

TimePoint now() {
  return monotonic_clock().now();
}

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "bounded-alloc: %s\n", why.c_str());
  std::exit(1);
}

Block checked(Block block) {
  if (!block) fail("no memory");
  return block;
}

void zero(Block& block, std::size_t chunk) {
  for (std::size_t at = 0; at < block.size(); at += chunk) {
    std::memset(block.data() + at, 0, std::min(chunk, block.size() - at));
  }
}

// Beats once a millisecond. A timer fires on its loop's whole milliseconds; the earliest of the first beats
// tells where those are, and lateness is counted from there.
class Heartbeat {
 public:
  explicit Heartbeat(EventLoop& loop) : loop_(loop), timer_(loop, [this] { beat(); }) {}

  void calibrate() {
    constexpr std::size_t kFirstBeats = 50;
    begin_ = now();
    timer_.start(kBeat);
    while (lateness_.size() < kFirstBeats) loop_.run_once(kBeat);
    begin_ += *std::ranges::min_element(lateness_);
    clear();
  }

  void clear() {
    lateness_.clear();
    // Beats that were missed between two measurements belong to neither.
    beats_ = std::max(beats_, (now() - begin_) / kBeat + 1);
  }
  [[nodiscard]] bool behind() const { return due() < now(); }
  [[nodiscard]] std::vector<Duration>& lateness() { return lateness_; }

 private:
  void beat() {
    lateness_.push_back(std::max(now() - due(), Duration::zero()));
    ++beats_;
    // In the middle before a whole millisecond, which it is rounded up to.
    timer_.start(due() - kBeat / 2 - loop_.now());
  }
  [[nodiscard]] TimePoint due() const { return begin_ + kBeat * beats_; }

  EventLoop& loop_;
  Timer timer_;
  TimePoint begin_;
  Duration::rep beats_ = 1;
  std::vector<Duration> lateness_;
};

// The loop and the memory of one round. `done` is called by an operation once the memory is usable, and takes
// it.
class Bench {
 public:
  using Done = std::function<void(Block)>;
  using Operation = std::function<void(std::size_t bytes, Done done)>;

  Bench() : loop_(EventLoop::create(transport_engine("auto").value_or_throw()).value_or_throw()) {
    LargeMemoryOptions options;
    options.pages.budget_bytes = kBudget;
    memory_ = LargeMemory::create(options).value_or_throw();
    options.pages.huge_pages = HugePages::transparent;
    huge_pages_ = LargeMemory::create(std::move(options)).value_or_throw();
    heartbeat_.emplace(*loop_);
    heartbeat_->calibrate();
  }

  void measure(const char* variant, const Size& size, std::size_t beats, const Operation& operation) {
    used(size.bytes).reset();  // in a virtual machine the first use of memory is the host's business
    heartbeat_->clear();
    Duration total{};
    for (int left = operation ? size.operations : 0; left > 0; --left) {
      bool done = false;
      TimePoint begin;
      const bool posted = loop_->post([&] {
        begin = now();
        operation(size.bytes, [&](Block block) {
          total += now() - begin;
          block.reset();
          done = true;
        });
      });
      if (!posted) fail("a task was refused");
      // The next operation begins when this one has left no trace.
      while (!done || unmapping(*memory_) || unmapping(*huge_pages_) || heartbeat_->behind()) {
        loop_->run_once(kBeat);
      }
      allocation_.reset();
    }
    while (heartbeat_->lateness().size() < beats) loop_->run_once(kBeat);
    report(variant, size, operation ? std::optional(total / size.operations) : std::nullopt);
  }

  LargeMemory& memory() { return *memory_; }
  LargeMemory& huge_pages() { return *huge_pages_; }

  Block fresh(std::size_t bytes) {
    return checked(bytes < kPagesFrom ? heap_allocator().allocate(bytes) : pages_.allocate(bytes));
  }

  void large(LargeMemory& memory, std::size_t bytes, LargeAllocation::Place place, Done done) {
    allocation_.emplace(memory, *loop_, bytes, place,
                        [done = std::move(done)](Block block, std::error_code error) {
                          if (error) fail(error.message());
                          done(std::move(block));
                        });
  }

  // Zeroes a block that was used before.
  void recycle(std::size_t bytes, const Done& done) {
    if (bytes > BlockPool::kClassBytes.back()) {
      zero(kept_, kept_.size());
      return done(Block());
    }
    Block block = checked(loop_->pool().allocate(bytes));
    zero(block, block.size());
    done(std::move(block));
  }
  Block used(std::size_t bytes) {
    Block block = fresh(bytes);
    std::memset(block.data(), 1, block.size());
    return block;
  }
  void keep(Block block) { kept_ = std::move(block); }

 private:
  static PageAllocatorOptions page_options() {
    PageAllocatorOptions options;
    options.budget_bytes = kBudget;
    return options;
  }

  static bool unmapping(LargeMemory& memory) { return memory.pages().statistics().released_bytes != 0; }

  void report(const char* variant, const Size& size, std::optional<Duration> mean) {
    const auto print = [&](const char* metric, const char* unit, double value) {
      std::printf(
          R"({"variant": "%s", "params": {"size": "%s"}, "metric": "%s", "unit": "%s", "value": %.4g})"
          "\n",
          variant, size.name, metric, unit, value);
    };
    if (mean) print("mean time", "ns", static_cast<double>(mean->count()));
    std::vector<Duration>& lateness = heartbeat_->lateness();
    std::ranges::sort(lateness);
    const auto at = [&](std::size_t percent) {
      return static_cast<double>(lateness[(lateness.size() - 1) * percent / 100].count()) / 1000;
    };
    print("heartbeat lateness p50", "us", at(50));
    print("heartbeat lateness p99", "us", at(99));
    print("heartbeat lateness max", "us", at(100));
    std::fflush(stdout);
  }

  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<LargeMemory> memory_;
  std::unique_ptr<LargeMemory> huge_pages_;
  PageAllocator pages_{page_options()};  // unmaps where blocks are released
  Block kept_;
  std::optional<LargeAllocation> allocation_;
  std::optional<Heartbeat> heartbeat_;
};

void run_round(bool quick) {
  using Place = LargeAllocation::Place;
  Bench bench;
  const std::size_t beats = quick ? 50 : 500;
  for (const Size& size : kSizes) {
    if (quick && !size.quick) continue;
    bench.measure("idle", size, beats, nullptr);
    bench.measure("zeroed in one go", size, beats, [&](std::size_t bytes, const Bench::Done& done) {
      Block block = bench.fresh(bytes);
      zero(block, block.size());
      done(std::move(block));
    });
    bench.measure("chunked, not yielding", size, beats, [&](std::size_t bytes, const Bench::Done& done) {
      Block block = bench.fresh(bytes);
      zero(block, kMiB);
      done(std::move(block));
    });
    bench.measure("linkspan on the loop", size, beats, [&](std::size_t bytes, Bench::Done done) {
      bench.large(bench.memory(), bytes, Place::on_loop, std::move(done));
    });
    bench.measure("linkspan on the loop, huge pages", size, beats, [&](std::size_t bytes, Bench::Done done) {
      bench.large(bench.huge_pages(), bytes, Place::on_loop, std::move(done));
    });
    bench.measure("linkspan off the loop", size, beats, [&](std::size_t bytes, Bench::Done done) {
      bench.large(bench.memory(), bytes, Place::off_loop, std::move(done));
    });
    bench.measure("uninitialised", size, beats,
                  [&](std::size_t bytes, const Bench::Done& done) { done(bench.fresh(bytes)); });
    bench.keep(bench.used(size.bytes));
    bench.measure("recycled, zeroed again", size, beats,
                  [&](std::size_t bytes, const Bench::Done& done) { bench.recycle(bytes, done); });
    bench.keep(Block());
  }
}

}  // namespace

int main(int argc, char** argv) {
  return perf::run_own_rounds(argc, argv, run_round);
}
