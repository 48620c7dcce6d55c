// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What other parts of a build with -Dbuffer_debug=true need from the registry of live buffers.
#pragma once

#include "linkspan/buffer/buffer_trace.hpp"
#include "linkspan/buffer/slice.hpp"

namespace linkspan::detail {

/// The trace of what holds a slice's memory.
struct TraceAccess {
  static const HolderTrace& trace(const Slice& slice) noexcept { return slice.storage_.trace(); }
};

#ifdef LINKSPAN_BUFFER_DEBUG
/// Aborts with a rule, where it was broken, and all that is known about a holder and its buffer.
[[noreturn]] void broken_rule(const char* rule, HolderName holder) noexcept;
#endif

}  // namespace linkspan::detail
