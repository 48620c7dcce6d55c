// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The block server: accepts connections and serves puts and gets on them, one operation a connection at a
// time.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "block_store.hpp"
#include "file_thread.hpp"
#include "linkspan/channel/server.hpp"
#include "linkspan/loop/loop_group.hpp"
#include "session.hpp"

namespace linkspan::blocks {

struct BlockServerOptions {
  std::string address = "127.0.0.1:0";
  std::string local;  ///< path of a unix socket beside the address, over which files are passed; empty: none
  std::string directory;
  std::string transport = "auto";
  std::size_t loops = 1;
  std::size_t chunk_bytes = std::size_t{1} << 20;  ///< of the pieces that a get is sent in
  bool checksum = true;                            ///< false: gets carry none, whatever the client asks for

  BlockServerOptions() = default;
};

class BlockServer {
 public:
  static Result<std::unique_ptr<BlockServer>> start(const BlockServerOptions& options);

  [[nodiscard]] const Endpoint& local_endpoint() const;
  [[nodiscard]] std::string_view transport_name() const;

  /// Stops accepting, lets what runs finish until `deadline` has passed, and returns then.
  void stop(Duration deadline);

 private:
  BlockServer() = default;

  // Each uses the ones before it, so they end in the reverse order. The file thread still runs what sessions
  // have left behind when the loops are gone.
  std::unique_ptr<BlockStore> store_;
  std::unique_ptr<FileThread> files_;
  std::optional<SessionContext> context_;
  std::unique_ptr<LoopGroup> loops_;
  std::optional<Server> server_;
  std::optional<Server> local_server_;
};

}  // namespace linkspan::blocks
