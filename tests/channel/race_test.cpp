// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What one thread cancels while another one completes it, ten thousand times on each transport: whoever wins,
// each operation completes exactly once, what it says is what happened, and nothing is left behind.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "linkspan/channel/connection_pool.hpp"
#include "linkspan/channel/requests.hpp"
#include "linkspan/channel/retrying_connect.hpp"
#include "linkspan/channel/server.hpp"
#include "linkspan/loop/timer.hpp"
#include "tests/channel/peer.hpp"
#include "tests/support/sanitized.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

constexpr int kRaces = kSanitized ? 2'000 : 10'000;
constexpr int kBatch = 100;

// Connections to it need no ports.
Endpoint unix_endpoint() {
  static int number = 0;
  return Endpoint::parse("unix:@linkspan-race-test-" + std::to_string(::getpid()) + "-" +
                         std::to_string(++number))
      .value_or_throw();
}

// Runs `function` on the loop, and waits for it.
void on_loop(EventLoop& loop, const std::function<void()>& function) {
  std::atomic<bool> done{false};
  CHECK(loop.post([&] {
    function();
    done = true;
    done.notify_one();
  }));
  done.wait(false);
}

// Completions of operations that are numbered from 0.
class Outcomes {
 public:
  explicit Outcomes(int count) : entries_(static_cast<std::size_t>(count)) {}

  void complete(int number, std::error_code error) {
    Entry& entry = entries_[static_cast<std::size_t>(number)];
    entry.error = error;
    entry.completions.fetch_add(1);
    completed_.fetch_add(1);
    completed_.notify_all();
  }
  WriteDone done(int number) {
    return [this, number](std::error_code error) { complete(number, error); };
  }
  void wait_for(int count) const {
    for (int now = completed_; now < count; now = completed_) completed_.wait(now);
  }
  [[nodiscard]] bool each_once() const {
    for (const Entry& entry : entries_) {
      if (entry.completions != 1) return false;
    }
    return true;
  }
  /// Once completed.
  [[nodiscard]] std::error_code error(int number) const {
    return entries_[static_cast<std::size_t>(number)].error;
  }
  /// How many ended so.
  [[nodiscard]] int count(std::error_code error) const {
    int found = 0;
    for (const Entry& entry : entries_) found += entry.error == error ? 1 : 0;
    return found;
  }

 private:
  struct Entry {
    std::atomic<int> completions{0};
    std::error_code error;
  };
  std::vector<Entry> entries_;
  std::atomic<int> completed_{0};
};

// Another thread, which does something to each of a batch: which number it may go up to is let on by and by.
class Rival {
 public:
  explicit Rival(std::function<void(int)> act, int count)
      : thread_([this, act = std::move(act), count] {
          for (int i = 0; i < count; ++i) {
            for (int now = ready_; now <= i; now = ready_) ready_.wait(now);
            act(i);
          }
        }) {}
  Rival(const Rival&) = delete;
  Rival& operator=(const Rival&) = delete;
  ~Rival() { thread_.join(); }

  void let_on() {
    ready_.fetch_add(1);
    ready_.notify_one();
  }

 private:
  std::atomic<int> ready_{0};
  std::thread thread_;
};

class Silent final : public Service<Chain> {
 public:
  void on_read(Chain&&) override {}
};

class EchoBytes final : public Service<Chain> {
 public:
  void on_read(Chain&& data) override { write(std::move(data)); }
};

// Keeps what comes.
class Keeping final : public Service<Chain> {
 public:
  explicit Keeping(std::string& text) : text_(text) {}
  void on_read(Chain&& data) override { text_ += data.to_string(); }

 private:
  std::string& text_;
};

Status silent(Channel& channel) {
  return channel.pipeline().append<Silent>();
}

template <class H, class... Args>
ServerOptions options_with(Args&... args) {
  ServerOptions options;
  options.endpoint = unix_endpoint();
  options.listen.backlog = 1024;
  options.initializer = [&args...](Channel& channel) {
    return channel.pipeline().append(std::make_unique<H>(args...));
  };
  return options;
}

// Numbers as text of one width.
constexpr std::size_t kWidth = 6;
std::string numbered(int number) {
  std::string text = std::to_string(number);
  return std::string(kWidth - text.size(), '0') + text;
}

}  // namespace

TEST_CASE("writes that are cancelled while they are flushed are sent or cancelled, never both") {
  on_every_transport(1, [](LoopGroup& loops) {
    EventLoop& loop = loops.next();
    std::string received;
    const Server server = Server::start(loops, options_with<Keeping>(received)).value_or_throw();
    ChannelOptions options;
    options.pending.max_waiting = kRaces;
    const ChannelRef ref = Client(loops, silent, options).connect(server.local_endpoint());
    Outcomes outcomes(kRaces);
    std::vector<WriteToken> tokens(kRaces);
    std::vector<char> cancelled(kRaces);
    {
      Rival rival([&](int i) { cancelled[i] = tokens[i].cancel() ? 1 : 0; }, kRaces);
      for (int i = 0; i < kRaces; ++i) {
        tokens[i] = ref.write_cancellable(Chain(Slice::adopt(numbered(i))), outcomes.done(i));
        rival.let_on();
        if (i % kBatch == 0) outcomes.wait_for(i - kBatch);
      }
    }
    outcomes.wait_for(kRaces);
    CHECK(outcomes.each_once());
    std::string expected;
    bool agree = true;
    for (int i = 0; i < kRaces; ++i) {
      if (cancelled[i] == 0) expected += numbered(i);
      agree &=
          outcomes.error(i) == (cancelled[i] != 0 ? make_error_code(errc::cancelled) : std::error_code());
    }
    CHECK(agree);
    on_loop(loop, [&] {
      REQUIRE(ref.here() != nullptr);
      CHECK(ref.here()->queued_bytes() == 0);
    });
    ref.close();
    while (server.counters().closed == 0) std::this_thread::yield();
    on_loop(loop, [&] { CHECK(received == expected); });
  });
}

TEST_CASE("connections that are given up while they open complete once, and none stays") {
  on_every_transport(1, [](LoopGroup& loops) {
    const Server server = Server::start(loops, options_with<Silent>()).value_or_throw();
    const Client client(loops, silent);
    Outcomes outcomes(kRaces);
    std::vector<ChannelRef> refs(kRaces);
    {
      Rival rival([&](int i) { i % 2 == 0 ? refs[i].abort() : refs[i].close(); }, kRaces);
      for (int i = 0; i < kRaces; ++i) {
        refs[i] = client.connect(server.local_endpoint(), outcomes.done(i));
        if (i % 3 == 0) refs[i].write(Chain(Slice::copy("x")));
        rival.let_on();
        if (i % kBatch == 0) outcomes.wait_for(i - kBatch);
      }
    }
    outcomes.wait_for(kRaces);
    CHECK(outcomes.each_once());
    // A listener whose queue is full refuses at once over unix sockets.
    CHECK(outcomes.count({}) + outcomes.count(make_error_code(errc::cancelled)) +
              outcomes.count(system_error_code(EAGAIN)) ==
          kRaces);
    for (const ChannelRef& ref : refs) {
      while (ref.alive()) std::this_thread::yield();
    }
    while (server.connections() != 0) std::this_thread::yield();
  });
}

TEST_CASE(
    "connecting again and again that is destroyed while it connects completes once, and leaves nothing") {
  on_every_transport(1, [](LoopGroup& loops) {
    EventLoop& loop = loops.next();
    const Server server = Server::start(loops, options_with<Silent>()).value_or_throw();
    Outcomes outcomes(kRaces);
    std::vector<std::unique_ptr<RetryingConnect>> connects(kRaces);
    {
      Rival rival([&](int i) { CHECK(loop.post([&, i] { connects[i].reset(); })); }, kRaces);
      for (int i = 0; i < kRaces; ++i) {
        CHECK(loop.post([&, i] {
          connects[i] = std::make_unique<RetryingConnect>(
              loop, silent, ChannelOptions(), std::vector{server.local_endpoint()}, RetryOptions(),
              [&, i](std::error_code error, const ChannelRef& channel) {
                CHECK(channel.alive() == !error);
                channel.abort();
                outcomes.complete(i, error);
              });
        }));
        rival.let_on();
        if (i % kBatch == 0) outcomes.wait_for(i - kBatch);
      }
    }
    outcomes.wait_for(kRaces);
    on_loop(loop, [&] { connects.clear(); });  // behind the rival's posts: what succeeded may be there still
    CHECK(outcomes.each_once());
    CHECK(outcomes.count({}) + outcomes.count(make_error_code(errc::cancelled)) == kRaces);
    while (server.connections() != 0) std::this_thread::yield();
  });
}

TEST_CASE("who waits for a pooled connection gets one or times out, while others give theirs back") {
  on_every_transport(1, [](LoopGroup& loops) {
    EventLoop& loop = loops.next();
    const Server server = Server::start(loops, options_with<Silent>()).value_or_throw();
    PoolOptions options;
    options.max_connections = 4;
    options.max_waiting = kRaces;
    options.acquire_deadline = std::chrono::milliseconds(1);
    std::unique_ptr<ConnectionPool> pool;
    Outcomes outcomes(kRaces);
    std::vector<PooledChannel> taken(kRaces);
    on_loop(loop, [&] {
      pool = std::make_unique<ConnectionPool>(loop, std::vector{server.local_endpoint()}, silent,
                                              ChannelOptions(), options);
    });
    {
      Rival rival(
          [&](int i) {
            outcomes.wait_for(std::max(i - kBatch, 0));
            CHECK(loop.post([&, i] {
              if (i % 7 == 0) taken[i].discard();
              taken[i] = {};
            }));
          },
          kRaces);
      for (int i = 0; i < kRaces; ++i) {
        CHECK(loop.post([&, i] {
          pool->acquire([&, i](Result<PooledChannel> result) {
            outcomes.complete(i, result ? std::error_code() : result.error().code);
            if (!result) return;
            CHECK(result.value().channel().alive());
            if (i % 2 == 0) taken[i] = std::move(result).value();  // else it goes back at once
          });
        }));
        rival.let_on();
      }
    }
    on_loop(loop, [&] {  // what was given after its rival had come
      for (PooledChannel& channel : taken) channel = {};
    });
    outcomes.wait_for(kRaces - kBatch);
    on_loop(loop, [&] {
      for (PooledChannel& channel : taken) channel = {};
      CHECK(pool->in_use() == 0);
      pool.reset();  // cancels those that wait still
    });
    CHECK(outcomes.each_once());
    CHECK(outcomes.count({}) + outcomes.count(make_error_code(errc::timed_out)) +
              outcomes.count(make_error_code(errc::cancelled)) ==
          kRaces);
    while (server.connections() != 0) std::this_thread::yield();
  });
}

namespace {

struct Question {
  std::uint64_t id = 0;
};

// Eight digits each.
class Digits final : public Codec<Chain, Question> {
 public:
  void on_read(Chain&& data) override {
    buffer_.append(std::move(data));
    while (!removed() && buffer_.size() >= 8) pass({std::stoull(buffer_.split_front(8).to_string())});
  }
  void on_write(Question&& question) override {
    const std::string text = std::to_string(question.id);
    write(Chain(Slice::adopt(std::string(8 - text.size(), '0') + text)));
  }

 private:
  Chain buffer_;
};

struct Ids {
  static void set(Question& question, std::uint64_t id) { question.id = id; }
  static std::uint64_t get(const Question& question) { return question.id; }
};
using Questions = Requests<Question, Question, Ids>;

}  // namespace

TEST_CASE("requests that are cancelled or time out while their answers come end once, and all are counted") {
  on_every_transport(1, [](LoopGroup& loops) {
    EventLoop& loop = loops.next();
    const Server server = Server::start(loops, options_with<EchoBytes>()).value_or_throw();
    RequestOptions options;
    options.max_in_flight = kRaces;
    Questions* questions = nullptr;
    const Client client(loops, [&](Channel& channel) {
      auto made = std::make_unique<Questions>(options);
      questions = made.get();
      return channel.pipeline().append(std::make_unique<Digits>(), std::move(made));
    });
    const ChannelRef ref = client.connect(server.local_endpoint());
    Outcomes outcomes(kRaces);
    std::vector<std::uint64_t> ids(kRaces);
    int cancelled = 0;  // the loop's
    {
      Rival rival(
          [&](int i) {
            if (i % 2 == 0) return;
            CHECK(ref.post([&, i](Channel&) { cancelled += questions->cancel(ids[i]) ? 1 : 0; }));
          },
          kRaces);
      for (int i = 0; i < kRaces; ++i) {
        const Duration deadline = i % 3 == 0 ? Duration::zero() : std::chrono::seconds(60);
        CHECK(ref.post([&, i, deadline](Channel&) {
          ids[i] = questions->call({}, deadline, [&, i](std::error_code error, Question* answer) {
            CHECK((answer == nullptr) == static_cast<bool>(error));
            if (answer != nullptr) CHECK(answer->id == ids[i]);
            outcomes.complete(i, error);
          });
        }));
        rival.let_on();
        if (i % kBatch == 0) outcomes.wait_for(i - kBatch);
      }
    }
    outcomes.wait_for(kRaces);
    CHECK(outcomes.each_once());
    on_loop(loop, [&] {
      CHECK(questions->in_flight() == 0);
      CHECK(outcomes.count(make_error_code(errc::cancelled)) == cancelled);
      const RequestCounters& counters = questions->counters();
      CHECK(counters.requests.get() == kRaces);
      CHECK(counters.answered.get() == static_cast<std::uint64_t>(outcomes.count({})));
      CHECK(counters.answered.get() + counters.failed.get() == kRaces);
    });
    ref.close();
    while (ref.alive()) std::this_thread::yield();
  });
}

TEST_CASE("a timer that is cancelled while it is due fires once or not at all, and never afterwards") {
  on_every_transport(1, [](LoopGroup& loops) {
    EventLoop& loop = loops.next();
    std::vector<int> fired(kRaces);
    std::vector<char> was_active(kRaces);
    std::deque<Timer> timers;
    std::atomic<int> over{0};
    {
      Rival rival(
          [&](int i) {
            CHECK(loop.post([&, i] {
              was_active[i] = timers[static_cast<std::size_t>(i)].active() ? 1 : 0;
              timers[static_cast<std::size_t>(i)].cancel();
              over = i;
              over.notify_one();
            }));
          },
          kRaces);
      for (int i = 0; i < kRaces; ++i) {
        CHECK(loop.post([&, i] {
          timers.emplace_back(loop, [&, i] { ++fired[i]; });
          timers.back().start(i % 2 == 0 ? Duration::zero() : std::chrono::milliseconds(1));
        }));
        rival.let_on();
        for (int now = over; i - now > kBatch; now = over) over.wait(now);
      }
    }
    on_loop(loop, [&] {
      bool agree = true;
      for (int i = 0; i < kRaces; ++i) agree &= fired[i] == 1 - was_active[i];
      CHECK(agree);
      timers.clear();
    });
  });
}
