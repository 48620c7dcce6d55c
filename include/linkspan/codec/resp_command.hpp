// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// RespCommandDecoder: the commands that clients of Redis send, for a server: arrays of bulk strings, and
// lines as people type them. Replies are written with a RespWriter, and go past it.
// Not for: replies; see RespReplyDecoder.
// Cost: nothing is copied or put together, and nothing allocated for a command of few arguments; a length is
// looked at once, however the bytes arrive.
// Threads: a handler: the loop's thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "linkspan/buffer/chain.hpp"
#include "linkspan/codec/frame_codec.hpp"
#include "linkspan/codec/resp_input.hpp"

namespace linkspan {

/// Each is checked before anything is kept for what it bounds.
struct RespCommandLimits {
  std::size_t max_arguments = std::size_t{1} << 20;
  std::size_t max_bulk_bytes = std::size_t{512} << 20;   ///< of one argument; Redis: proto-max-bulk-len
  std::size_t max_inline_bytes = std::size_t{64} << 10;  ///< of a line that is a command
  /// Of one command as it is on the wire, so also of what is kept of one that is incomplete. Redis:
  /// client-query-buffer-limit.
  std::size_t max_command_bytes = std::size_t{1} << 30;

  RespCommandLimits() = default;
};

/// A command and its arguments, the first of which is its name. It keeps the memory alive that they are in.
class RespCommand {
 public:
  RespCommand() noexcept = default;

  /// Arguments, the name included; never 0 for a command that was decoded.
  [[nodiscard]] std::size_t size() const noexcept { return arguments_.size(); }
  [[nodiscard]] std::size_t argument_bytes(std::size_t index) const noexcept { return at(index).size; }

  /// Valid as long as the command is. An argument that lies across slices is put together first
  /// (CopyPlace::framing), which may throw std::bad_alloc: take large ones with chain().
  [[nodiscard]] std::string_view text(std::size_t index) {
    const Argument& argument = at(index);
    if (argument.data == nullptr) [[unlikely]]
      return put_together(index);
    return {argument.data, argument.size};
  }
  /// Shares the memory.
  [[nodiscard]] Chain chain(std::size_t index) const {
    return bytes_.share(at(index).offset, at(index).size);
  }

  [[nodiscard]] std::size_t size_bytes() const noexcept { return bytes_.size(); }

 private:
  friend class RespCommandDecoder;

  struct Argument {
    const char* data;  // nullptr: across slices
    std::size_t size;
    std::size_t offset;  // in bytes_
  };

  [[nodiscard]] const Argument& at(std::size_t index) const noexcept {
    LINKSPAN_ASSERT(index < arguments_.size(), "an index is below size()");
    return arguments_[index];
  }
  [[nodiscard]] LINKSPAN_API std::string_view put_together(std::size_t index);
  void clear() noexcept;

  Chain bytes_;
  Chain together_;  // arguments that were put together
  std::vector<Argument> arguments_;
};

/// Errors that it passes on: limit_exceeded, malformed, truncated (the peer ended in a command). Where Redis
/// has a text for one, the detail is that text ("Protocol error: invalid bulk length"), so that it can be
/// the reply.
class LINKSPAN_API RespCommandDecoder final : public FrameCodecOf<RespCommand, Chain> {
 public:
  explicit RespCommandDecoder(const RespCommandLimits& limits = {}) noexcept : limits_(limits) {}
  ~RespCommandDecoder() override;

  /// As Redis with peers that have not authenticated: at most 10 arguments of at most 16 KiB.
  void restrict_unauthenticated(bool restricted) noexcept { restricted_ = restricted; }

 private:
  FrameStep next(const Chain& input) override;
  void pass_frame(Chain&& frame) override;
  [[nodiscard]] FrameStep begin(const Chain& input);
  [[nodiscard]] FrameStep next_inline(const Chain& input);
  [[nodiscard]] FrameStep next_bulk(const Chain& input);
  [[nodiscard]] bool split_line(std::string_view line);

  RespCommandLimits limits_;
  detail::RespInput position_;
  RespCommand command_;  // that is being decoded; its memory for arguments serves all
  std::string line_;     // the arguments of one that came as a line, joined
  std::int64_t arguments_left_ = kUnknown;
  std::int64_t bulk_bytes_ = kUnknown;  // of the argument whose length has come
  bool restricted_ = false;

  static constexpr std::int64_t kUnknown = -1;
};

}  // namespace linkspan
