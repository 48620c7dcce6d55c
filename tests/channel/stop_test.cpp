// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Loops that stop with everything under way, on each transport and the simulated network: each completion
// comes once, and before the loop is done.
#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "linkspan/channel/channel_group.hpp"
#include "linkspan/channel/connection_pool.hpp"
#include "linkspan/channel/requests.hpp"
#include "linkspan/channel/retrying_connect.hpp"
#include "linkspan/channel/server.hpp"
#include "linkspan/loop/async_files.hpp"
#include "tests/channel/own_loop.hpp"
#include "tests/support/log_capture.hpp"
#include "tests/support/temporary_directory.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

class Silent final : public Service<Chain> {
 public:
  void on_read(Chain&&) override {}
};

Status silent(Channel& channel) {
  return channel.pipeline().append<Silent>();
}

ServerOptions deaf_options() {
  ServerOptions options;
  options.endpoint = Endpoint::parse("127.0.0.1:0").value_or_throw();
  options.channel.auto_read = false;
  options.initializer = silent;
  return options;
}

// Counts completions by name; all errors of a name are kept.
struct Ends {
  std::map<std::string, std::vector<std::error_code>> completed;
  std::vector<std::string> begun;

  WriteDone next(const std::string& name) {
    begun.push_back(name);
    return [this, name](std::error_code error) { completed[name].push_back(error); };
  }
  void each_came_once() const {
    for (const std::string& name : begun) {
      CAPTURE(name);
      const auto found = completed.find(name);
      REQUIRE(found != completed.end());
      CHECK(found->second.size() == 1);
    }
  }
  [[nodiscard]] std::error_code of(const std::string& name) const { return completed.at(name).front(); }
};

struct Question {
  std::uint64_t id = 0;
};
class Asking final : public Codec<Chain, Question> {
 public:
  void on_read(Chain&&) override {}
  void on_write(Question&& question) override { write(Chain(Slice::adopt(std::to_string(question.id)))); }
};
struct Ids {
  static void set(Question& question, std::uint64_t id) { question.id = id; }
  static std::uint64_t get(const Question& question) { return question.id; }
};
using Questions = Requests<Question, Question, Ids>;

Chain bytes(std::size_t size) {
  return Chain(Slice::adopt(std::string(size, 'x')));
}

}  // namespace

TEST_CASE("a loop that stops completes all that is pending, each once, before it is done") {
  const LogCapture log(LogLevel::off);
  const TemporaryDirectory directory;
  on_every_own_loop([&](EventLoop& loop) {
    Ends ends;
    bool timer_fired = false;
    Timer timer(loop, [&] { timer_fired = true; });
    timer.start(std::chrono::hours(1));
    Server server = Server::start(loop, deaf_options()).value_or_throw();
    const Endpoint to = server.local_endpoint();

    ChannelOptions options;
    options.pending.max_bytes = std::size_t{16} << 20;
    options.pending.when_full = WhenFull::wait;
    bool connected = false;
    const ChannelRef full = Client(loop, silent, options).connect(to, [&](auto) { connected = true; });
    Questions* questions = nullptr;
    bool asking = false;
    const Client asks(loop, [&](Channel& channel) {
      auto made = std::make_unique<Questions>();
      questions = made.get();
      return channel.pipeline().append(std::make_unique<Asking>(), std::move(made));
    });
    const ChannelRef asker = asks.connect(to, [&](auto) { asking = true; });
    run_until(loop, [&] { return connected && asking; });

    // Writes: queued, cancellable, waiting; the same of a peer that never reads, and of memory that waits.
    full.write(bytes(std::size_t{12} << 20), ends.next("queued write"));
    full.write(bytes(std::size_t{10} << 20), ends.next("waiting write"));
    static_cast<void>(full.write_cancellable(bytes(1), ends.next("cancellable write")));
    const WriteToken token = full.write_cancellable(bytes(1), ends.next("cancelled write"));
    CHECK(token.cancel());
    full.here()->receive_into(Block(loop.pool().allocate(4096)), 4096,
                              [done = ends.next("receive_into")](std::error_code error, Block&&,
                                                                 std::size_t) mutable { done(error); });
    // Requests.
    for (const char* name : {"request", "cancelled request"}) {
      questions->call({},
                      [done = ends.next(name)](std::error_code error, Question*) mutable { done(error); });
    }
    CHECK(questions->cancel(2));
    // Connects: on their way, by name, between attempts.
    const ChannelRef connecting = Client(loop, silent).connect(to, ends.next("connect"));
    connecting.write(bytes(1), ends.next("write before it is open"));
    Client(loop, silent).connect("here:1", ends.next("connect by name"));
    RetryOptions retries;
    retries.backoff.attempts = 0;
    retries.backoff.first_delay = retries.backoff.max_delay = std::chrono::hours(1);
    retries.deadline = std::chrono::hours(2);
    const Endpoint nobody = Server::start(loop, deaf_options()).value_or_throw().local_endpoint();
    const RetryingConnect retrying(loop, silent, {}, std::vector{nobody}, retries,
                                   [done = ends.next("connecting again")](
                                       std::error_code error, const ChannelRef&) mutable { done(error); });
    run_until(loop, [&] { return retrying.attempts() == 1; });
    // A pool: one connection in use, one that waits for it, one too many.
    PoolOptions pooling;
    pooling.max_connections = 1;
    pooling.max_waiting = 1;
    ConnectionPool pool(loop, std::vector{to}, silent, {}, pooling);
    PooledChannel in_use;
    pool.acquire([&](Result<PooledChannel> result) { in_use = std::move(result).value(); });
    run_until(loop, [&] { return in_use.channel().alive(); });
    for (const char* name : {"acquire", "one too many"}) {
      pool.acquire([done = ends.next(name)](const Result<PooledChannel>& result) mutable {
        done(result ? std::error_code() : result.error().code);
      });
    }
    // Files.
    AsyncFiles& files = loop.files();
    files.open(directory.path() + "/file", OpenMode::open_or_create,
               [done = ends.next("open")](const Result<AsyncFile>& file) mutable {
                 done(file ? std::error_code() : file.error().code);
               });
    files.create_directories(directory.path() + "/a/b",
                             [done = ends.next("directories")](const Status& status) mutable {
                               done(status ? std::error_code() : status.error().code);
                             });
    // Groups and the server itself.
    ChannelGroup group;
    REQUIRE(group.add(*full.here()));
    group.close(std::chrono::hours(1), [done = ends.next("group")]() mutable { done({}); });
    server.stop(std::chrono::hours(1), [done = ends.next("server")]() mutable { done({}); });

    stop(loop);
    ends.each_came_once();
    CHECK_FALSE(timer_fired);
    CHECK_FALSE(full.alive());
    CHECK(ends.of("cancelled write") == errc::cancelled);
    CHECK(ends.of("waiting write"));
    CHECK(ends.of("connecting again") == errc::cancelled);
    CHECK(ends.of("acquire") == errc::cancelled);
    CHECK(ends.of("one too many") == errc::limit_exceeded);
    CHECK(ends.of("request"));
    CHECK(ends.of("cancelled request") == errc::cancelled);
  });
}
