// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// FrameCodec: the base of codecs that cut frames out of a stream of bytes. A codec says in next() where the
// next frame ends; everything else is done here: pauses, removal, the peer's end, errors. FrameCodecOf is the
// same for frames that are passed on as something else than a Chain.
// Not for: messages that come whole, such as datagrams.
// Cost: nothing is copied or put together. next() is called again only when the bytes it asked for are there.
// Threads: a handler: the loop's thread only.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "linkspan/base/assert.hpp"
#include "linkspan/base/error.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/channel/channel.hpp"
#include "linkspan/channel/handler.hpp"

namespace linkspan {

/// What next() of a codec says about the front of the input.
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
/// decoded even if the channel stays open. An end in the middle of a frame is errc::truncated. A handler that
/// pauses, closes, or takes the codec out while it is given a frame gets no further one; what is not decoded
/// waits, is dropped, or goes to the codec's successor (HandlerNode::take_unread).
template <class Message, class Out = Message>
class FrameCodecOf : public Codec<Chain, Message, Out> {
 public:
  void on_read(Chain&& bytes) final;
  void on_read_end() final;
  void on_read_resumed() final { decode(); }
  Chain take_unread() final { return std::move(input_); }

  /// What has come and is not decoded yet: of a frame that is incomplete, or while reading is paused.
  [[nodiscard]] const Chain& undecoded() const noexcept { return input_; }

 protected:
  FrameCodecOf() noexcept = default;

  /// `input` is not empty and starts with a frame. What next() remembers of a frame that is incomplete, such
  /// as how far it has searched, it forgets when it returns a frame. A search goes on best with the index of
  /// a slice: a Cursor that skips what it has seen walks over all slices again, for each byte of a slow peer.
  virtual FrameStep next(const Chain& input) = 0;
  /// Passes on the frame that next() has just found, and nothing else.
  virtual void pass_frame(Chain&& frame) = 0;

 private:
  void decode();
  void fail_reading(errc code, std::string_view detail);

  Chain input_;
  std::size_t wanted_bytes_ = 1;  // next() has nothing to say before
  bool ended_ = false;            // the peer's end has come, and was not passed on
  bool failed_ = false;
};

class LINKSPAN_API FrameCodec : public FrameCodecOf<Chain> {
 public:
  ~FrameCodec() override;

 protected:
  FrameCodec() noexcept = default;

 private:
  void pass_frame(Chain&& frame) final { pass(std::move(frame)); }
};

template <class Message, class Out>
void FrameCodecOf<Message, Out>::on_read(Chain&& bytes) {
  if (failed_) return;
  input_.append(std::move(bytes));
  decode();
}

template <class Message, class Out>
void FrameCodecOf<Message, Out>::on_read_end() {
  ended_ = true;
  decode();
}

template <class Message, class Out>
void FrameCodecOf<Message, Out>::decode() {
  // A frame that is passed on may pause reading, close the channel, or take this handler out.
  while (!failed_ && !this->removed() && this->channel().reading()) {
    if (input_.size() < wanted_bytes_) {
      if (!std::exchange(ended_, false)) return;
      if (input_.empty()) {
        this->pass_read_end();
      } else {
        fail_reading(errc::truncated, "the peer ended in the middle of a frame");
      }
      return;
    }
    FrameStep step = next(input_);
    if (step.kind == FrameStep::Kind::error) {
      fail_reading(step.code, step.detail);
      return;
    }
    if (step.kind == FrameStep::Kind::wait || step.size > input_.size()) {
      LINKSPAN_ASSERT(step.size > input_.size(), "a codec waits for more than there is");
      wanted_bytes_ = step.size;
      continue;
    }
    LINKSPAN_ASSERT(step.size != 0 && step.front + step.back <= step.size, "a frame takes input");
    wanted_bytes_ = 1;
    input_.drop_front(step.front);
    Chain frame = input_.split_front(step.size - step.front - step.back);
    input_.drop_front(step.back);
    pass_frame(std::move(frame));
  }
}

template <class Message, class Out>
void FrameCodecOf<Message, Out>::fail_reading(errc code, std::string_view detail) {
  failed_ = true;
  input_.clear();
  this->pass_error(make_error_code(code), detail);
}

}  // namespace linkspan
