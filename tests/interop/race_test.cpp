// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Operations that end early while their result comes, ten thousand times of each kind, and more often of the
// cheap ones: asked by a stop token on another thread, or by a cancellation slot on the loop. Each completes
// exactly once, and what it says is what happened.
#include <version>  // the first: what Asio finds in the standard library depends on it

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <asio.hpp>
#include <atomic>
#include <cstddef>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "linkspan/channel/embedded_channel.hpp"
#include "linkspan/interop/asio.hpp"
#include "linkspan/loop/large_memory.hpp"
#include "tests/interop/pair.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/temporary_directory.hpp"

using namespace linkspan;
using namespace linkspan::test;
using std::literals::chrono_literals::operator""ms;

namespace {

constexpr int kRaces = kSanitized ? 1'000 : 10'000;
// Of what takes longer: in each of the two ways, on each kind of loop.
constexpr int kFewRaces = kRaces / 4;
constexpr int kFewestRaces = kRaces / 8;
constexpr int kBatch = 500;

using Bytes = AsyncChannel<Chain>;

struct Early {
  AsyncOptions options;
  asio::cancellation_slot slot;
};

/// Starts an operation, and has `done` called once when it completes.
using Start = std::function<void(int number, const Early& early, std::function<void(std::error_code)> done)>;

// Begins operations in batches; a thread asks each to stop, or the loop does by its signal, while it runs.
// Returns how many were cancelled.
int race(TestLoop& test, bool by_token, const Start& start, int races = kRaces, int batch = kBatch) {
  std::mt19937 generator(7);
  int cancelled = 0;
  for (int first = 0; first < races; first += batch) {
    batch = std::min(batch, races - first);
    const auto size = static_cast<std::size_t>(batch);
    std::vector<std::stop_source> sources(size);
    std::vector<asio::cancellation_signal> signals(size);
    std::vector<int> completions(size);
    int completed = 0;
    for (int i = 0; i < batch; ++i) {
      Early early;
      if (by_token) {
        early.options.stop = sources[i].get_token();
      } else {
        early.slot = signals[i].slot();
      }
      start(first + i, early, [&, i](std::error_code error) {
        ++completions[i];
        ++completed;
        cancelled += error == errc::cancelled ? 1 : 0;
        CHECK((!error || error == errc::cancelled));
      });
    }
    std::thread rival;
    if (by_token) {
      rival = std::thread([&] {
        for (std::stop_source& source : sources) source.request_stop();
      });
    }
    for (int i = 0; i < batch && !by_token; ++i) {
      if (generator() % 64 == 0) test.turn();
      signals[i].emit(asio::cancellation_type::terminal);
    }
    CHECK(test.run_until([&] { return completed >= batch; }));
    if (rival.joinable()) rival.join();
    test.settle();
    bool each_once = completed == batch;
    for (const int count : completions) each_once &= count == 1;
    CHECK(each_once);
  }
  return cancelled;
}

// The simulated network has one thread.
void on_every_loop_twice(const std::function<void(TestLoop&, bool by_token)>& body,
                         const EventLoopOptions& loop_options = {}) {
  const auto twice = [&](TestLoop& test) {
    for (const bool by_token : {false, true}) {
      CAPTURE(by_token);
      if (!by_token || !test.is_sim()) body(test, by_token);
    }
  };
  on_every_loop(twice, loop_options);
}

template <class Done>
auto bound(const Early& early, Done done) {
  return asio::bind_cancellation_slot(early.slot, std::move(done));
}

// Connections to it need no ports.
ServerOptions listening_on_unix() {
  static int number = 0;
  ServerOptions options;
  options.endpoint = Endpoint::parse("unix:@linkspan-early-test-" + std::to_string(::getpid()) + "-" +
                                     std::to_string(++number))
                         .value_or_throw();
  options.listen.backlog = 1024;
  return options;
}

std::string numbered(int number) {
  const std::string text = std::to_string(number);
  return std::string(6 - text.size(), '0') + text;
}

}  // namespace

TEST_CASE("a sleep that is cancelled while it is due completes once") {
  on_every_loop_twice([](TestLoop& test, bool by_token) {
    race(test, by_token, [&](int number, const Early& early, auto done) {
      async_sleep(test.loop(), number % 2 == 0 ? 0ms : 1ms, early.options, bound(early, std::move(done)));
    });
  });
}

TEST_CASE("a look-up that is cancelled while it is answered completes once") {
  on_every_loop_twice([](TestLoop& test, bool by_token) {
    race(test, by_token, [&](int, const Early& early, auto done) {
      async_resolve(test.loop(), "127.0.0.1:80", early.options,
                    bound(early, [done](std::error_code error, const std::vector<Endpoint>& found) {
                      CHECK(found.empty() == static_cast<bool>(error));
                      done(error);
                    }));
    });
  });
}

TEST_CASE("a read that is cancelled while bytes come takes all of them or none") {
  on_every_loop_twice([](TestLoop& test, bool by_token) {
    Pair pair(test);
    std::string read;
    int written = 0;
    for (int i = 0; i < kFewRaces; ++i) {
      std::stop_source source;
      asio::cancellation_signal signal;
      int completions = 0;
      AsyncOptions options;
      if (by_token) options.stop = source.get_token();
      auto done = [&](std::error_code error, const Chain& data) {
        ++completions;
        CHECK(data.empty() == static_cast<bool>(error));
        read += data.to_string();
      };
      async_read(pair.here, options, asio::bind_cancellation_slot(signal.slot(), done));
      pair.there.write(Chain(Slice::adopt(numbered(written++))));
      pair.there.channel()->flush();
      std::thread rival;
      if (by_token && i % 8 == 0) rival = std::thread([&] { source.request_stop(); });
      if (i % 2 == 0) test.turn();
      if (by_token && i % 8 != 0) source.request_stop();
      if (!by_token) signal.emit(asio::cancellation_type::terminal);
      CHECK(test.run_until([&] { return completions != 0; }));
      if (rival.joinable()) rival.join();
      CHECK(completions == 1);
    }
    pair.there.shutdown_write();
    bool ended = false;
    while (!ended) {
      bool completed = false;
      async_read(pair.here, [&](std::error_code error, const Chain& data) {
        completed = true;
        ended = static_cast<bool>(error);
        read += data.to_string();
      });
      REQUIRE(test.run_until([&] { return completed; }));
    }
    std::string expected;
    for (int i = 0; i < written; ++i) expected += numbered(i);
    CHECK((read == expected));
  });
}

TEST_CASE("a write that is cancelled while it is flushed is sent whole, in its place, or not at all") {
  on_every_loop_twice([](TestLoop& test, bool by_token) {
    Pair pair(test);
    std::vector<char> failed(kRaces);
    std::string read;
    bool ended = false;
    std::function<void()> read_on = [&] {
      async_read(pair.there, [&](std::error_code error, const Chain& data) {
        read += data.to_string();
        ended = static_cast<bool>(error);
        if (!ended) read_on();
      });
    };
    read_on();
    race(test, by_token, [&](int number, const Early& early, auto done) {
      async_write(pair.here, Chain(Slice::adopt(numbered(number))), early.options,
                  bound(early, [&failed, number, done](std::error_code error) {
                    failed[number] = error ? 1 : 0;
                    done(error);
                  }));
    });
    pair.here.shutdown_write();
    REQUIRE(test.run_until([&] { return ended; }));
    REQUIRE(read.size() % 6 == 0);
    std::size_t at = 0;
    bool in_place = true;
    for (int i = 0; i < kRaces; ++i) {
      const bool sent = read.compare(at, 6, numbered(i)) == 0;
      if (sent) at += 6;
      in_place &= sent || failed[i] != 0;
    }
    CHECK(in_place);
    CHECK(at == read.size());
  });
}

TEST_CASE("an attempt to connect that is cancelled while it succeeds leaves no connection") {
  on_every_loop_twice([](TestLoop& test, bool by_token) {
    const auto collecting = [](Channel& channel) { return channel.pipeline().append<Collector<Chain>>(); };
    ServerOptions options = listening_on_unix();
    options.initializer = collecting;
    const Server server = Server::start(test.loop(), options).value_or_throw();
    const AsyncClient<Chain> client(test.loop());
    const Client plain(test.loop(), collecting);
    race(
        test, by_token,
        [&](int number, const Early& early, auto done) {
          if (number % 2 == 0) {
            async_connect(client, server.local_endpoint(), early.options,
                          bound(early, [done](std::error_code error, Bytes channel) {
                            CHECK(static_cast<bool>(channel) == !error);
                            if (channel) channel.abort();
                            done(error);
                          }));
          } else {
            async_connect(test.loop(), plain, server.local_endpoint(), early.options,
                          bound(early, [done](std::error_code error, const ChannelRef& channel) {
                            CHECK(channel.alive() == !error);
                            channel.abort();
                            done(error);
                          }));
          }
        },
        kFewRaces, 50);
    CHECK(test.run_until([&] { return server.connections() == 0; }));
  });
}

TEST_CASE("an accept that is cancelled while somebody connects takes the connection or leaves it") {
  on_every_loop_twice([](TestLoop& test, bool by_token) {
    auto acceptor = AsyncAcceptor<Chain>::start(test.loop(), listening_on_unix()).value_or_throw();
    const AsyncClient<Chain> client(test.loop());
    int accepted = 0;
    const auto accept = [&](const Early& early, std::function<void(std::error_code)> done) {
      async_accept(acceptor, early.options,
                   bound(early, [&accepted, done](std::error_code error, Bytes channel) {
                     CHECK(static_cast<bool>(channel) == !error);
                     if (channel) {
                       ++accepted;
                       channel.abort();
                     }
                     done(error);
                   }));
    };
    // The same number of connections as of accepts, and a cancelled one leaves its connection to the next.
    int connected = 0;
    race(
        test, by_token,
        [&](int, const Early& early, std::function<void(std::error_code)> done) {
          async_connect(client, acceptor.local_endpoint(), [&connected](std::error_code error, const Bytes&) {
            CHECK_FALSE(error);
            ++connected;
          });
          accept(early, std::move(done));
        },
        kFewestRaces, 1);
    CHECK(test.run_until([&] { return connected == kFewestRaces; }));
    while (accepted < connected) {
      bool completed = false;
      accept({}, [&](std::error_code error) {
        CHECK_FALSE(error);
        completed = true;
      });
      REQUIRE(test.run_until([&] { return completed; }));
    }
    CHECK(test.run_until([&] { return acceptor.connections() == 0; }));
  });
}

TEST_CASE("a flush that is cancelled while it completes completes once") {
  on_every_loop_twice([](TestLoop& test, bool by_token) {
    Pair pair(test);
    race(
        test, by_token,
        [&](int, const Early& early, auto done) {
          pair.here.write(Chain(Slice::copy("x")));
          async_flush(pair.here, early.options, bound(early, std::move(done)));
        },
        kFewRaces);
  });
}

TEST_CASE("a join that is cancelled while the last task ends completes once, and the task ends") {
  on_every_loop_twice([](TestLoop& test, bool by_token) {
    int ended = 0;
    const auto task = [](EventLoop& loop, int number, int& count) -> asio::awaitable<void> {
      co_await async_sleep(loop, number % 2 == 0 ? 0ms : 1ms, asio::use_awaitable);
      ++count;
    };
    std::vector<std::unique_ptr<TaskScope>> scopes;
    race(
        test, by_token,
        [&](int number, const Early& early, auto done) {
          TaskScope& scope = *scopes.emplace_back(std::make_unique<TaskScope>(test.loop()));
          scope.spawn(task(test.loop(), number, ended));
          async_join(scope, early.options, bound(early, [done](const std::exception_ptr& failure) {
                       done(failure == nullptr ? std::error_code() : make_error_code(errc::cancelled));
                     }));
        },
        kFewRaces);
    CHECK(test.run_until([&] { return ended == kFewRaces; }));
    test.settle();
  });
}

namespace {

// What was cancelled goes on below, so more are under way than the test waits for.
EventLoopOptions many_file_operations() {
  EventLoopOptions options;
  options.max_file_operations = kRaces;
  return options;
}

AsyncFile opened(TestLoop& test, const std::string& path) {
  std::optional<AsyncFile> file;
  async_open(test.loop(), path, OpenMode::open_or_create, [&](std::error_code error, AsyncFile made) {
    CHECK_FALSE(error);
    file = std::move(made);
  });
  REQUIRE(test.run_until([&] { return file.has_value(); }));
  return std::move(*file);
}

// Of operations on files, and whether each completed without an error.
std::vector<char> race_files(TestLoop& test, bool by_token, const Start& start) {
  std::vector<char> succeeded(kFewestRaces);
  const Start noting = [&](int number, const Early& early, const std::function<void(std::error_code)>& done) {
    start(number, early, [&succeeded, number, done](std::error_code error) {
      succeeded[number] = error ? 0 : 1;
      done(error);
    });
  };
  race(test, by_token, noting, kFewestRaces, kFewestRaces / 10);
  return succeeded;
}

bool exists(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

}  // namespace

TEST_CASE("an open or a read of a file that is cancelled while it completes brings all of it or nothing") {
  const auto body = [](TestLoop& test, bool by_token) {
    const TemporaryDirectory directory;
    EventLoop& loop = test.loop();
    AsyncFile file = opened(test, directory.write("file", std::string(512, 'x')));
    race_files(test, by_token, [&](int, const Early& early, auto done) {
      async_open(loop, file.path(), OpenMode::read, early.options,
                 bound(early, [done](std::error_code error, const AsyncFile& made) {
                   CHECK(static_cast<bool>(made) == !error);
                   done(error);
                 }));
    });
    race_files(test, by_token, [&](int, const Early& early, auto done) {
      async_read_at(loop, file, loop.pool().allocate(512), 512, 0, early.options,
                    bound(early, [done](std::error_code error, Block block, std::size_t bytes) {
                      const std::string read = Chain(std::move(block).freeze_all(bytes)).to_string();
                      CHECK(read == std::string(error ? 0 : 512, 'x'));
                      done(error);
                    }));
    });
    race_files(test, by_token, [&](int, const Early& early, auto done) {
      async_size(loop, file, early.options, bound(early, [done](std::error_code error, std::uint64_t size) {
                   CHECK(size == (error ? 0u : 512u));
                   done(error);
                 }));
    });
  };
  on_every_loop_twice(body, many_file_operations());
}

TEST_CASE("a write to a file or a sync that is cancelled while it completes has been done if it says so") {
  const auto body = [](TestLoop& test, bool by_token) {
    const TemporaryDirectory directory;
    EventLoop& loop = test.loop();
    const std::string path = directory.file("file");
    AsyncFile file = opened(test, path);
    const auto written = race_files(test, by_token, [&](int number, const Early& early, auto done) {
      async_write_at(loop, file, Chain(Slice::adopt(numbered(number))),
                     static_cast<std::uint64_t>(number) * 6, early.options,
                     bound(early, [done](std::error_code error, std::size_t bytes) {
                       CHECK(bytes == (error ? 0u : 6u));
                       done(error);
                     }));
    });
    std::ifstream stream(path);
    const std::string content(std::istreambuf_iterator<char>(stream), {});
    bool there = true;
    for (int i = 0; i < kFewestRaces; ++i) {
      const std::size_t at = static_cast<std::size_t>(i) * 6;
      there &= written[i] == 0 || (content.size() >= at + 6 && content.compare(at, 6, numbered(i)) == 0);
    }
    CHECK(there);
    race_files(test, by_token, [&](int, const Early& early, auto done) {
      async_sync(loop, file, early.options, bound(early, std::move(done)));
    });
    race_files(test, by_token, [&](int, const Early& early, auto done) {
      async_sync_directory(loop, directory.path(), early.options, bound(early, std::move(done)));
    });
  };
  on_every_loop_twice(body, many_file_operations());
}

TEST_CASE("what is done to a path and cancelled while it completes has been done if it says so") {
  const auto body = [](TestLoop& test, bool by_token) {
    const TemporaryDirectory directory;
    EventLoop& loop = test.loop();
    const auto path = [&](const char* name, int number) { return directory.file(name + numbered(number)); };
    const auto made = race_files(test, by_token, [&](int number, const Early& early, auto done) {
      async_create_directories(loop, path("made", number), early.options, bound(early, std::move(done)));
    });
    for (int i = 0; i < kFewestRaces; ++i) {
      directory.write("old" + numbered(i), "");
      directory.write("kept" + numbered(i), "");
    }
    const auto renamed = race_files(test, by_token, [&](int number, const Early& early, auto done) {
      async_rename(loop, path("old", number), path("new", number), early.options,
                   bound(early, std::move(done)));
    });
    const auto removed = race_files(test, by_token, [&](int number, const Early& early, auto done) {
      async_remove(loop, path("kept", number), early.options, bound(early, std::move(done)));
    });
    bool done = true;
    for (int i = 0; i < kFewestRaces; ++i) {
      done &= made[i] == 0 || exists(path("made", i));
      done &= renamed[i] == 0 || (exists(path("new", i)) && !exists(path("old", i)));
      done &= removed[i] == 0 || !exists(path("kept", i));
    }
    CHECK(done);
  };
  on_every_loop_twice(body, many_file_operations());
}

TEST_CASE("large memory that is given up while it comes is there or is not") {
  const std::unique_ptr<LargeMemory> memory = LargeMemory::create().value_or_throw();
  on_every_loop_twice([&](TestLoop& test, bool by_token) {
    const auto start = [&](int, const Early& early, auto done) {
      async_allocate(test.loop(), *memory, 4096, LargeAllocation::Place::on_loop, early.options,
                     bound(early, [done](std::error_code error, const Block& block) {
                       CHECK((block.size() == 0) == static_cast<bool>(error));
                       done(error);
                     }));
    };
    race(test, by_token, start, kFewestRaces, 50);
  });
}
