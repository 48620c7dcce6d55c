// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// FrameCodec: the base of codecs that cut frames out of a stream of bytes. A codec says in next() where the
// next frame ends; everything else is done here: pauses, removal, the peer's end, errors.
// Not for: messages that come whole, such as datagrams.
// Cost: nothing is copied or put together. next() is called again only when the bytes it asked for are there.
// Threads: a handler: the loop's thread only.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "linkspan/base/error.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/channel/handler.hpp"

namespace linkspan {

/// What FrameCodec::next() says about the front of the input.
struct FrameStep {
  enum class Kind { wait, frame, error };

  /// No frame yet: call again when the input has at least `size` bytes.
  [[nodiscard]] static FrameStep wait(std::size_t size) { return {Kind::wait, size, 0, 0, {}, {}}; }
  /// The first `size` bytes are a frame; of these the first `front` and the last `back` are not passed on.
  [[nodiscard]] static FrameStep frame(std::size_t size, std::size_t front = 0, std::size_t back = 0) {
    return {Kind::frame, size, front, back, {}, {}};
  }
  /// The input breaks a rule or a limit, which `detail` names.
  [[nodiscard]] static FrameStep error(errc code, std::string detail) {
    return {Kind::error, 0, 0, 0, code, std::move(detail)};
  }

  Kind kind;
  std::size_t size;
  std::size_t front;
  std::size_t back;
  errc code;
  std::string detail;
};

/// After an error in what was received it reads no further: the rest of the input is released, and nothing is
/// decoded even if the channel stays open. An end in the middle of a frame is errc::truncated.
class LINKSPAN_API FrameCodec : public Codec<Chain, Chain> {
 public:
  ~FrameCodec() override;

  void on_read(Chain&& bytes) final;
  void on_read_end() final;
  void on_read_resumed() final;
  Chain take_unread() final;

 protected:
  FrameCodec() noexcept = default;

  /// `input` is not empty and starts with a frame. What next() remembers of a frame that is incomplete, such
  /// as how far it has searched, it forgets when it returns a frame. A search goes on best with the index of
  /// a slice: a Cursor that skips what it has seen walks over all slices again, for each byte of a slow peer.
  virtual FrameStep next(const Chain& input) = 0;

 private:
  void decode();
  void fail_reading(errc code, std::string_view detail);

  Chain input_;
  std::size_t wanted_bytes_ = 1;  // next() has nothing to say before
  bool ended_ = false;            // the peer's end has come, and was not passed on
  bool failed_ = false;
};

}  // namespace linkspan
