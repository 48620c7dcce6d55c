// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Sending pieces of memory with one gathered write, against copying them into one buffer and sending that:
// where kReferenceThreshold comes from. A message is a number of slices; `gather` references them in a Chain
// and exports it, `copy` copies them. `hot` sends the same slices again and again, `cold` slices from all
// over a memory that no cache holds. The receiver is the same thread, which stops the clock, and discards,
// whenever the socket is full: with one on another core, wake-ups would be most of what one sees.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "linkspan/buffer/block.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/buffer/copy_ledger.hpp"
#include "perf/support/rounds.hpp"

namespace linkspan::perf {
namespace {

constexpr std::size_t kMemoryBytes = std::size_t{256} << 20;
constexpr std::size_t kBufferBytes = std::size_t{16} << 20;

void require(bool holds, const char* what) {
  if (holds) return;
  std::perror(what);
  std::exit(1);
}

using Ends = std::array<int, 2>;

Ends unix_pair() {
  Ends ends;
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0, "socketpair");
  return ends;
}

// With Reno: a default that paces, such as BBR, waits for its own clock.
Ends tcp_pair() {
  constexpr std::string_view kReno = "reno";
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int sender = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  require(::bind(listener, name, size) == 0 && ::listen(listener, 1) == 0, "listen");
  require(::getsockname(listener, name, &size) == 0, "getsockname");
  require(::setsockopt(sender, IPPROTO_TCP, TCP_CONGESTION, kReno.data(), kReno.size()) == 0, "reno");
  const int on = 1;
  require(::setsockopt(sender, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0, "TCP_NODELAY");
  require(::connect(sender, name, size) == 0, "connect");
  const int receiver = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  require(receiver >= 0, "accept");
  ::close(listener);
  return {sender, receiver};
}

class Connection {
 public:
  Connection(benchmark::State& state, const Ends& ends)
      : state_(state), sender_(ends[0]), receiver_(ends[1]) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() {
    ::close(sender_);
    ::close(receiver_);
  }

  // Both return how many bytes the socket has taken.
  std::size_t send_gathered(std::span<iovec> vectors) {
    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = vectors.size();
    return repeat([&] { return ::sendmsg(sender_, &message, MSG_NOSIGNAL | MSG_DONTWAIT); });
  }
  std::size_t send(std::span<const std::byte> bytes) {
    return repeat([&] { return ::send(sender_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT); });
  }

  // Empties the socket; returns how many bytes have come in all. TCP discards them (MSG_TRUNC).
  std::size_t discard() {
    static std::array<std::byte, 65536> room;
    for (;;) {
      const ssize_t size = ::recv(receiver_, room.data(), room.size(), MSG_DONTWAIT | MSG_TRUNC);
      if (size < 0 && errno == EAGAIN) return received_;
      require(size > 0, "recv");
      received_ += static_cast<std::size_t>(size);
    }
  }

 private:
  template <class Send>
  std::size_t repeat(Send send) {
    for (;;) {
      const ssize_t sent = send();
      if (sent > 0) return static_cast<std::size_t>(sent);
      require(errno == EAGAIN, "send");
      state_.PauseTiming();
      discard();
      state_.ResumeTiming();
    }
  }

  benchmark::State& state_;
  int sender_;
  int receiver_;
  std::size_t received_ = 0;
};

// What all cases send from. The kernel reads it once, unmeasured: on some virtual machines its first access
// to a page takes microseconds, and what a service sends has often come from the kernel.
class Memory {
 public:
  [[nodiscard]] static Memory& instance() {
    static Memory memory;
    return memory;
  }
  [[nodiscard]] const Slice& pieces() const { return pieces_; }
  [[nodiscard]] std::span<std::byte> buffer(std::size_t bytes) { return buffer_.writable().first(bytes); }

 private:
  Memory() : pieces_(make(kMemoryBytes).freeze(kMemoryBytes)), buffer_(make(kBufferBytes)) {}

  static Block make(std::size_t bytes) {
    Block block = heap_allocator().allocate(bytes);
    require(static_cast<bool>(block), "memory");
    std::memset(block.data(), 'x', bytes);
    const int sink = ::memfd_create("sink", MFD_CLOEXEC);
    constexpr std::size_t kPart = std::size_t{1} << 20;
    for (std::size_t at = 0; at < bytes; at += kPart) {
      require(::pwrite(sink, block.data() + at, kPart, 0) == ssize_t{kPart}, "memfd");
    }
    ::close(sink);
    return block;
  }

  Slice pieces_;
  Block buffer_;
};

struct Source {
  // The next one of `pieces`, in an order without neighbours that comes to each of them once in a lap. It
  // goes on where the case before it has stopped, so that it does not meet what that one has left in the
  // caches.
  [[nodiscard]] Slice next() const {
    static std::uint32_t position = 0;
    position = position * 1664525 + 1013904223;
    return Memory::instance().pieces().slice((position & (pieces - 1)) * bytes, bytes);
  }

  std::size_t bytes;
  std::size_t pieces;  // a power of two
};

void gather(benchmark::State& state, Connection& connection, const Source& source, std::size_t count) {
  std::vector<iovec> vectors(count);
  Chain chain;
  for (auto _ : state) {
    for (std::size_t i = 0; i < count; ++i) chain.append(source.next());
    while (!chain.empty()) {
      const std::size_t exported = chain.export_iovec(vectors).count;
      chain.drop_front(connection.send_gathered(std::span(vectors).first(exported)));
    }
  }
}

void copy(benchmark::State& state, Connection& connection, const Source& source, std::size_t count) {
  const std::span<std::byte> buffer = Memory::instance().buffer(count * source.bytes);
  for (auto _ : state) {
    std::byte* to = buffer.data();
    for (std::size_t i = 0; i < count; ++i, to += source.bytes) {
      copy_bytes(to, source.next().data(), source.bytes, CopyPlace::user);
    }
    for (std::span<const std::byte> left = buffer; !left.empty();) left = left.subspan(connection.send(left));
  }
}

void add_cases(std::string_view socket, Ends (*make_ends)()) {
  const struct {
    const char* name;
    void (*run)(benchmark::State&, Connection&, const Source&, std::size_t);
  } variants[] = {{"gather", gather}, {"copy", copy}};
  for (const auto& variant : variants) {
    for (const std::string_view heat : {"hot", "cold"}) {
      for (const std::size_t bytes : {64, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536}) {
        for (const std::size_t count : {1, 4, 16, 64, 256}) {
          const Source source{bytes, heat == "hot" ? count : kMemoryBytes / bytes};
          add({.variant = variant.name,
               .parameters = {{"socket", socket},
                              {"source", heat},
                              {"bytes", static_cast<std::int64_t>(bytes)},
                              {"slices", static_cast<std::int64_t>(count)}},
               .run =
                   [=, run = variant.run](benchmark::State& state) {
                     Connection connection(state, make_ends());
                     run(state, connection, source, count);
                     const auto messages = static_cast<std::size_t>(state.iterations());
                     if (connection.discard() != messages * count * bytes) {
                       state.SkipWithError("bytes are missing");
                     }
                   },
               .quick = count == 16 && (bytes == 256 || bytes == 2048 || bytes == 16384)});
        }
      }
    }
  }
}

}  // namespace
}  // namespace linkspan::perf

int main(int argc, char** argv) {
  using namespace linkspan::perf;
  add_cases("unix", unix_pair);
  add_cases("tcp, reno", tcp_pair);
  return run(argc, argv);
}
