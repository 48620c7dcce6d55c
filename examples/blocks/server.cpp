// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "server.hpp"

#include <future>
#include <utility>

#include "limits.hpp"
#include "linkspan/transport/transport.hpp"
#include "pipeline.hpp"
#include "session.hpp"

namespace linkspan::blocks {

Result<std::unique_ptr<BlockServer>> BlockServer::start(const BlockServerOptions& options) {
  const Environment& environment = Environment::system();
  std::unique_ptr<BlockServer> server(new BlockServer);

  Result<std::vector<Endpoint>> endpoints = resolve_endpoints(options.address, environment.resolver);
  if (!endpoints) return endpoints.error();
  auto store = BlockStore::open(environment, options.directory);
  if (!store) return store.error();
  server->store_ = std::move(store).value();
  auto files = FileThread::start(environment.threads);
  if (!files) return files.error();
  server->files_ = std::move(files).value();
  server->context_.emplace(
      SessionContext{*server->store_, *server->files_, options.chunk_bytes, options.checksum});

  Result<EngineFactory> engine = transport_engine(options.transport);
  if (!engine) return engine.error();
  LoopGroupOptions loop_options;
  loop_options.size = options.loops;
  loop_options.loop.name = "blocks";
  auto loops = LoopGroup::create(engine.value(), std::move(loop_options));
  if (!loops) return loops.error();
  server->loops_ = std::move(loops).value();

  Result<Pipes<Request, Reply>> pipes = Pipes<Request, Reply>::create();
  if (!pipes) return pipes.error();
  ServerOptions server_options;
  server_options.endpoint = endpoints.value().front();
  server_options.initializer = [pipes = pipes.value(), context = &*server->context_](Channel& channel) {
    return pipes.fill(channel, std::make_unique<Session>(*context));
  };
  Result<Server> started = Server::start(*server->loops_, server_options);
  if (!started) return started.error();
  server->server_.emplace(std::move(started).value());
  if (options.local.empty()) return server;
  Result<Endpoint> local = Endpoint::parse("unix:" + options.local);
  if (!local) return local.error();
  server_options.endpoint = local.value();
  started = Server::start(*server->loops_, std::move(server_options));
  if (!started) return started.error();
  server->local_server_.emplace(std::move(started).value());
  return server;
}

const Endpoint& BlockServer::local_endpoint() const {
  return server_->local_endpoint();
}

std::string_view BlockServer::transport_name() const {
  return loops_->loops().front()->engine().name();
}

void BlockServer::stop(Duration deadline) {
  std::promise<void> stopped;
  std::promise<void> local_stopped;
  server_->stop(deadline, [&stopped] { stopped.set_value(); });
  if (local_server_) local_server_->stop(deadline, [&local_stopped] { local_stopped.set_value(); });
  stopped.get_future().wait();
  if (local_server_) local_stopped.get_future().wait();
}

}  // namespace linkspan::blocks
