// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// A chunk of at most 4 MiB that was collected from writes of `write` bytes becomes a frame, in the three ways
// of ChunkFramer, on 1 to 42 threads. Each thread has a framer of its own. Chunks of which several writes of
// 3 MiB would be too large have one of them; so rows up to 2 MiB are about chunks of the same size.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "linkspan/buffer/page_allocator.hpp"
#include "linkspan/codec/chunk_codec.hpp"
#include "perf/support/freed_memory.hpp"
#include "perf/support/own_rounds.hpp"

namespace {

using namespace linkspan;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kChunkBytes = 4 * kMiB;
constexpr int kThreads[] = {1, 2, 4, 7, 14, 28, 42};

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

struct Row {
  std::size_t write_bytes;
  int threads;
  ChecksumKind checksum;
  bool own_source;    // of each thread; or one that all share, which stays in the cache
  bool fresh_frames;  // mapped and unmapped each time; or from a heap that keeps its memory
  bool socket;        // a TCP connection of each thread over loopback; or nobody looks at the frame
  bool quick;
};

Slice make_source() {
  std::string bytes(kChunkBytes, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 + i / 4096);
  return Slice::adopt(std::move(bytes));
}

// A connection whose other end receives and drops everything, in calls of 256 KiB.
class Drain {
 public:
  Drain() {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener, generic, size) != 0 || ::listen(listener, 1) != 0) fail("listen");
    ::getsockname(listener, generic, &size);
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    // BBR would pace. Who may not choose cubic may choose Reno.
    if (::setsockopt(socket_, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) != 0) {
      static_cast<void>(::setsockopt(socket_, IPPROTO_TCP, TCP_CONGESTION, "reno", 4));
    }
    if (::connect(socket_, generic, size) != 0) fail("connect");
    const int peer = ::accept(listener, nullptr, nullptr);
    ::close(listener);
    receiver_ = std::thread([peer] {
      std::vector<char> buffer(std::size_t{256} << 10);
      while (::recv(peer, buffer.data(), buffer.size(), 0) > 0) {
      }
      ::close(peer);
    });
  }
  Drain(const Drain&) = delete;
  Drain& operator=(const Drain&) = delete;
  ~Drain() {
    ::close(socket_);
    receiver_.join();
  }

  void send(Chain frame) const {
    while (!frame.empty()) {
      std::array<iovec, 64> entries;
      msghdr message{};
      message.msg_iov = entries.data();
      message.msg_iovlen = frame.export_iovec(entries).count;
      const ssize_t sent = ::sendmsg(socket_, &message, MSG_NOSIGNAL);
      if (sent < 0) fail("sendmsg");
      frame.drop_front(static_cast<std::size_t>(sent));
    }
  }

 private:
  int socket_ = -1;
  std::thread receiver_;
};

Chunk make_chunk(const Slice& source, std::size_t write_bytes) {
  Chunk chunk;
  for (std::size_t at = 0; at + write_bytes <= kChunkBytes; at += write_bytes) {
    chunk.bytes.append(source.slice(at, write_bytes));
  }
  return chunk;
}

/// MB/s of all threads.
double measure(const Row& row, ChunkFraming framing, Duration time) {
  static const Slice shared = make_source();
  static std::vector<Slice> own(42);
  std::atomic<int> ready{0};
  std::atomic<bool> go{false}, over{false};
  std::atomic<std::uint64_t> bytes{0};
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<Drain>> drains;
  for (int i = 0; row.socket && i < row.threads; ++i) drains.push_back(std::make_unique<Drain>());
  for (int i = 0; i < row.threads; ++i) {
    threads.emplace_back([&, i] {
      PageAllocator pages;
      BlockAllocator& allocator = row.fresh_frames ? static_cast<BlockAllocator&>(pages) : heap_allocator();
      ChunkFramer framer(framing);
      Slice& its_own = own[static_cast<std::size_t>(i)];
      if (row.own_source && its_own.empty()) its_own = make_source();
      const Slice& source = row.own_source ? its_own : shared;
      const auto once = [&] {
        Chunk chunk = make_chunk(source, row.write_bytes);
        const std::size_t size = chunk.bytes.size();
        chunk.checksum_kind = row.checksum;
        chunk.checksum = checksum(row.checksum, chunk.bytes);
        Chain frame = framer.frame(std::move(chunk), allocator);
        if (frame.size() != size + kChunkHeaderBytes) fail("frame");
        if (row.socket) drains[static_cast<std::size_t>(i)]->send(std::move(frame));
        return size;
      };
      once();
      ++ready;
      while (!go) std::this_thread::yield();
      std::uint64_t done = 0;
      while (!over) done += once();
      bytes += done;
    });
  }
  while (ready != row.threads) std::this_thread::yield();
  const auto begin = std::chrono::steady_clock::now();
  go = true;
  std::this_thread::sleep_for(time);
  over = true;
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(bytes) / 1e6 / taken.count();
}

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  constexpr std::size_t kKiB = 1024;
  const auto add = [&](std::size_t kib, int threads, bool summed, bool own, bool fresh, bool socket,
                       bool quick) {
    rows.push_back(
        {kib * kKiB, threads, summed ? ChecksumKind::crc32 : ChecksumKind::none, own, fresh, socket, quick});
  };
  for (const bool summed : {false, true}) {
    for (const std::size_t kib : {256, 512, 1024, 2048, 3072, 4096}) {  // as it was published
      for (const int threads : kThreads) {
        add(kib, threads, summed, false, false, false, kib == 1024 && threads <= 2);
      }
    }
    for (const int threads : kThreads) add(1024, threads, summed, true, false, false, false);
    for (const int threads : kThreads) add(1024, threads, summed, false, true, false, false);
    for (const std::size_t kib : {256, 1024, 4096}) {
      for (const int threads : {1, 2, 7, 28}) {
        add(kib, threads, summed, true, false, true, kib == 1024 && threads <= 2 && !summed);
      }
    }
  }
  return rows;
}

void print(const Row& row, const char* variant, const char* metric, const char* unit, double value) {
  std::printf(R"({"variant": "%s", "params": {"write": %zu, "threads": %d, "checksum": "%s", )"
              R"("source": "%s", "frames": "%s", "sink": "%s"}, "metric": "%s", "unit": "%s", )"
              R"("value": %.4g})"
              "\n",
              variant, row.write_bytes, row.threads, row.checksum == ChecksumKind::none ? "no" : "crc32",
              row.own_source ? "own" : "shared", row.fresh_frames ? "fresh" : "reused",
              row.socket ? "socket" : "none", metric, unit, value);
  std::fflush(stdout);
}

void run_round(bool quick) {
  constexpr std::pair<const char*, ChunkFraming> kVariants[] = {{"4 KiB bounce", ChunkFraming::bounce},
                                                                {"single memcpy", ChunkFraming::copy},
                                                                {"by reference", ChunkFraming::reference}};
  std::map<std::string, double> alone;  // with one thread, of the same variant and row otherwise
  for (const Row& row : all_rows()) {
    if (quick && !row.quick) continue;
    for (const auto& [name, framing] : kVariants) {
      const Duration time = std::chrono::milliseconds(row.socket ? 200 : 60);
      const double rate = measure(row, framing, time);
      print(row, name, "throughput", "MB/s", rate);
      const std::string key = name + std::to_string(row.write_bytes) + std::string(to_string(row.checksum)) +
                              (row.own_source ? "o" : "s") + (row.fresh_frames ? "f" : "r") +
                              (row.socket ? "t" : "n");
      if (row.threads == 1) alone[key] = rate;
      print(row, name, "efficiency", "throughput / 1 thread / n", rate / alone[key] / row.threads);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  perf::keep_freed_memory();
  return perf::run_own_rounds(argc, argv, run_round);
}
