// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "local_blocks.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "limits.hpp"

namespace linkspan::blocks {
namespace {

bool has_a_name(const File& file) {
  struct stat about {};
  return ::fstat(file.descriptor(), &about) == 0 && about.st_nlink > 0;
}

}  // namespace

std::optional<MappedBlock> LocalBlocks::find(const std::string& name) {
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  if (found == entries_.end()) return std::nullopt;
  if (!has_a_name(*found->file)) {
    entries_.erase(found);
    return std::nullopt;
  }
  entries_.splice(entries_.begin(), entries_, found);
  return found->block;
}

Result<MappedBlock> LocalBlocks::keep(const std::string& name, OpenedBlock&& opened) {
  std::unique_ptr<File> file = adopt_file(opened.descriptor.release(), name);
  const Result<std::uint64_t> size = file->size();
  if (!size) return size.error();
  if (size.value() != opened.size_bytes) {
    return Error(errc::malformed, "the file of block \"" + name + "\" has " + std::to_string(size.value()) +
                                      " bytes, announced were " + std::to_string(opened.size_bytes));
  }
  Result<Slice> bytes = file->map(0, size.value());
  if (!bytes) return bytes.error();
  if (entries_.size() == kLocalBlocks) entries_.pop_back();
  entries_.push_front({name, std::move(file), {std::move(bytes).value(), opened.crc32}});
  return entries_.front().block;
}

}  // namespace linkspan::blocks
