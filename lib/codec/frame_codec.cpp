// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/frame_codec.hpp"

#include <utility>

#include "linkspan/base/assert.hpp"
#include "linkspan/channel/channel.hpp"

namespace linkspan {

FrameCodec::~FrameCodec() = default;

void FrameCodec::on_read(Chain&& bytes) {
  if (failed_) return;
  input_.append(std::move(bytes));
  decode();
}

void FrameCodec::on_read_end() {
  ended_ = true;
  decode();
}

void FrameCodec::on_read_resumed() {
  decode();
}

Chain FrameCodec::take_unread() {
  return std::move(input_);
}

void FrameCodec::decode() {
  // A frame that is passed on may pause reading, close the channel, or take this handler out.
  while (!failed_ && !removed() && channel().reading()) {
    if (input_.size() < wanted_bytes_) {
      if (!std::exchange(ended_, false)) return;
      if (input_.empty()) {
        pass_read_end();
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
    pass(std::move(frame));
  }
}

void FrameCodec::fail_reading(errc code, std::string_view detail) {
  failed_ = true;
  input_.clear();
  pass_error(make_error_code(code), detail);
}

}  // namespace linkspan
