// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The server of the benchmark `block-read` on gRPC: the synchronous service, without limits on messages.
//
//     block-grpc-server [--keep-memory] PORT
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "block.grpc.pb.h"
#include "perf/block/block_memory.hpp"

namespace linkspan::perf {
namespace {

class BlocksService final : public Blocks::Service {
  grpc::Status Read(grpc::ServerContext*, const ReadRequest* request,
                    grpc::ServerWriter<ReadResponse>* writer) override {
    const std::span<const char> block = request->file() ? mapped_block() : block_in_memory();
    const std::uint64_t end = std::min<std::uint64_t>(block.size(), request->offset() + request->length());
    ReadResponse response;  // keeps its string's memory
    for (std::uint64_t offset = request->offset(); offset < end; offset += request->chunk_bytes()) {
      response.set_offset(offset);
      response.set_data(block.data() + offset, std::min(request->chunk_bytes(), end - offset));
      if (!writer->Write(response)) break;
    }
    return grpc::Status::OK;
  }

  grpc::Status Write(grpc::ServerContext*, grpc::ServerReader<WriteRequest>* reader,
                     WriteResponse* response) override {
    WriteRequest request;
    byte_sum sum{};
    std::uint64_t bytes = 0;
    while (reader->Read(&request)) {
      bytes += request.data().size();
      if (request.summed()) byte_sum_add(&sum, request.data().data(), request.data().size());
    }
    response->set_bytes(bytes);
    response->set_sum(sum.total);
    return grpc::Status::OK;
  }
};

}  // namespace
}  // namespace linkspan::perf

int main(int argc, char** argv) {
  const std::string endpoint = server_endpoint(argc, argv);
  server_end_with_parent();
  if (server_option_set(argc, argv, "keep-memory") != 0) linkspan::perf::keep_freed_memory();
  linkspan::perf::BlocksService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:" + endpoint, grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  server_require(server != nullptr && port != 0, "gRPC does not listen");
  std::printf("listening on %d\n", port);
  std::fflush(stdout);
  server->Wait();  // until a signal ends the process
}
