// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// map_file: a file, or a part of it, as a Slice over a read-only shared mapping.
// Not for: small files (a mapping costs several microseconds), and not for reading in user space what
// somebody else may truncate: touching a page past the end raises SIGBUS. Sending such a slice only fails
// with EFAULT.
// Cost: mmap, and munmap on the thread that drops the last slice; pages fault in on first touch.
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "linkspan/base/result.hpp"
#include "linkspan/buffer/slice.hpp"

namespace linkspan {

/// Maps `size` bytes from `offset` on (any offset) of an open file; the descriptor may be closed afterwards.
/// Fails when the range is not inside the file now, or when the system refuses. `size` 0 gives an empty
/// Slice.
[[nodiscard]] LINKSPAN_API Result<Slice> map_file(int file, std::uint64_t offset, std::size_t size);

}  // namespace linkspan
