// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// BlockStore: blocks as files in a directory, one file each under the block's own name. A block is written to
// a temporary name, made durable, and only then gets its name, so a name always stands for a whole block. Its
// checksum is kept in an extended attribute of the file; where there is none it is computed when it is asked
// for. Everything here blocks: it belongs on the file thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "linkspan/base/result.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/loop/environment.hpp"
#include "linkspan/loop/files.hpp"
#include "linkspan/transport/socket.hpp"

namespace linkspan::blocks {

/// A block that is being written. Without commit it leaves nothing behind.
class PendingBlock {
 public:
  PendingBlock(Files& files, std::string directory, std::string name, std::string temporary,
               std::unique_ptr<File> file, bool with_checksum);
  ~PendingBlock();
  PendingBlock(const PendingBlock&) = delete;
  PendingBlock& operator=(const PendingBlock&) = delete;

  Status append(const Chain& bytes);
  /// Checks size and checksum, makes the file durable, gives it its name, and makes the name durable. Once.
  Status commit(std::uint64_t size_bytes, std::optional<std::uint32_t> crc32);

 private:
  Files& files_;
  std::string directory_;
  std::string name_;
  std::string temporary_;  // empty once renamed
  std::unique_ptr<File> file_;
  bool with_checksum_;
  std::uint64_t size_bytes_ = 0;
  std::uint32_t crc32_ = 0;
};

/// A block that is being read: mapped once, handed out in slices of the mapping.
class StoredBlock {
 public:
  static Result<std::unique_ptr<StoredBlock>> open(std::unique_ptr<File> file, bool with_checksum);

  [[nodiscard]] std::uint64_t size_bytes() const { return whole_.size(); }
  [[nodiscard]] std::optional<std::uint32_t> crc32() const { return crc32_; }
  /// Another descriptor of the file, to be passed on.
  [[nodiscard]] Result<Socket> duplicate_descriptor() const;
  /// `size` bytes from `offset` on, in memory already, so that sending them does not wait for the disk. Fails
  /// when somebody has truncated the file since it was opened; nothing here reads the mapping in user space.
  Result<Slice> chunk(std::uint64_t offset, std::size_t size) const;

 private:
  StoredBlock(std::unique_ptr<File> file, Slice whole, std::optional<std::uint32_t> crc32);

  std::unique_ptr<File> file_;
  Slice whole_;
  std::optional<std::uint32_t> crc32_;
};

class BlockStore {
 public:
  /// Creates the directory where it is missing, takes it for itself, and removes what an interrupted put left
  /// behind.
  static Result<std::unique_ptr<BlockStore>> open(const Environment& environment, std::string directory);

  /// Names have 1 to 200 bytes, none of them '/' or a control character, and do not start with '.'.
  static Status check_name(const std::string& name);

  Result<std::unique_ptr<PendingBlock>> begin_put(const std::string& name, bool with_checksum);
  Result<std::unique_ptr<StoredBlock>> get(const std::string& name, bool with_checksum);
  Status remove(const std::string& name);
  /// The first `most` names behind `after`, in the order of their bytes; `more` says whether there are
  /// others.
  Result<std::vector<std::string>> list(const std::string& after, std::size_t most, bool& more);

 private:
  BlockStore(const Environment& environment, std::string directory, std::unique_ptr<File> lock);

  [[nodiscard]] std::string path_of(const std::string& name) const { return directory_ + "/" + name; }

  const Environment& environment_;
  std::string directory_;
  std::unique_ptr<File> lock_;  // held for as long as the store is open
};

}  // namespace linkspan::blocks
