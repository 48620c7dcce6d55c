// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "client.hpp"

#include <deque>
#include <utility>

#include "limits.hpp"
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

// A connection for one operation.
template <class Operation, class... Arguments>
std::shared_ptr<Outcome<typename Operation::Value>> BlockClient::start(const Arguments&... arguments) {
  using Value = typename Operation::Value;
  auto outcome = std::make_shared<Outcome<Value>>();
  Result<Pipes<Reply, Request>> pipes = Pipes<Reply, Request>::create();
  if (!pipes) {
    outcome->set(pipes.error());
    return outcome;
  }
  const OperationContext context{options_, *files_};
  const Client client(*loops_, [context, outcome, pipes = pipes.value(), arguments...](Channel& channel) {
    return pipes.fill(channel, std::make_unique<Operation>(context, outcome, arguments...));
  });
  client.connect(endpoints_, [outcome, address = options_.address](std::error_code error) {
    if (error) outcome->set(Error(error, "connecting to " + address + ": " + error.message()));
  });
  return outcome;
}

template <class Operation, class... Arguments>
Result<typename Operation::Value> BlockClient::run(const Arguments&... arguments) {
  return start<Operation>(arguments...)->wait();
}

template <class Start>
std::vector<Result<Transfer>> BlockClient::run_all(const std::vector<Item>& items, const Start& start) {
  std::vector<Result<Transfer>> results;
  std::deque<std::shared_ptr<Outcome<Transfer>>> running;
  for (const Item& item : items) {
    if (running.size() == kOperationsAtOnce) {
      results.push_back(running.front()->wait());
      running.pop_front();
    }
    running.push_back(start(item));
  }
  for (const auto& outcome : running) results.push_back(outcome->wait());
  return results;
}

std::vector<Result<Transfer>> BlockClient::put_all(const std::vector<Item>& items) {
  return run_all(items, [this](const Item& item) { return start<PutOperation>(item.path, item.name); });
}

std::vector<Result<Transfer>> BlockClient::get_all(const std::vector<Item>& items) {
  return run_all(items, [this](const Item& item) {
    return start<GetOperation>(item.name, std::optional<std::string>(item.path));
  });
}

Result<std::vector<std::string>> BlockClient::list() {
  return run<ListOperation>();
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
