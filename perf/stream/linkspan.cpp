// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The sender of the benchmark `stream` on Linkspan: every connection gets messages for as long as it takes
// them. A stream has one or two messages queued, so that the kernel never waits for the loop.
//
//     stream-linkspan [--transport=io_uring|epoll|asio] [options of stream_source.h] PORT|unix:PATH
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "linkspan/loop/event_loop.hpp"
#include "linkspan/loop/files.hpp"
#include "linkspan/transport/transport.hpp"
#include "perf/support/server.h"
#include "perf/support/stream_source.h"

using namespace linkspan;

namespace {

class Messages {
 public:
  Messages(int argc, char** argv) {
    stream_source_open(&source_, argc, argv);
    if (source_.file >= 0) {
      file_ = adopt_file(source_.file, "stream");
    } else {
      const auto bytes = std::as_bytes(std::span(source_.memory, source_.memory_bytes));
      memory_ = Slice::borrow(bytes, []() noexcept {});
    }
  }

  [[nodiscard]] std::size_t bytes() const { return source_.bytes; }

  void write_next(Stream& stream) {
    if (file_ != nullptr) {
      stream.write_file({file_, stream_source_offset(&source_), source_.bytes});
      return;
    }
    std::array<iovec, kSlicesMost> slices;
    stream_source_slices(&source_, slices.data());
    stream.write(source_.copy ? copied(slices.data()) : referenced(slices.data()));
  }

 private:
  Chain referenced(const iovec* slices) const {
    Chain message;
    for (unsigned i = 0; i < source_.slices; ++i) {
      const char* const at = static_cast<const char*>(slices[i].iov_base);
      message.append(memory_.slice(static_cast<std::size_t>(at - source_.memory), slices[i].iov_len));
    }
    return message;
  }

  // Into a buffer that was used before: fresh memory would be most of what one sees.
  Chain copied(const iovec* slices) {
    if (buffers_.empty()) buffers_.push_back(std::make_unique<std::byte[]>(source_.bytes));
    std::unique_ptr<std::byte[]> buffer = std::move(buffers_.back());
    buffers_.pop_back();
    std::byte* to = buffer.get();
    for (unsigned i = 0; i < source_.slices; ++i) {
      std::memcpy(to, slices[i].iov_base, slices[i].iov_len);
      to += slices[i].iov_len;
    }
    const std::span<const std::byte> bytes(buffer.get(), source_.bytes);
    auto reuse = [this, buffer = std::move(buffer)]() mutable { buffers_.push_back(std::move(buffer)); };
    return Chain(Slice::borrow(bytes, std::move(reuse)));
  }

  stream_source source_{};
  Slice memory_;
  std::shared_ptr<const File> file_;
  std::vector<std::unique_ptr<std::byte[]>> buffers_;
};

class Sender final : public StreamHandler {
 public:
  Sender(EventLoop& loop, Messages& messages, Socket socket) : messages_(messages) {
    StreamOptions options;
    options.high_watermark_bytes = std::max<std::size_t>(256 * 1024, messages.bytes());
    options.low_watermark_bytes = options.high_watermark_bytes;
    stream_ = Transport::of(loop).open(std::move(socket), options, *this);
  }

  void on_open() override {
    stream_.start_read();  // to hear of the end
    fill();
  }
  void on_writable() override { fill(); }
  void on_read(Chain&&) override {}
  void on_end() override { stream_.abort(); }
  void on_write_closed(std::error_code) override { stream_.abort(); }
  void on_closed(std::error_code, Chain&&) override { delete this; }

 private:
  void fill() {
    while (stream_.writable()) messages_.write_next(stream_);
  }

  Messages& messages_;
  Stream stream_;
};

class Acceptor final : public ListenerHandler {
 public:
  Acceptor(EventLoop& loop, Messages& messages) : loop_(loop), messages_(messages) {}

  void on_accept(Socket socket) override { new Sender(loop_, messages_, std::move(socket)); }  // owns itself

 private:
  EventLoop& loop_;
  Messages& messages_;
};

}  // namespace

int main(int argc, char** argv) try {
  const std::string endpoint = server_endpoint(argc, argv);
  server_end_with_parent();
  server_allow_descriptors();
  const auto engine = transport_engine(server_option(argc, argv, "transport", "auto")).value_or_throw();
  const std::unique_ptr<EventLoop> loop = EventLoop::create(engine).value_or_throw();
  Messages messages(argc, argv);
  Acceptor acceptor(*loop, messages);
  const bool is_unix = endpoint.starts_with("unix:");
  const auto address = Endpoint::parse(is_unix ? endpoint : "127.0.0.1:" + endpoint).value_or_throw();
  const Listener listener = Transport::of(*loop).listen(address, ListenOptions(), acceptor).value_or_throw();
  const Endpoint local = listener.local_endpoint();
  std::printf("listening on %s\n",
              is_unix ? local.to_string().c_str() : std::to_string(local.port()).c_str());
  std::fflush(stdout);
  loop->run();  // until a signal ends the process
} catch (const Exception& error) {
  std::fprintf(stderr, "stream-linkspan: %s\n", error.what());
  return 1;
}
