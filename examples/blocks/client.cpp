// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "client.hpp"

#include <deque>
#include <utility>

#include "file_sink.hpp"
#include "limits.hpp"
#include "linkspan/buffer/checksum.hpp"
#include "linkspan/channel/client.hpp"
#include "linkspan/transport/transport.hpp"
#include "operations.hpp"
#include "pipeline.hpp"

namespace linkspan::blocks {

BlockClient::BlockClient(BlockClientOptions options, Target server, Target local,
                         std::unique_ptr<FileThread> files, std::unique_ptr<LoopGroup> loops)
    : options_(std::move(options)),
      server_(std::move(server)),
      local_(std::move(local)),
      files_(std::move(files)),
      loops_(std::move(loops)) {}

Result<std::unique_ptr<BlockClient>> BlockClient::create(BlockClientOptions options) {
  const Environment& environment = Environment::system();
  Result<std::vector<Endpoint>> endpoints = resolve_endpoints(options.address, environment.resolver);
  if (!endpoints) return endpoints.error();
  Target server{options.address, std::move(endpoints).value(), {}};
  Target local;
  if (!options.local.empty()) {
    local.address = "unix:" + options.local;
    Result<Endpoint> path = Endpoint::parse(local.address);
    if (!path) return path.error();
    local.endpoints = {path.value()};
    local.options.stream.receive_descriptors = 1;
  }
  auto files = FileThread::start(environment.threads);
  if (!files) return files.error();
  Result<EngineFactory> engine = transport_engine(options.transport);
  if (!engine) return engine.error();
  LoopGroupOptions loop_options;
  loop_options.loop.name = "blocks-client";
  auto loops = LoopGroup::create(engine.value(), std::move(loop_options));
  if (!loops) return loops.error();
  return std::unique_ptr<BlockClient>(new BlockClient(std::move(options), std::move(server), std::move(local),
                                                      std::move(files).value(), std::move(loops).value()));
}

// A connection for one operation.
template <class Operation, class... Arguments>
std::shared_ptr<Outcome<typename Operation::Value>> BlockClient::start(const Target& target,
                                                                       const Arguments&... arguments) {
  using Value = typename Operation::Value;
  auto outcome = std::make_shared<Outcome<Value>>();
  Result<Pipes<Reply, Request>> pipes = Pipes<Reply, Request>::create();
  if (!pipes) {
    outcome->set(pipes.error());
    return outcome;
  }
  const OperationContext context{options_, *files_};
  const Client client(
      *loops_,
      [context, outcome, pipes = pipes.value(), arguments...](Channel& channel) {
        return pipes.fill(channel, std::make_unique<Operation>(context, outcome, arguments...));
      },
      target.options);
  client.connect(target.endpoints, [outcome, address = target.address](std::error_code error) {
    if (error) outcome->set(Error(error, "connecting to " + address + ": " + error.message()));
  });
  return outcome;
}

template <class Operation, class... Arguments>
Result<typename Operation::Value> BlockClient::run(const Arguments&... arguments) {
  return start<Operation>(server_, arguments...)->wait();
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
  return run_all(items,
                 [this](const Item& item) { return start<PutOperation>(server_, item.path, item.name); });
}

std::vector<Result<Transfer>> BlockClient::get_all(const std::vector<Item>& items) {
  if (!local_.endpoints.empty()) {
    std::vector<Result<Transfer>> results;
    for (const Item& item : items) results.push_back(get_local(item.name, item.path));
    return results;
  }
  return run_all(items, [this](const Item& item) {
    return start<GetOperation>(server_, item.name, std::optional<std::string>(item.path));
  });
}

Result<std::vector<std::string>> BlockClient::list() {
  return run<ListOperation>();
}

Result<Transfer> BlockClient::put(const std::string& path, const std::string& name) {
  return run<PutOperation>(path, name);
}

Result<Transfer> BlockClient::get(const std::string& name, const std::optional<std::string>& path) {
  if (!local_.endpoints.empty()) return get_local(name, path);
  return run<GetOperation>(name, path);
}

Result<MappedBlock> BlockClient::local_block(const std::string& name) {
  if (std::optional<MappedBlock> kept = local_blocks_.find(name)) return *kept;
  Result<OpenedBlock> opened = start<OpenOperation>(local_, name)->wait();
  if (!opened) return opened.error();
  return local_blocks_.keep(name, std::move(opened).value());
}

Result<Transfer> BlockClient::get_local(const std::string& name, const std::optional<std::string>& path) {
  const auto began = std::chrono::steady_clock::now();
  const Result<MappedBlock> found = local_block(name);
  if (!found) return found.error();
  const MappedBlock& block = found.value();
  if (block.crc32 && crc32(block.bytes.bytes()) != *block.crc32) {
    return Error(errc::malformed, "the checksum does not match: the block is damaged");
  }
  if (path) {
    FileSink sink;
    Status stored = sink.open(*path);
    if (stored) stored = sink.append(Chain(block.bytes));
    if (stored) stored = sink.commit();
    if (!stored) return stored.error();
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  return Transfer{block.bytes.size(), seconds.count(), block.crc32};
}

Status BlockClient::remove(const std::string& name) {
  return run<RemoveOperation>(name);
}

Result<ServerCopyCounts> BlockClient::server_copy_counts() {
  return run<CopyCountsOperation>();
}

}  // namespace linkspan::blocks
