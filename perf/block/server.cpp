// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The server of the benchmark `block-read` on Linkspan: everything on one loop.
//
//     block-linkspan [--transport=io_uring|epoll|asio] PORT|unix:PATH
#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "linkspan/channel/server.hpp"
#include "linkspan/transport/transport.hpp"
#include "perf/block/block_memory.hpp"
#include "perf/block/pipeline.hpp"

using namespace linkspan;
using namespace linkspan::perf;

namespace {

class BlockService final : public Service<Envelope<Request>, Envelope<Response>> {
 public:
  explicit BlockService(std::shared_ptr<bool> copies) : copies_(std::move(copies)) {}

  void on_read(Envelope<Request>&& request) override {
    switch (request.message.kind_case()) {
      case Request::kRead: return begin_read(request.message.read());
      case Request::kWrite: return take_chunk(request.payloads, request.message.write());
      case Request::kCopy: return begin_copying();
      case Request::kLedger: return send_ledger();
      case Request::kFile: return send_file();
      case Request::KIND_NOT_SET: break;
    }
    channel().abort();
  }

  void on_writable_changed(bool writable) override {
    if (writable) send_chunks();
  }

 private:
  void begin_copying() {
    *copies_ = true;
    keep_freed_memory();
  }

  void begin_read(const ReadRequest& request) {
    source_ = immortal_block(request.file() ? mapped_block() : block_in_memory());
    const std::uint64_t size = source_.size();
    offset_ = std::min(request.offset(), size);
    end_ = offset_ + std::min(request.length(), size - offset_);
    chunk_bytes_ = std::max<std::uint64_t>(request.chunk_bytes(), 4096);
    send_chunks();
  }

  void send_chunks() {
    while (offset_ < end_ && channel().writable()) {
      const std::uint64_t size = std::min(chunk_bytes_, end_ - offset_);
      Envelope<Response> response;
      ReadResponse& chunk = *response.message.mutable_read();
      chunk.set_offset(offset_);
      set_data(response.payloads, chunk, source_.slice(offset_, size), *copies_);
      offset_ += size;
      write(std::move(response));
    }
  }

  void take_chunk(Payloads& payloads, const WriteRequest& chunk) {
    received_ += consume(payloads, chunk.data(), chunk.summed() ? &sum_ : nullptr);
    if (!chunk.last()) return;
    Envelope<Response> response;
    response.message.mutable_write()->set_bytes(std::exchange(received_, 0));
    response.message.mutable_write()->set_sum(std::exchange(sum_, {}).total);
    write(std::move(response));
  }

  void send_ledger() {
    const CopyCounts counts = CopyLedger::total();
    Envelope<Response> response;
    for (const std::uint64_t bytes : counts.bytes) response.message.mutable_ledger()->add_bytes(bytes);
    write(std::move(response));
  }

  // Descriptors go past the handlers, so the frame around the message is made here.
  void send_file() {
    Response response;
    response.mutable_file();
    ChainWriter writer(heap_allocator());
    writer.write_big_endian(static_cast<std::uint32_t>(response.ByteSizeLong()));
    writer.write(response.SerializeAsString());
    WithDescriptors message{writer.take(), {}};
    message.descriptors.emplace_back(fcntl(block_file(), F_DUPFD_CLOEXEC, 0));
    channel().write(std::move(message));
  }

  std::shared_ptr<bool> copies_;
  Slice source_;
  std::uint64_t offset_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t chunk_bytes_ = 0;
  std::uint64_t received_ = 0;  // of the block that is written
  byte_sum sum_{};
};

}  // namespace

int main(int argc, char** argv) try {
  const std::string endpoint = server_endpoint(argc, argv);
  server_end_with_parent();
  const auto engine = transport_engine(server_option(argc, argv, "transport", "auto")).value_or_throw();
  const std::unique_ptr<EventLoop> loop = EventLoop::create(engine).value_or_throw();
  const bool is_unix = endpoint.starts_with("unix:");
  ServerOptions options;
  options.endpoint = Endpoint::parse(is_unix ? endpoint : "127.0.0.1:" + endpoint).value_or_throw();
  options.channel = block_channel_options();
  options.initializer = [](Channel& channel) {
    auto copies = std::make_shared<bool>(false);
    auto service = std::make_unique<BlockService>(copies);
    return fill_block_pipeline<Request, Response>(channel, copies, std::move(service));
  };
  const Server server = Server::start(*loop, options).value_or_throw();
  const Endpoint& local = server.local_endpoint();
  std::printf("listening on %s\n",
              is_unix ? local.to_string().c_str() : std::to_string(local.port()).c_str());
  std::fflush(stdout);
  loop->run();  // until a signal ends the process
} catch (const Exception& error) {
  std::fprintf(stderr, "block-linkspan: %s\n", error.what());
  return 1;
}
