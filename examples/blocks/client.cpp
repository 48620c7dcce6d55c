// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "client.hpp"

#include <utility>

#include "linkspan/channel/client.hpp"
#include "linkspan/transport/transport.hpp"
#include "operations.hpp"
#include "pipeline.hpp"

namespace linkspan::blocks {

BlockClient::BlockClient(BlockClientOptions options, std::vector<Endpoint> endpoints,
                         std::unique_ptr<FileThread> files, std::unique_ptr<LoopGroup> loops)
    : options_(std::move(options)),
      endpoints_(std::move(endpoints)),
      files_(std::move(files)),
      loops_(std::move(loops)) {}

Result<std::unique_ptr<BlockClient>> BlockClient::create(BlockClientOptions options) {
  const Environment& environment = Environment::system();
  Result<std::vector<Endpoint>> endpoints = resolve_endpoints(options.address, environment.resolver);
  if (!endpoints) return endpoints.error();
  auto files = FileThread::start(environment.threads);
  if (!files) return files.error();
  Result<EngineFactory> engine = transport_engine(options.transport);
  if (!engine) return engine.error();
  LoopGroupOptions loop_options;
  loop_options.loop.name = "blocks-client";
  auto loops = LoopGroup::create(engine.value(), std::move(loop_options));
  if (!loops) return loops.error();
  return std::unique_ptr<BlockClient>(new BlockClient(std::move(options), std::move(endpoints).value(),
                                                      std::move(files).value(), std::move(loops).value()));
}

// A connection for one operation; waits for its result.
template <class Operation, class... Arguments>
Result<typename Operation::Value> BlockClient::run(const Arguments&... arguments) {
  using Value = typename Operation::Value;
  Result<Pipes<Reply, Request>> pipes = Pipes<Reply, Request>::create();
  if (!pipes) return pipes.error();
  const OperationContext context{options_, *files_};
  auto outcome = std::make_shared<Outcome<Value>>();
  const Client client(*loops_, [context, outcome, pipes = pipes.value(), arguments...](Channel& channel) {
    return pipes.fill(channel, std::make_unique<Operation>(context, outcome, arguments...));
  });
  client.connect(endpoints_, [outcome, address = options_.address](std::error_code error) {
    if (error) outcome->set(Error(error, "connecting to " + address + ": " + error.message()));
  });
  return outcome->wait();
}

Result<Transfer> BlockClient::put(const std::string& path, const std::string& name) {
  return run<PutOperation>(path, name);
}

Result<Transfer> BlockClient::get(const std::string& name, const std::optional<std::string>& path) {
  return run<GetOperation>(name, path);
}

Status BlockClient::remove(const std::string& name) {
  return run<RemoveOperation>(name);
}

Result<ServerCopyCounts> BlockClient::server_copy_counts() {
  return run<CopyCountsOperation>();
}

}  // namespace linkspan::blocks
