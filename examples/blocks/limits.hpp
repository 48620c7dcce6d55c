// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The limits of the block service. Client and server have to agree on the frame size, nothing else.
#pragma once

#include <cstddef>

#include "linkspan/base/clock.hpp"

namespace linkspan::blocks {

inline constexpr std::size_t kMinChunkBytes = 4096;
inline constexpr std::size_t kMaxChunkBytes = std::size_t{16} << 20;
/// A chunk and what a message needs besides.
inline constexpr std::size_t kMaxFrameBytes = kMaxChunkBytes + 4096;

/// Bytes of one connection on their way between a loop and the disk; at least two chunks are always allowed.
inline constexpr std::size_t kFileWindowBytes = std::size_t{8} << 20;

/// The file thread reports what it has written in pieces of this size: each report wakes a loop.
inline constexpr std::size_t kReportBytes = kFileWindowBytes / 4;

/// Names in one reply to a list; with names of 200 bytes far below a frame.
inline constexpr std::size_t kNamesMost = 1000;

/// Blocks that a client moves at once.
inline constexpr std::size_t kOperationsAtOnce = 8;

/// Blocks that a client with `local` keeps mapped, each with a descriptor.
inline constexpr std::size_t kLocalBlocks = 64;

/// How long what runs may go on after SIGINT or SIGTERM.
inline constexpr Duration kStopDeadline = std::chrono::seconds(10);

}  // namespace linkspan::blocks
