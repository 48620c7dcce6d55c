// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include <version>  // the first: what Asio finds in the standard library depends on it

#include "linkspan/interop/async_requests.hpp"

#include <doctest/doctest.h>

#include <asio/awaitable.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/experimental/as_tuple.hpp>
#include <asio/use_awaitable.hpp>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "linkspan/channel/client.hpp"
#include "linkspan/channel/server.hpp"
#include "linkspan/interop/loop_executor.hpp"
#include "tests/channel/numbered_lines.hpp"
#include "tests/interop/loops.hpp"

using namespace linkspan;
using namespace linkspan::test;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

// Answers "last" and then what it has kept, the youngest first; "never" it does not answer, and at "end" it
// breaks the connection.
class Answers final : public Service<Numbered, Numbered> {
 public:
  void on_read(Numbered&& question) override {
    if (question.text == "never") return;
    if (question.text == "end") return channel().abort();
    kept_.push_back(std::move(question));
    if (kept_.back().text != "last") return;
    for (; !kept_.empty(); kept_.pop_back()) {
      kept_.back().text += "!";
      write(std::move(kept_.back()));
    }
  }

 private:
  std::vector<Numbered> kept_;
};

using AsyncQuestions = AsyncRequests<Numbered, Numbered, Ids>;

struct Asking {
  TestLoop& test;
  Server server;
  std::optional<AsyncQuestions> questions;
  std::vector<std::string> ends;

  explicit Asking(TestLoop& test_in, const RequestOptions& options = {})
      : test(test_in), server(Server::start(test.loop(), answering()).value_or_throw()) {
    const Client client(test.loop(), [this, options](Channel& channel) {
      questions.emplace(channel);
      return channel.pipeline().append(std::make_unique<NumberedLines>(),
                                       std::make_unique<Questions>(options));
    });
    client.connect(server.local_endpoint());
    REQUIRE(questions);
  }
  ~Asking() {
    questions->ref().abort();
    server.stop(Duration::zero());
    test.stop();
  }

  static ServerOptions answering() {
    ServerOptions options;
    options.endpoint = Endpoint::parse("127.0.0.1:0").value_or_throw();
    options.initializer = [](Channel& channel) {
      return channel.pipeline().append(std::make_unique<NumberedLines>(), std::make_unique<Answers>());
    };
    return options;
  }
  asio::awaitable<void> ask(std::string text, AsyncOptions options = {}) {
    Numbered question{0, text};  // GCC 12 mistreats temporary aggregates in co_await
    const auto [error, answer] = co_await async_call(*questions, std::move(question), std::move(options),
                                                     asio::experimental::as_tuple(asio::use_awaitable));
    ends.push_back(error ? text + ": " + error.message() : answer.text);
  }
  void spawn(const std::string& text, AsyncOptions options = {}) {
    asio::co_spawn(LoopExecutor(test.loop()), ask(text, std::move(options)), asio::detached);
  }
  [[nodiscard]] bool await(std::size_t count) {
    return test.run_until([&] { return ends.size() >= count; });
  }
  [[nodiscard]] std::size_t in_flight() const { return questions->handler()->in_flight(); }
};

// From docs/GUIDE.md.
asio::awaitable<std::string> ask_one(AsyncQuestions questions, std::string text) {
  Numbered question{0, std::move(text)};
  Numbered answer = co_await async_call(questions, std::move(question), seconds(2), asio::use_awaitable);
  co_return answer.text;
}

std::string said(const std::string& text, errc why) {
  return text + ": " + make_error_code(why).message();
}

}  // namespace

TEST_CASE("coroutines that ask on one connection each get their own answer, in whatever order they come") {
  on_every_loop([](TestLoop& test) {
    Asking asking(test);
    for (const char* text : {"one", "two", "last"}) asking.spawn(text);  // also before it is connected
    REQUIRE(asking.await(3));
    CHECK(asking.ends == std::vector<std::string>{"last!", "two!", "one!"});
    CHECK(asking.in_flight() == 0);
  });
}

TEST_CASE("a coroutine gets the answer, or why there is none as an exception") {
  on_every_loop([](TestLoop& test) {
    Asking asking(test);
    const auto keep = [&asking](const std::exception_ptr& failed, const std::string& answer) {
      asking.ends.push_back(failed ? "an exception" : answer);
    };
    asio::co_spawn(LoopExecutor(test.loop()), ask_one(*asking.questions, "last"), keep);
    REQUIRE(asking.await(1));
    asio::co_spawn(LoopExecutor(test.loop()), ask_one(*asking.questions, "end"), keep);
    REQUIRE(asking.await(2));
    CHECK(asking.ends == std::vector<std::string>{"last!", "an exception"});
  });
}

TEST_CASE("a call ends at its timeout, or at the deadline of all requests, and is forgotten") {
  on_every_loop([](TestLoop& test) {
    RequestOptions options;
    options.deadline = milliseconds(5);
    Asking asking(test, options);
    asking.spawn("never");
    REQUIRE(asking.await(1));
    asking.spawn("never", milliseconds(1));
    REQUIRE(asking.await(2));
    asking.spawn("last", seconds(60));
    REQUIRE(asking.await(3));
    CHECK(asking.ends ==
          std::vector<std::string>{said("never", errc::timed_out), said("never", errc::timed_out), "last!"});
    CHECK(asking.in_flight() == 0);
  });
}

TEST_CASE("a call that is asked to stop, from another thread too, is cancelled and takes up no place") {
  on_every_loop([](TestLoop& test) {
    RequestOptions options;
    options.max_in_flight = 1;
    Asking asking(test, options);
    std::stop_source stop;
    asking.spawn("never", stop.get_token());
    asking.spawn("one too many");
    REQUIRE(asking.await(1));
    CHECK(asking.ends.back() == said("one too many", errc::limit_exceeded));
    CHECK(asking.in_flight() == 1);
    std::thread([&stop] { stop.request_stop(); }).join();
    REQUIRE(asking.await(2));
    CHECK(asking.ends.back() == said("never", errc::cancelled));
    CHECK(asking.in_flight() == 0);
    asking.spawn("last");
    REQUIRE(asking.await(3));
    CHECK(asking.ends.back() == "last!");
  });
}

TEST_CASE("all calls fail with the connection, and later ones at once") {
  on_every_loop([](TestLoop& test) {
    Asking asking(test);
    asking.spawn("never");
    asking.spawn("one");
    asking.spawn("end");
    REQUIRE(asking.await(3));
    for (const std::string& end : asking.ends) CHECK(end.find("!") == std::string::npos);
    REQUIRE(test.run_until([&] { return !asking.questions->ref().alive(); }));
    asking.spawn("last");
    REQUIRE(asking.await(4));
    CHECK(asking.ends.back() == said("last", errc::shut_down));
  });
}

TEST_CASE("what waits for an answer ends when its loop stops") {
  on_every_loop([](TestLoop& test) {
    std::vector<std::string> ends;
    {
      Asking asking(test);
      asking.spawn("never");
      test.settle();
      CHECK(asking.ends.empty());
      asking.test.loop().stop();
      REQUIRE(asking.await(1));
      ends = asking.ends;
    }
    CHECK(ends.size() == 1);
    CHECK(ends.front().starts_with("never: "));
  });
}
