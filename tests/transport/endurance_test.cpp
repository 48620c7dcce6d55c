// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Much data, many connections, and peers that are killed, on every transport. The other side is a program of
// plain system calls in a process of its own.
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "linkspan/buffer/copy_ledger.hpp"
#include "support/sanitized.hpp"
#include "tests/transport/harness.hpp"

namespace linkspan::conformance {
namespace {

constexpr std::uint64_t kBulkBytes = std::uint64_t{1} << (test::kSanitized ? 26 : 30);
// Of no common factor with the sizes of blocks and buffers: what is lost, repeated or moved does not fit.
constexpr std::size_t kPeriod = 1'000'003;

const std::string& period() {
  static const std::string bytes = pattern(kPeriod);
  return bytes;
}

/// True when `bytes` are those at `position` of the endless repetition of period(); moves on behind them.
bool continues(std::string_view bytes, std::uint64_t& position) {
  while (!bytes.empty()) {
    const std::string_view expected = std::string_view(period()).substr(position % kPeriod);
    const std::size_t size = std::min(bytes.size(), expected.size());
    if (std::memcmp(bytes.data(), expected.data(), size) != 0) return false;
    bytes.remove_prefix(size);
    position += size;
  }
  return true;
}

/// A process that runs `body` and then ends with its result; killed with this object if it has not ended.
class Process {
 public:
  template <typename Body>
  explicit Process(Body body) : id_(::fork()) {
    REQUIRE(id_ >= 0);
    if (id_ == 0) ::_exit(body());
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() { kill(); }

  void kill() {
    if (id_ <= 0) return;
    static_cast<void>(::kill(id_, SIGKILL));
    static_cast<void>(wait());
  }
  int wait() {
    int status = 0;
    REQUIRE(::waitpid(std::exchange(id_, -1), &status, 0) > 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t id_;
};

/// Receives kBulkBytes, checks it, and sends as much. 0: it was right.
int check_and_send_back(int descriptor) {
  std::vector<char> buffer(std::size_t{256} << 10);
  std::uint64_t position = 0;
  while (position < kBulkBytes) {
    const ssize_t got = ::recv(descriptor, buffer.data(), buffer.size(), 0);
    if (got <= 0) return 1;
    if (!continues({buffer.data(), static_cast<std::size_t>(got)}, position)) return 2;
  }
  if (position != kBulkBytes) return 3;
  for (position = 0; position < kBulkBytes;) {
    const std::size_t at = position % kPeriod;
    const std::size_t size = std::min<std::uint64_t>(kPeriod - at, kBulkBytes - position);
    const ssize_t sent = ::send(descriptor, period().data() + at, size, MSG_NOSIGNAL);
    if (sent <= 0) return 4;
    position += static_cast<std::uint64_t>(sent);
  }
  return 0;
}

/// Writes kBulkBytes in chains of many references to the one period, then reads as much and checks it.
class BulkHandler final : public StreamHandler {
 public:
  Stream stream;
  bool right = true;
  bool ended = false;
  bool closed = false;
  std::error_code error;
  std::uint64_t written = 0;
  std::uint64_t completed = 0;
  std::uint64_t position = 0;

  void on_open() override {
    write_more();
    stream.start_read();
  }
  void on_writable() override { write_more(); }
  void on_read(Chain&& data) override {
    for (const Slice& slice : data) right = right && continues(slice.view(), position);
  }
  void on_end() override { ended = true; }
  void on_closed(std::error_code why, Chain&&) override {
    error = why;
    closed = true;
  }

 private:
  void write_more() {
    while (written < kBulkBytes && stream.writable()) {
      Chain chain;
      for (int slice = 0; slice < 50 && written < kBulkBytes; ++slice) {
        const std::size_t at = written % kPeriod;
        const std::size_t size = std::min<std::uint64_t>({20'011, kPeriod - at, kBulkBytes - written});
        chain.append(bytes_.slice(at, size));
        written += size;
      }
      stream.write(std::move(chain), [this](std::error_code why, std::size_t accepted) {
        right = right && !why;
        completed += accepted;
      });
    }
  }

  Slice bytes_ = Slice::copy(period());
};

/// Opens accepted connections and closes them when their peer has ended.
class Crowd final : public ListenerHandler {
 public:
  explicit Crowd(Transport& transport) : transport_(transport) {}

  std::size_t open = 0;
  std::size_t most = 0;
  std::size_t greeted = 0;
  std::size_t closed = 0;
  std::size_t failed = 0;

  void on_accept(Socket socket) override {
    auto member = std::make_unique<Member>(*this);
    Member& kept = *member;
    members_.push_back(std::move(member));
    kept.stream = transport_.open(std::move(socket), {}, kept);
    kept.stream.start_read();
  }
  void on_accept_error(std::error_code) override { ++failed; }

 private:
  struct Member final : StreamHandler {
    explicit Member(Crowd& crowd_in) : crowd(crowd_in) {}
    void on_open() override { crowd.most = std::max(crowd.most, ++crowd.open); }
    void on_read(Chain&& data) override {
      crowd.greeted += data.size();
      stream.write(std::move(data));
    }
    void on_end() override { stream.close(); }
    void on_closed(std::error_code error, Chain&&) override {
      --crowd.open;
      ++crowd.closed;
      if (error) ++crowd.failed;
    }

    Crowd& crowd;
    Stream stream;
  };

  Transport& transport_;
  std::vector<std::unique_ptr<Member>> members_;
};

/// Ticks until `done` holds; fails when `progress` stands still for as long as a test may wait.
void run_while_moving(World& world, const std::function<bool()>& done,
                      const std::function<std::uint64_t()>& progress) {
  while (!done()) {
    const std::uint64_t before = progress();
    world.run_until([&] { return progress() != before || done(); });
  }
}

std::size_t crowd_size() {
  constexpr std::size_t kWanted = test::kSanitized ? 2000 : 10'000;
  constexpr std::size_t kOthers = 100;
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = limit.rlim_max;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
  if (limit.rlim_cur >= kWanted + kOthers) return kWanted;
  MESSAGE("a process may have only ", limit.rlim_cur, " descriptors: there are fewer connections");
  return limit.rlim_cur - kOthers;
}

/// Connects `count` times, says a byte on each and hears it back, and only then closes them all.
int join_crowd(const Endpoint& endpoint, std::size_t count) {
  std::vector<Socket> sockets;
  for (std::size_t i = 0; i < count; ++i) {
    sockets.emplace_back(::socket(endpoint.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int descriptor = sockets.back().descriptor();
    if (::connect(descriptor, endpoint.address(), static_cast<socklen_t>(endpoint.address_size())) != 0) {
      return 1;
    }
    if (::send(descriptor, "x", 1, MSG_NOSIGNAL) != 1) return 2;
  }
  char byte = 0;
  for (const Socket& socket : sockets) {
    if (::recv(socket.descriptor(), &byte, 1, 0) != 1) return 3;
  }
  return 0;
}

}  // namespace

TEST_CASE("a gibibyte arrives whole in both directions, and no write copies") {
  for_each_kernel_mode_name([](const Mode& mode) {
    if (mode.family == Family::tcp6 || mode.small_buffers) return;
    World world(mode);
    std::array<int, 2> pair;
    if (world.is_unix()) {
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) == 0);
    } else {
      const Socket listener = world.raw_listener();
      pair[0] = world.raw_connect(local_endpoint(listener.descriptor())).release();
      pair[1] = ::accept(listener.descriptor(), nullptr, nullptr);
    }
    Process peer([&pair] {
      ::close(pair[0]);
      return check_and_send_back(pair[1]);
    });
    ::close(pair[1]);
    BulkHandler bulk;
    const CopyScope scope;
    bulk.stream = world.transport().open(Socket(pair[0]), {}, bulk);
    run_while_moving(
        world, [&] { return bulk.ended || bulk.closed; }, [&] { return bulk.completed + bulk.position; });
    CHECK(scope.copied()[CopyPlace::write] == 0);
    CHECK(bulk.right);
    CHECK(bulk.completed == kBulkBytes);
    CHECK(bulk.position == kBulkBytes);
    CHECK(peer.wait() == 0);
    bulk.stream.close();
    world.run_until([&] { return bulk.closed; });
    CHECK_FALSE(bulk.error);
  });
}

TEST_CASE("ten thousand connections at once leave no descriptor, no memory and no timer behind") {
  for_each_kernel_transport_name([](const Mode& mode) {
    const std::size_t count = crowd_size();
    EventLoopOptions options;
    options.pool.cache_bytes = 0;
    World world(mode, options);
    const std::size_t descriptors = world.open_descriptors();
    CHECK(world.loop().next_timer() == TimePoint::max());
    {
      Crowd crowd(world.transport());
      ListenOptions waiting;
      waiting.backlog = 4096;  // a connection that finds no room tries again after a second only
      Listener listener = world.transport().listen(world.free_endpoint(), waiting, crowd).value_or_throw();
      Process others([endpoint = listener.local_endpoint(), count] { return join_crowd(endpoint, count); });
      run_while_moving(
          world, [&] { return crowd.closed == count; },
          [&] { return crowd.open + crowd.greeted + crowd.closed; });
      CHECK(others.wait() == 0);
      CHECK(crowd.most == count);
      CHECK(crowd.greeted == count);
      CHECK(crowd.failed == 0);
    }
    world.run_until([&] { return world.open_descriptors() == descriptors; });
    // A transport keeps what it receives into next, which a ring may have doubled a few times.
    constexpr std::uint64_t kOwnBytes = std::uint64_t{1} << 20;
    world.run_until([&] { return world.loop().pool().statistics().live_bytes <= kOwnBytes; });
    world.run_until([&] { return world.loop().next_timer() == TimePoint::max(); });
    // A listener's descriptor is closed before the ring has told of its cancel.
    world.run_until([&] { return world.loop().engine().idle(); });
    world.check_quiet();
  });
}

TEST_CASE("a peer that is killed is a stream that ends, and each write completes once") {
  for_each_kernel_mode_name([](const Mode& mode) {
    for (const bool reading : {true, false}) {
      CAPTURE(reading);
      World world(mode);
      const Socket listener = world.raw_listener();
      const Endpoint endpoint = local_endpoint(listener.descriptor());
      // It takes some of what it is sent, and sends a megabyte.
      Process peer([&] {
        const Socket socket(::socket(endpoint.family(), SOCK_STREAM, 0));
        if (::connect(socket.descriptor(), endpoint.address(),
                      static_cast<socklen_t>(endpoint.address_size())) != 0) {
          return 1;
        }
        std::array<char, 1000> buffer{};
        if (::recv(socket.descriptor(), buffer.data(), buffer.size(), MSG_WAITALL) != 1000) return 2;
        for (int i = 0; i < 1000; ++i) {
          static_cast<void>(::send(socket.descriptor(), buffer.data(), buffer.size(), MSG_NOSIGNAL));
        }
        ::pause();
        return 3;
      });
      Recorder events;
      WriteLog writes;
      Socket accepted(::accept(listener.descriptor(), nullptr, nullptr));
      const int descriptor = accepted.descriptor();  // the stream's
      Stream stream = world.transport().open(std::move(accepted), {}, events);
      world.run_until([&] { return events.count(Event::open) == 1; });
      if (reading) stream.start_read();
      const std::string piece = pattern(100'000);
      std::size_t written = 0;
      for (int i = 0; i < 200; ++i) {
        stream.write(chain_of(piece), writes.next());
        written += piece.size();
      }
      // It sends when it has got what it takes.
      world.run_until([&] {
        int unread = 0;
        REQUIRE(::ioctl(descriptor, FIONREAD, &unread) == 0);
        return unread > 0 || !events.received.empty();
      });
      world.settle();
      REQUIRE(stream.queued_bytes() > 0);  // more than the kernel's buffers hold
      peer.kill();
      world.run_until([&] { return events.count(Event::write_closed) == 1; });
      CHECK(events.write_closed_error == errc::connection_lost);
      CHECK(writes.complete_and_in_order());
      if (!reading) stream.start_read();
      world.run_until([&] { return events.closed(); });
      CHECK(events.closed_error == errc::connection_lost);
      CHECK(events.progress + events.unsent.size() == written);
      CHECK(events.count(Event::closed) == 1);
    }
  });
}

}  // namespace linkspan::conformance
