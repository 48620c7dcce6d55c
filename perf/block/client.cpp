// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The client of the benchmark `block-read` on Linkspan, and the ways around a network.
//
//     block-client read|write|fetch [options] PORT|unix:PATH
//
//     --transport=io_uring|epoll|asio
//     --bytes=N            of a chunk; what is fetched is one chunk
//     --source=memory|file that the server reads from
//     --summed             every byte is read by whoever receives it
//     --server-copies, --client-copies
//     --file=each          fetch: a descriptor is passed for each request, and read with pread
//            pread|mapped  fetch: it is passed once
//     --local=pread|mapped no server: a file of the client's own
//
// and those of meter.hpp.
#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linkspan/channel/client.hpp"
#include "linkspan/transport/transport.hpp"
#include "perf/block/block_memory.hpp"
#include "perf/block/meter.hpp"
#include "perf/block/pipeline.hpp"

using namespace linkspan;
using namespace linkspan::perf;

namespace {

struct Options {
  Options(int argc, char** argv)
      : kind(argv[1]),
        bytes(std::strtoul(server_option(argc, argv, "bytes", "1048576"), nullptr, 10)),
        from_file(std::string_view(server_option(argc, argv, "source", "memory")) == "file"),
        summed(server_option_set(argc, argv, "summed") != 0),
        server_copies(server_option_set(argc, argv, "server-copies") != 0),
        client_copies(server_option_set(argc, argv, "client-copies") != 0),
        file(server_option(argc, argv, "file", "")),
        local(server_option(argc, argv, "local", "")) {}

  /// Of one operation.
  [[nodiscard]] std::size_t length() const { return kind == "fetch" ? bytes : kBlockBytes; }

  std::string_view kind;
  std::size_t bytes;
  bool from_file;
  bool summed;
  bool server_copies;
  bool client_copies;
  std::string_view file;
  std::string_view local;
};

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "block-client: %s\n", what);
  std::exit(1);
}

/// A block in a file that this process has a descriptor of. Operations are chunk by chunk.
class LocalBlock {
 public:
  LocalBlock(const Options& options, int file) : options_(options), file_(file), buffer_(options.bytes, 'b') {
    if (options.local == "mapped" || options.file == "mapped") mapping_ = map_block(MAP_SHARED, file);
    stream_fill(buffer_.data(), buffer_.size());
  }

  std::uint64_t operation() {
    byte_sum sum{};
    for (std::size_t done = 0; done < options_.length(); done += options_.bytes) chunk(sum);
    check(!options_.summed || options_.kind == "write" || sum.total == block_sum(options_.length()),
          "a file has other bytes");
    return options_.length();
  }

 private:
  void chunk(byte_sum& sum) {
    const std::size_t size = options_.bytes;
    if (options_.kind == "write") {
      check(pwrite(file_, buffer_.data(), size, static_cast<off_t>(offset_)) == static_cast<ssize_t>(size),
            "pwrite");
    } else if (mapping_.empty()) {
      check(pread(file_, buffer_.data(), size, static_cast<off_t>(offset_)) == static_cast<ssize_t>(size),
            "pread");
      if (options_.summed) byte_sum_add(&sum, buffer_.data(), size);
    } else if (options_.summed) {
      byte_sum_add(&sum, mapping_.data() + offset_, size);
    } else {
      touch(mapping_.subspan(offset_, size));
    }
    offset_ = (offset_ + size) % kBlockBytes;
  }

  // A mapping that nobody looks at costs nothing at all: so every cache line of it is.
  static void touch(std::span<const char> bytes) {
    constexpr std::size_t kLineBytes = 64;
    for (std::size_t at = 0; at < bytes.size(); at += kLineBytes) {
      static_cast<void>(*static_cast<const volatile char*>(bytes.data() + at));
    }
  }

  const Options& options_;
  int file_;
  std::string buffer_;
  std::span<char> mapping_;  // none: pread
  std::size_t offset_ = 0;
};

class BlockClient final : public Service<Envelope<Response>, Envelope<Request>> {
 public:
  BlockClient(const Options& options, Meter& meter) : options_(options), meter_(meter) {
    if (options.kind == "write") source_ = immortal_block(block_in_memory());
  }

  void on_active() override {
    if (options_.server_copies) {
      Envelope<Request> request;
      request.message.mutable_copy();
      write(std::move(request));
    }
    begin();
  }

  void on_descriptors(std::vector<Socket>&& descriptors) override { descriptors_ = std::move(descriptors); }

  void on_read(Envelope<Response>&& response) override {
    switch (response.message.kind_case()) {
      case Response::kRead: return take_chunk(response.payloads, response.message.read());
      case Response::kWrite: return end_write(response.message.write());
      case Response::kLedger: return take_ledger(response.message.ledger());
      case Response::kFile: return take_file();
      case Response::KIND_NOT_SET: break;
    }
    check(false, "an answer that is none");
  }

  void on_writable_changed(bool writable) override {
    if (writable && options_.kind == "write") send_chunks();
  }

  void on_inactive(std::error_code) override { check(over_, "the connection has ended"); }

 private:
  void begin() {
    if (options_.kind == "write") {
      sent_ = 0;
      return send_chunks();
    }
    Envelope<Request> request;
    if (!options_.file.empty()) {
      request.message.mutable_file();
    } else {
      ReadRequest& read = *request.message.mutable_read();
      read.set_block("a-block-0000-1111-2222-3333-444455556666");
      read.set_offset(offset_);
      read.set_length(options_.length());
      read.set_chunk_bytes(options_.bytes);
      read.set_file(options_.from_file);
      offset_ = (offset_ + options_.length()) % kBlockBytes;
    }
    write(std::move(request));
  }

  void take_chunk(Payloads& payloads, const ReadResponse& chunk) {
    received_ += consume(payloads, chunk.data(), options_.summed ? &sum_ : nullptr);
    if (received_ < options_.length()) return;
    check(received_ == options_.length(), "a block has another size");
    check(!options_.summed || sum_.total == block_sum(received_), "a block has other bytes");
    sum_ = {};
    end(std::exchange(received_, 0));
  }

  void send_chunks() {
    while (sent_ < kBlockBytes && channel().writable()) {
      Envelope<Request> request;
      WriteRequest& chunk = *request.message.mutable_write();
      chunk.set_offset(sent_);
      chunk.set_summed(options_.summed);
      chunk.set_last(sent_ + options_.bytes >= kBlockBytes);
      const std::size_t size = std::min(options_.bytes, kBlockBytes - sent_);
      set_data(request.payloads, chunk, source_.slice(sent_, size), options_.client_copies);
      sent_ += size;
      write(std::move(request));
    }
  }

  void end_write(const WriteResponse& response) {
    check(response.bytes() == kBlockBytes, "a block was written with another size");
    check(!options_.summed || response.sum() == block_sum(kBlockBytes),
          "a block was written with other bytes");
    end(response.bytes());
  }

  void take_file() {
    check(descriptors_.size() == 1, "no descriptor came");
    const Socket file = std::move(descriptors_.front());
    descriptors_.clear();
    if (file_ == nullptr || options_.file == "each") {
      file_ = std::make_unique<LocalBlock>(options_, file.descriptor());
    }
    if (options_.file == "each") return end(file_->operation());
    meter_.run([this] { return file_->operation(); });
    over_ = true;
    channel().loop().stop();
  }

  void end(std::uint64_t bytes) {
    if (meter_.add(bytes)) return begin();
    Envelope<Request> request;
    request.message.mutable_ledger();
    write(std::move(request));
  }

  // At the beginning and at the end of what is measured.
  void take_ledger(const Ledger& ledger) {
    const std::array<CopyCounts, 2> now = {counts_of(ledger), CopyLedger::total()};
    if (meter_.started()) {
      meter_.print(", \"copied\": {\"server\": {" + json(now[0] - copied_[0]) + "}, \"client\": {" +
                   json(now[1] - copied_[1]) + "}}");
      over_ = true;
      return channel().loop().stop();
    }
    copied_ = now;
    meter_.start();
    begin();
  }

  static CopyCounts counts_of(const Ledger& ledger) {
    CopyCounts counts;
    check(static_cast<std::size_t>(ledger.bytes_size()) == counts.bytes.size(), "a ledger of another kind");
    std::copy(ledger.bytes().begin(), ledger.bytes().end(), counts.bytes.begin());
    return counts;
  }

  static std::string json(const CopyCounts& counts) {
    std::string text;
    for (std::size_t i = 0; i < kCopyPlaces; ++i) {
      text.append(i == 0 ? "\"" : ", \"").append(to_string(static_cast<CopyPlace>(i))).append("\": ");
      text.append(std::to_string(counts.bytes[i]));
    }
    return text;
  }

  const Options& options_;
  Meter& meter_;
  Slice source_;
  std::size_t sent_ = 0;
  std::uint64_t offset_ = 0;
  std::uint64_t received_ = 0;
  byte_sum sum_{};
  std::vector<Socket> descriptors_;
  std::unique_ptr<LocalBlock> file_;
  std::array<CopyCounts, 2> copied_;  // of the server, of the client, when it began
  bool over_ = false;
};

}  // namespace

int main(int argc, char** argv) try {
  const std::string endpoint = server_endpoint(argc, argv);
  const Options options(argc, argv);
  if (!options.local.empty()) {
    LocalBlock block(options, block_file());
    Meter(argc, argv).run([&block] { return block.operation(); });
    return 0;
  }
  const auto engine = transport_engine(server_option(argc, argv, "transport", "auto")).value_or_throw();
  const std::unique_ptr<EventLoop> loop = EventLoop::create(engine).value_or_throw();
  const bool is_unix = endpoint.starts_with("unix:");
  ChannelOptions channel_options = block_channel_options();
  if (is_unix && !options.file.empty()) channel_options.stream.receive_descriptors = 1;
  if (options.kind == "write") block_in_memory();
  if (options.client_copies) keep_freed_memory();
  Meter meter(argc, argv);
  const Client client(
      *loop,
      [&](Channel& channel) {
        return fill_block_pipeline<Response, Request>(channel, std::make_shared<bool>(options.client_copies),
                                                      std::make_unique<BlockClient>(options, meter));
      },
      channel_options);
  client.connect(Endpoint::parse(is_unix ? endpoint : "127.0.0.1:" + endpoint).value_or_throw());
  loop->run();
  return 0;
} catch (const Exception& error) {
  std::fprintf(stderr, "block-client: %s\n", error.what());
  return 1;
}
