// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What writes of ChannelRefs, and those that wait in front of a pipeline, are made of: the templates that
// need both Channel and ChannelRef. channel.hpp includes it.
// Not for: inclusion by itself, which is including channel.hpp.
// Cost: one allocation a write that is posted or waits.
// Threads: see ChannelRef.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "linkspan/channel/channel.hpp"

namespace linkspan {
namespace detail {

template <class T>
class RemoteWriteOf final : public RemoteWrite {
 public:
  RemoteWriteOf(std::shared_ptr<ChannelState> state, T&& message, WriteDone done, WriteToken token)
      : RemoteWrite(std::move(state), message_bytes(message), std::move(done)),
        message_(std::move(message)),
        token_(std::move(token)) {}

 private:
  void deliver(Channel& channel, WriteDone done) override {
    if (!token_) return channel.write(std::move(message_), std::move(done));
    channel.hold(channel.closed_ || channel.closing_ ? Channel::Admission::now : Channel::Admission::wait,
                 Channel::make_held(std::move(message_), std::move(done), std::move(token_)));
  }

  T message_;
  WriteToken token_;
};

template <class T>
class HeldWriteOf final : public HeldWrite {
 public:
  HeldWriteOf(T&& message, WriteDone done, WriteToken token)
      : HeldWrite(message_bytes(message), std::move(done), std::move(token)), message_(std::move(message)) {}

 private:
  void start(Channel& channel, WriteDone done) override {
    channel.start_write(std::move(message_), std::move(done));
  }

  T message_;
};

}  // namespace detail

template <class T>
requires(!std::is_lvalue_reference_v<T>) void ChannelRef::write(T&& message, WriteDone done) const {
  if (Channel* channel = here()) {
    channel->write(std::move(message), std::move(done));
  } else {
    write_remotely(std::move(message), std::move(done), {});
  }
}

template <class T>
requires(!std::is_lvalue_reference_v<T>) WriteToken ChannelRef::write_cancellable(T&& message, WriteDone done)
const {
  if (Channel* channel = here()) return channel->write_cancellable(std::move(message), std::move(done));
  WriteToken token(*this);
  write_remotely(std::move(message), std::move(done), token);
  return token;
}

template <class T>
void ChannelRef::write_remotely(T&& message, WriteDone done, WriteToken token) const {
  if (state_ != nullptr && !state_->admits(message_bytes(message))) {
    detail::complete_here(done, make_error_code(errc::limit_exceeded));
    return;
  }
  detail::RemoteTask::submit(state_, std::make_unique<detail::RemoteWriteOf<T>>(
                                         state_, std::move(message), std::move(done), std::move(token)));
}

}  // namespace linkspan
