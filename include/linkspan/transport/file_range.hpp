// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// FileRange: bytes of an open file, to be sent by Stream::write_file in their place among the chains. The
// kernel takes them from its page cache; the program never sees them.
// Not for: bytes that the program looks at (File::map, File::read_at).
// Cost: a shared_ptr and two integers. Pages that are not in the page cache are read from the disk inside the
// send, and the loop waits meanwhile: bring them in before, on another thread (File::read_at, or File::map
// and populate).
// Threads: a value. The file may be in use by several ranges, streams and loops at once.
#pragma once

#include <cstdint>
#include <memory>

#include "linkspan/loop/files.hpp"

namespace linkspan {

struct FileRange {
  /// Shared with the stream until the kernel has taken the range, or the write has failed: so the file stays
  /// open although its name may be gone. What is written to it meanwhile may be sent or not.
  std::shared_ptr<const File> file;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

}  // namespace linkspan
