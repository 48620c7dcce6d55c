// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Sends that the kernel reads from where the bytes are. Loopback always copies, so the completions of a real
// network are made up by the test, of a send that the kernel does not get.
#include <doctest/doctest.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lib/transport/uring/uring_transport.hpp"
#include "tests/transport/harness.hpp"
#include "tests/transport/withheld_operation.hpp"

namespace linkspan::conformance {
namespace {

constexpr std::size_t kMessageBytes = 64 * 1024;
constexpr int kCopied = static_cast<int>(1u << 31);
constexpr int kNotCopied = 0;

StreamOptions with_zero_copy(std::size_t bytes = 16 * 1024) {
  StreamOptions options;
  options.zero_copy_bytes = bytes;
  return options;
}

struct ZeroCopyWorld : World {
  explicit ZeroCopyWorld(Family family = Family::tcp4)
      : World({"io_uring", family}, [](EventLoop& loop) { return make_uring_transport(loop); }, {}) {
    knows_zero_copy = static_cast<UringTransport&>(transport()).zero_copy_send();
    if (!knows_zero_copy) MESSAGE("this kernel has no zero-copy sends: left out");
  }

  [[nodiscard]] std::uint64_t sends() { return loop().counters().zero_copy_sends.get(); }
  [[nodiscard]] std::uint64_t copied() { return loop().counters().zero_copy_copied.get(); }

  bool knows_zero_copy = false;
};

// A stream whose next send goes nowhere, and whose result and notification the test makes up.
class Injection {
 public:
  Injection(ZeroCopyWorld& world, Connection& connection) : world_(world), connection_(connection) {}

  /// Writes a message and takes its send away from the kernel.
  void write(std::string_view text) {
    connection_.write(
        Chain(Slice::borrow(std::as_bytes(std::span(text)), [count = returned_] { ++*count; })));
    capture();
  }
  void capture() { send_.emplace(world_); }
  [[nodiscard]] bool is_zero_copy() const { return send_->operation() == IORING_OP_SENDMSG_ZC; }

  void result(int bytes_or_error, bool announces_notification) {
    send_->complete(bytes_or_error, announces_notification ? IORING_CQE_F_MORE : 0u);
  }
  void notify(int usage) { send_->complete(usage, IORING_CQE_F_NOTIF); }

  [[nodiscard]] int memory_returned() const { return *returned_; }

 private:
  ZeroCopyWorld& world_;
  Connection& connection_;
  std::optional<WithheldOperation> send_;
  std::shared_ptr<int> returned_ = std::make_shared<int>(0);
};

}  // namespace

TEST_CASE(
    "zero-copy sends on loopback: the peer gets every byte, and a stream that sees copies stops trying") {
  for (const Family family : {Family::tcp4, Family::unix_path}) {
    ZeroCopyWorld world(family);
    if (!world.knows_zero_copy) return;
    Connection& connection = world.open(with_zero_copy());
    const std::string message = pattern(kMessageBytes);
    std::string sent;
    int returned = 0;
    for (int i = 0; i < 20; ++i) {
      connection.write(Chain(Slice::borrow(std::as_bytes(std::span(message)), [&] { ++returned; })));
      sent += message;
      world.run_until([&] { return connection.peer.received.size() == sent.size(); });
    }
    CHECK((connection.peer.received == sent));
    CHECK(connection.writes.complete_and_in_order());
    world.run_until([&] { return returned == 20; });
    CHECK(world.sends() == world.copied());
    CHECK(world.sends() <= 3);
    if (family == Family::tcp4) CHECK(world.sends() >= 1);
  }
}

TEST_CASE("what a stream did not ask for is not sent zero-copy") {
  ZeroCopyWorld world;
  if (!world.knows_zero_copy) return;
  SUBCASE("without the option") {
    Connection& connection = world.open();
    connection.write(pattern(kMessageBytes));
    world.run_until([&] { return connection.peer.received.size() == kMessageBytes; });
  }
  SUBCASE("smaller slices") {
    Connection& connection = world.open(with_zero_copy());
    connection.write(in_slices(pattern(kMessageBytes), 8 * 1024));
    world.run_until([&] { return connection.peer.received.size() == kMessageBytes; });
  }
  CHECK(world.sends() == 0);
}

TEST_CASE(
    "a send that was not copied holds its memory until the notification, and the next one is zero-copy too") {
  ZeroCopyWorld world;
  if (!world.knows_zero_copy) return;
  Connection& connection = world.open(with_zero_copy());
  Injection injection(world, connection);
  const std::string message = pattern(kMessageBytes);
  injection.write(message);
  REQUIRE(injection.is_zero_copy());
  injection.result(static_cast<int>(kMessageBytes), true);
  CHECK(connection.writes.complete_and_in_order());
  CHECK(connection.events.progress == kMessageBytes);
  world.settle();
  CHECK(injection.memory_returned() == 0);
  CHECK_FALSE(world.transport().idle());
  injection.notify(kNotCopied);
  CHECK(injection.memory_returned() == 1);
  CHECK(world.sends() == 1);
  CHECK(world.copied() == 0);

  injection.write(message);
  CHECK(injection.is_zero_copy());
  injection.result(static_cast<int>(kMessageBytes), true);
  injection.notify(kCopied);
  injection.write(message);
  CHECK_FALSE(injection.is_zero_copy());
  injection.result(static_cast<int>(kMessageBytes), false);
  CHECK(injection.memory_returned() == 3);
  CHECK(world.copied() == 1);
}

TEST_CASE("a notification is awaited if, and only if, the result announced one") {
  for (const bool announced : {false, true}) {
    for (const int result : {-ECONNRESET, -EPIPE, static_cast<int>(kMessageBytes / 2)}) {
      ZeroCopyWorld world;
      if (!world.knows_zero_copy) return;
      Connection& connection = world.open(with_zero_copy());
      Injection injection(world, connection);
      const std::string message = pattern(kMessageBytes);
      injection.write(message);
      injection.result(result, announced);
      connection.stream.abort();
      world.run_until([&] { return connection.events.closed(); });
      CHECK(connection.writes.complete_and_in_order());
      CHECK(world.transport().idle() == !announced);
      if (announced) {
        // The stream is gone, its memory is still the kernel's.
        if (result > 0) CHECK(injection.memory_returned() == 0);
        injection.notify(kNotCopied);
      }
      CHECK(injection.memory_returned() == 1);
      CHECK(world.transport().idle());
    }
  }
}

TEST_CASE(
    "an abort while the send is with the kernel waits for its result, and memory for the notification") {
  ZeroCopyWorld world;
  if (!world.knows_zero_copy) return;
  Connection& connection = world.open(with_zero_copy());
  Injection injection(world, connection);
  const std::string message = pattern(kMessageBytes);
  injection.write(message);
  connection.stream.abort();
  world.settle();
  CHECK_FALSE(connection.events.closed());
  injection.result(-ECANCELED, true);
  world.run_until([&] { return connection.events.closed(); });
  CHECK(injection.memory_returned() == 0);
  CHECK(connection.events.unsent.size() == kMessageBytes);
  injection.notify(kNotCopied);
  CHECK(injection.memory_returned() == 1);
}

TEST_CASE("a kernel that refuses a zero-copy send gets the bytes in a plain one; nothing is lost") {
  for (const int refusal : {EOPNOTSUPP, ENOMEM, ENOBUFS, EINVAL}) {
    for (const bool announced : {false, true}) {
      ZeroCopyWorld world;
      if (!world.knows_zero_copy) return;
      Connection& connection = world.open(with_zero_copy());
      Injection injection(world, connection);
      const std::string message = pattern(kMessageBytes);
      injection.write(message);
      injection.result(-refusal, announced);
      if (announced) injection.notify(kNotCopied);
      world.run_until([&] { return connection.peer.received.size() == message.size(); });
      CHECK((connection.peer.received == message));
      CHECK(connection.writes.complete_and_in_order());
      world.run_until([&] { return injection.memory_returned() == 1; });
    }
  }
}

TEST_CASE("a send that ends with nothing sent, for a reason that passes, is sent again, plain or zero-copy") {
  for (const int reason : {EINTR, EAGAIN, ECANCELED}) {
    for (const bool zero_copy : {false, true}) {
      ZeroCopyWorld world;
      if (zero_copy && !world.knows_zero_copy) continue;
      Connection& connection = world.open(zero_copy ? with_zero_copy() : StreamOptions());
      Injection injection(world, connection);
      const std::string message = pattern(kMessageBytes);
      serve_another(world);
      injection.write(message);
      CHECK(injection.is_zero_copy() == zero_copy);
      injection.result(-reason, false);
      CHECK(connection.writes.entries.empty());
      world.run_until([&] { return connection.peer.received.size() == message.size(); });
      world.run_until([&] { return injection.memory_returned() == 1; });
      CHECK((connection.peer.received == message));
      CHECK(connection.writes.complete_and_in_order());
      CHECK(connection.events.progress == kMessageBytes);
      world.check_quiet();
    }
  }
}

TEST_CASE("a send that ends with nothing sent, for a reason that passes, is not sent again after an abort") {
  for (const int reason : {EINTR, EAGAIN}) {
    ZeroCopyWorld world;
    Connection& connection = world.open();
    Injection injection(world, connection);
    const std::string message = pattern(kMessageBytes);
    serve_another(world);
    injection.write(message);
    connection.stream.abort();
    world.settle();
    CHECK_FALSE(connection.events.closed());
    injection.result(-reason, false);
    world.run_until([&] { return connection.events.closed(); });
    CHECK(connection.events.count(Event::closed) == 1);
    CHECK(connection.peer.received.empty());
    CHECK(connection.events.unsent.size() == kMessageBytes);
    CHECK(connection.writes.complete_and_in_order());
    CHECK(connection.writes.entries.at(0).error == errc::cancelled);
  }
}

// TCP: a unix socket refuses its first zero-copy send, and gets a plain one in the next tick.
TEST_CASE("flush hands a zero-copy send to the kernel at once, too") {
  ZeroCopyWorld world;
  if (!world.knows_zero_copy) return;
  Connection& connection = world.open(with_zero_copy());
  world.settle();
  const std::string message = pattern(kMessageBytes);
  connection.write(message);
  connection.stream.flush();
  CHECK(arrives(connection.peer));
  world.run_until([&] { return connection.peer.received.size() == message.size(); });
}

TEST_CASE("a stream with many sends that nobody has acknowledged sends plainly") {
  ZeroCopyWorld world;
  if (!world.knows_zero_copy) return;
  Connection& connection = world.open(with_zero_copy());
  const std::string message = pattern(kMessageBytes);
  std::vector<std::unique_ptr<Injection>> injections;
  for (int i = 0; i < 17; ++i) {
    injections.push_back(std::make_unique<Injection>(world, connection));
    injections.back()->write(message);
    CHECK(injections.back()->is_zero_copy() == (i < 16));
    injections.back()->result(static_cast<int>(kMessageBytes), i < 16);
    world.settle();
  }
  // The notifications come in any order.
  for (std::size_t i = 16; i != 0; --i) injections[i - 1]->notify(kNotCopied);
  for (const auto& injection : injections) CHECK(injection->memory_returned() == 1);
  CHECK(world.sends() == 16);
}

}  // namespace linkspan::conformance
