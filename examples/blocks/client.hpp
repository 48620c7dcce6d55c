// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// BlockClient: stores and fetches blocks, one operation at a time, from a thread that may block. A loop of
// its own does the network, a file thread the files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "blocks.pb.h"
#include "file_thread.hpp"
#include "linkspan/channel/channel.hpp"
#include "linkspan/loop/loop_group.hpp"
#include "linkspan/transport/endpoint.hpp"
#include "local_blocks.hpp"

namespace linkspan::blocks {

struct BlockClientOptions {
  std::string address;
  std::string local;  ///< gets read the server's files, passed over its unix socket at this path; empty: none
  std::string transport = "auto";
  std::size_t chunk_bytes = std::size_t{1} << 20;
  bool checksum = true;
  Duration progress_timeout =
      std::chrono::seconds(30);  ///< an operation fails when nothing moves for so long

  BlockClientOptions() = default;
};

/// What a put or a get has moved.
struct Transfer {
  std::uint64_t size_bytes = 0;
  double seconds = 0;
  std::optional<std::uint32_t> crc32;

  [[nodiscard]] double megabytes_per_second() const {
    return static_cast<double>(size_bytes) / 1e6 / seconds;
  }
};

template <class T>
class Outcome;

class BlockClient {
 public:
  /// Finds the address and starts the threads; connects for each operation.
  static Result<std::unique_ptr<BlockClient>> create(BlockClientOptions options);

  Result<Transfer> put(const std::string& path, const std::string& name);
  /// Writes to a temporary name beside `path` and renames it when the block is whole. Without a path the
  /// bytes are checked and dropped. With `local` they are read from the server's file, which it passes once.
  Result<Transfer> get(const std::string& name, const std::optional<std::string>& path);
  Status remove(const std::string& name);
  /// In the order of their bytes.
  Result<std::vector<std::string>> list();

  /// A file, and the name of its block.
  struct Item {
    std::string path;
    std::string name;
  };
  /// At most kOperationsAtOnce at a time, each on a connection of its own; results in the order of the items.
  /// With `local` gets are one after the other.
  std::vector<Result<Transfer>> put_all(const std::vector<Item>& items);
  std::vector<Result<Transfer>> get_all(const std::vector<Item>& items);

  /// What the server has copied since it started.
  Result<ServerCopyCounts> server_copy_counts();

 private:
  struct Target {
    std::string address;
    std::vector<Endpoint> endpoints;
    ChannelOptions options;
  };

  BlockClient(BlockClientOptions options, Target server, Target local, std::unique_ptr<FileThread> files,
              std::unique_ptr<LoopGroup> loops);

  template <class Operation, class... Arguments>
  std::shared_ptr<Outcome<typename Operation::Value>> start(const Target& target,
                                                            const Arguments&... arguments);
  template <class Operation, class... Arguments>
  Result<typename Operation::Value> run(const Arguments&... arguments);
  Result<MappedBlock> local_block(const std::string& name);
  Result<Transfer> get_local(const std::string& name, const std::optional<std::string>& path);
  template <class Start>
  static std::vector<Result<Transfer>> run_all(const std::vector<Item>& items, const Start& start);

  BlockClientOptions options_;
  Target server_;
  Target local_;  // of files; without endpoints when there is none
  LocalBlocks local_blocks_;
  std::unique_ptr<FileThread> files_;
  std::unique_ptr<LoopGroup> loops_;  // last, so it ends first: channels that go still use the file thread
};

}  // namespace linkspan::blocks
