// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// LocalBlocks: blocks of a server on this machine, mapped from the files that it has passed. The server never
// changes a file that is a block: it replaces or removes it, and a file that has no name any more is
// forgotten here. Who else truncates one ends a program that reads the mapping. One thread at a time.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "linkspan/base/result.hpp"
#include "linkspan/buffer/slice.hpp"
#include "linkspan/loop/files.hpp"
#include "linkspan/transport/socket.hpp"

namespace linkspan::blocks {

/// What a client on the server's machine needs to read a block by itself.
struct OpenedBlock {
  Socket descriptor;
  std::uint64_t size_bytes = 0;
  std::optional<std::uint32_t> crc32;
};

struct MappedBlock {
  Slice bytes;
  std::optional<std::uint32_t> crc32;
};

class LocalBlocks {
 public:
  /// Nothing: it has to be opened, for the first time or again.
  std::optional<MappedBlock> find(const std::string& name);
  /// Maps it and keeps it; with kLocalBlocks of them the one that was not used for longest goes.
  Result<MappedBlock> keep(const std::string& name, OpenedBlock&& opened);

 private:
  struct Entry {
    std::string name;
    std::unique_ptr<File> file;
    MappedBlock block;
  };

  std::list<Entry> entries_;  // the last used first
};

}  // namespace linkspan::blocks
