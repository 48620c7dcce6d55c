// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Streams of 4 or 64 MiB through BufferedWriters on 1 to 28 threads, each a loop with a writer and a
// connection of its own. A write is a chunk in every variant, so all have the same number of them; each is
// acknowledged by the sink, after the latency of a commit. A stream ends with a flush. The memory that is
// written is 16 MiB of each thread's own, in turn.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "linkspan/buffer/copy_ledger.hpp"
#include "linkspan/channel/buffered_writer.hpp"
#include "linkspan/channel/client.hpp"
#include "linkspan/loop/timer.hpp"
#include "linkspan/transport/transport.hpp"
#include "perf/support/freed_memory.hpp"
#include "perf/support/own_rounds.hpp"

namespace {

using namespace linkspan;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kSourceBytes = 16 * kMiB;

enum class Variant { pooled, one_at_a_time, pipelined, copied_first };
constexpr std::pair<const char*, Variant> kVariants[] = {{"pooled", Variant::pooled},
                                                         {"borrowed, one at a time", Variant::one_at_a_time},
                                                         {"borrowed, pipelined", Variant::pipelined},
                                                         {"copied first, pipelined", Variant::copied_first}};

struct Row {
  std::size_t write_bytes;
  int threads;
  std::size_t stream_bytes;
  int latency_ms;
  bool tcp;
  bool quick;
};

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "large-write: %s\n", what);
  std::exit(1);
}

// The size of the write at `at` of a stream: the last one may be shorter.
std::size_t write_size(const Row& row, std::size_t at) {
  return std::min(row.write_bytes, row.stream_bytes - at);
}

// The other end of one connection: receives and drops, and acknowledges every write with a byte, late.
class Committer {
 public:
  Committer(const Row& row, const char* congestion_control) : row_(row) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    static_cast<void>(::setsockopt(listener_, IPPROTO_TCP, TCP_CONGESTION, congestion_control,
                                   static_cast<socklen_t>(std::string_view(congestion_control).size())));
    if (::bind(listener_, generic, size) != 0 || ::listen(listener_, 1) != 0) fail("listen");
    ::getsockname(listener_, generic, &size);
    endpoint_ = Endpoint::parse("127.0.0.1:" + std::to_string(ntohs(address.sin_port))).value_or_throw();
    thread_ = std::thread([this] { run(); });
  }
  Committer(const Committer&) = delete;
  Committer& operator=(const Committer&) = delete;
  ~Committer() { thread_.join(); }
  [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }

 private:
  void run() {
    const int peer = ::accept(listener_, nullptr, nullptr);
    ::close(listener_);
    std::vector<char> buffer(std::size_t{256} << 10);
    std::deque<Clock::time_point> due;
    std::size_t at = 0, left = write_size(row_, 0);  // of the write that is being received
    for (;;) {
      const auto now = Clock::now();
      int acknowledged = 0;
      while (!due.empty() && due.front() <= now) {
        due.pop_front();
        ++acknowledged;
      }
      const std::string bytes(static_cast<std::size_t>(acknowledged), 'a');
      if (acknowledged != 0 && ::send(peer, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) break;
      if (!due.empty()) {
        const auto wait = std::chrono::duration_cast<std::chrono::nanoseconds>(due.front() - now);
        const timespec time{0, static_cast<long>(wait.count())};
        pollfd readable{peer, POLLIN, 0};
        if (::ppoll(&readable, 1, &time, nullptr) == 0) continue;
      }
      const ssize_t received = ::recv(peer, buffer.data(), std::min(buffer.size(), left), 0);
      if (received <= 0) break;
      left -= static_cast<std::size_t>(received);
      if (left != 0) continue;
      due.push_back(Clock::now() + std::chrono::milliseconds(row_.latency_ms));
      at = (at + write_size(row_, at)) % row_.stream_bytes;
      left = write_size(row_, at);
    }
    ::close(peer);
  }

  Row row_;
  int listener_ = -1;
  Endpoint endpoint_;
  std::thread thread_;
};

// Acknowledges in the process of the writer: nobody looks at the bytes, as it was published.
class NoSink {
 public:
  NoSink(EventLoop& loop, int latency_ms)
      : timer_(loop, [this] { commit(); }), loop_(loop), latency_(std::chrono::milliseconds(latency_ms)) {}

  ChunkSend send() {
    return [this](Chunk&& chunk, WriteDone done) {
      chunk.bytes.clear();
      if (latency_ == Duration::zero()) return done({});
      waiting_.emplace_back(loop_.now() + latency_, std::move(done));
      if (!timer_.active()) timer_.start(latency_);
    };
  }

 private:
  void commit() {
    while (!waiting_.empty() && waiting_.front().first <= loop_.now()) {
      WriteDone done = std::move(waiting_.front().second);
      waiting_.pop_front();
      done({});
    }
    if (!waiting_.empty()) timer_.start(waiting_.front().first - loop_.now());
  }

  Timer timer_;
  EventLoop& loop_;
  Duration latency_;
  std::deque<std::pair<TimePoint, WriteDone>> waiting_;
};

BufferedWriterOptions writer_options(const Row& row, Variant variant) {
  BufferedWriterOptions options;
  options.chunk_bytes = row.write_bytes;
  if (variant == Variant::pooled) options.reference_threshold_bytes = BufferedWriterOptions::kNever;
  if (row.tcp) options.acknowledged_by = AcknowledgedBy::peer;
  return options;
}

// Writes streams, one after the other, until it is told to stop.
class Producer {
 public:
  Producer(EventLoop& loop, const Row& row, Variant variant, const std::string& source)
      : row_(row), variant_(variant), source_(source), writer_(loop, writer_options(row, variant)) {}

  BufferedWriter& writer() { return writer_; }
  void start() { next(); }
  /// Before the loop is stopped: one that ends completes writes at once.
  void stop() { stopped_ = true; }
  [[nodiscard]] std::uint64_t acknowledged() const { return writer_.acknowledged_bytes(); }
  /// So many writes of the stream have been acknowledged.
  void acknowledge(std::size_t writes) {
    for (; writes != 0; --writes) {
      const std::size_t size = write_size(row_, acknowledged_at_);
      acknowledged_ += size;
      acknowledged_at_ = (acknowledged_at_ + size) % row_.stream_bytes;
    }
    if (!writer_.acknowledge(acknowledged_)) fail("a write was acknowledged that was not sent");
  }

 private:
  // Writes that wait for room come one by one; those by reference are in flight together.
  void next() {
    constexpr std::size_t kInFlight = 32 * kMiB;
    while (at_ < row_.stream_bytes && !blocked_) {
      const std::size_t size = write_size(row_, at_);
      if (variant_ == Variant::pipelined && in_flight_ != 0 && in_flight_ + size > kInFlight) return;
      const std::string_view data =
          std::string_view(source_).substr((number_++ * row_.write_bytes) % (kSourceBytes - 4 * kMiB), size);
      at_ += size;
      in_flight_ += size;
      WriteDone done = [this, size](std::error_code error) {
        if (stopped_) return;
        if (error) fail("a write has failed");
        in_flight_ -= size;
        blocked_ = false;
        next();
      };
      if (variant_ != Variant::pipelined) blocked_ = true;
      if (variant_ == Variant::copied_first) {
        Block block = heap_allocator().allocate(size);
        copy_bytes(block.data(), data.data(), size, CopyPlace::user);
        writer_.write_when_room(Chain(std::move(block).freeze_all(size)), std::move(done));
      } else {
        writer_.write_when_room(std::as_bytes(std::span(data)), std::move(done));
      }
    }
    if (at_ < row_.stream_bytes || in_flight_ != 0) return;
    blocked_ = true;
    at_ = 0;
    writer_.flush([this](std::error_code error) {
      if (stopped_) return;
      if (error) fail("a flush has failed");
      blocked_ = false;
      next();
    });
  }

  Row row_;
  Variant variant_;
  const std::string& source_;
  std::size_t at_ = 0;
  std::size_t number_ = 0;
  std::size_t in_flight_ = 0;
  bool blocked_ = false;
  bool stopped_ = false;
  std::uint64_t acknowledged_ = 0;
  std::size_t acknowledged_at_ = 0;
  BufferedWriter writer_;
};

class Acknowledgements final : public Service<Chain> {
 public:
  Acknowledgements(Producer& producer, std::atomic<int>& ready) : producer_(producer), ready_(ready) {}
  void on_active() override {
    producer_.writer().attach(send_bytes_to(channel().ref()));
    ++ready_;
  }
  void on_read(Chain&& bytes) override { producer_.acknowledge(bytes.size()); }

 private:
  Producer& producer_;
  std::atomic<int>& ready_;
};

const char* congestion_control() {
  static const bool cubic = [] {  // BBR would pace; who may not choose cubic may choose Reno
    const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool allowed = ::setsockopt(probe, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) == 0;
    ::close(probe);
    return allowed;
  }();
  return cubic ? "cubic" : "reno";
}

/// MB/s of all threads.
double measure(const Row& row, Variant variant, Duration time) {
  static std::vector<std::string> sources(28);
  std::atomic<int> ready{0};
  std::atomic<bool> go{false}, over{false};
  std::atomic<std::uint64_t> bytes{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < row.threads; ++i) {
    threads.emplace_back([&, i] {
      std::string& source = sources[static_cast<std::size_t>(i)];
      if (source.empty()) source.assign(kSourceBytes, static_cast<char>('a' + i));
      std::unique_ptr<Committer> committer;
      const auto loop = EventLoop::create(transport_engine().value_or_throw()).value_or_throw();
      Producer producer(*loop, row, variant, source);
      NoSink none(*loop, row.latency_ms);
      if (row.tcp) {
        committer = std::make_unique<Committer>(row, congestion_control());
        ChannelOptions options;
        options.stream.socket.congestion_control = congestion_control();
        Client(
            *loop,
            [&](Channel& channel) {
              return channel.pipeline().append(std::make_unique<Acknowledgements>(producer, ready));
            },
            options)
            .connect(committer->endpoint());
      } else {
        producer.writer().attach(none.send());
        ++ready;
      }
      const Duration step = std::chrono::milliseconds(1);
      while (!go) loop->run_once(step);
      producer.start();
      while (!over) loop->run_once(step);
      producer.stop();
      bytes += producer.acknowledged();
      loop->stop();
      loop->run();
    });
  }
  while (ready != row.threads) std::this_thread::yield();
  const auto begin = Clock::now();
  go = true;
  std::this_thread::sleep_for(time);
  over = true;
  const std::chrono::duration<double> taken = Clock::now() - begin;
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(bytes) / 1e6 / taken.count();
}

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  for (const bool tcp : {false, true}) {
    for (const int latency_ms : {0, 2}) {
      for (const std::size_t stream : {4, 64}) {
        for (const std::size_t write : {1, 2, 3, 4}) {
          for (const int threads : {1, 2, 7, 14, 28}) {
            rows.push_back({write * kMiB, threads, stream * kMiB, latency_ms, tcp,
                            stream == 64 && write == 1 && threads <= 2});
          }
        }
      }
    }
  }
  return rows;
}

void run_round(bool quick) {
  for (const Row& row : all_rows()) {
    if (quick && !row.quick) continue;
    for (const auto& [name, variant] : kVariants) {
      const double rate = measure(row, variant, std::chrono::milliseconds(quick ? 300 : 150));
      std::printf(R"({"variant": "%s", "params": {"write": %zu, "threads": %d, "stream": %zu, )"
                  R"("latency": %d, "sink": "%s"}, "metric": "throughput", "unit": "MB/s", "value": %.4g})"
                  "\n",
                  name, row.write_bytes, row.threads, row.stream_bytes, row.latency_ms,
                  row.tcp ? "TCP" : "none", rate);
      std::fflush(stdout);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  perf::keep_freed_memory();
  return perf::run_own_rounds(argc, argv, run_round);
}
