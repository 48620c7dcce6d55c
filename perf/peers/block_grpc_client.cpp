// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The client of the benchmark `block-read` on gRPC: one stub, a call for each block. Its options are those of
// block/client.cpp that make sense here, and
//
//     --keep-memory   that was freed, instead of giving it back to the system
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "block.grpc.pb.h"
#include "perf/block/block_memory.hpp"
#include "perf/block/meter.hpp"

namespace linkspan::perf {
namespace {

void check(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "block-grpc-client: %s\n", what.c_str());
  std::exit(1);
}

class BlocksClient {
 public:
  BlocksClient(int argc, char** argv)
      : chunk_bytes_(std::strtoul(server_option(argc, argv, "bytes", "1048576"), nullptr, 10)),
        from_file_(std::string_view(server_option(argc, argv, "source", "memory")) == "file"),
        summed_(server_option_set(argc, argv, "summed") != 0) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetMaxSendMessageSize(-1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    stub_ = Blocks::NewStub(grpc::CreateCustomChannel(std::string("127.0.0.1:") + server_endpoint(argc, argv),
                                                      grpc::InsecureChannelCredentials(), arguments));
  }

  std::uint64_t read() {
    grpc::ClientContext context;
    ReadRequest request;
    request.set_block("a-block-0000-1111-2222-3333-444455556666");
    request.set_length(kBlockBytes);
    request.set_chunk_bytes(chunk_bytes_);
    request.set_file(from_file_);
    const auto reader = stub_->Read(&context, request);
    ReadResponse response;  // keeps its string's memory
    byte_sum sum{};
    std::uint64_t bytes = 0;
    while (reader->Read(&response)) {
      bytes += response.data().size();
      if (summed_) byte_sum_add(&sum, response.data().data(), response.data().size());
    }
    end(reader->Finish(), bytes, sum.total);
    return bytes;
  }

  std::uint64_t write() {
    const std::span<const char> block = block_in_memory();
    grpc::ClientContext context;
    WriteResponse response;
    const auto writer = stub_->Write(&context, &response);
    WriteRequest request;
    for (std::size_t offset = 0; offset < kBlockBytes; offset += chunk_bytes_) {
      request.set_offset(offset);
      request.set_summed(summed_);
      request.set_last(offset + chunk_bytes_ >= kBlockBytes);
      request.set_data(block.data() + offset, std::min(chunk_bytes_, kBlockBytes - offset));
      if (!writer->Write(request)) break;
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    end(status, response.bytes(), response.sum());
    return response.bytes();
  }

 private:
  void end(const grpc::Status& status, std::uint64_t bytes, std::uint64_t sum) const {
    check(status.ok(), status.error_message());
    check(bytes == kBlockBytes, "a block has another size");
    check(!summed_ || sum == block_sum(bytes), "a block has other bytes");
  }

  std::size_t chunk_bytes_;
  bool from_file_;
  bool summed_;
  std::unique_ptr<Blocks::Stub> stub_;
};

}  // namespace
}  // namespace linkspan::perf

int main(int argc, char** argv) {
  using namespace linkspan::perf;
  if (server_option_set(argc, argv, "keep-memory") != 0) keep_freed_memory();
  BlocksClient client(argc, argv);
  const bool writes = std::string_view(argv[1]) == "write";
  if (writes) block_in_memory();
  Meter(argc, argv).run([&] { return writes ? client.write() : client.read(); });
}
