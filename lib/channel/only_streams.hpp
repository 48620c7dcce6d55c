// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What a datagram channel answers to calls that only streams have: errc::unavailable, to the completion, or
// else as an error event.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "linkspan/channel/channel.hpp"

namespace linkspan {

inline void refuse_on_datagrams(Channel& channel, WriteDone done, std::string_view what) {
  const std::error_code error = make_error_code(errc::unavailable);
  if (done) return channel.complete_later(std::move(done), error);
  channel.fail(error, "a datagram channel sends no " + std::string(what));
}

inline void refuse_on_datagrams(Channel& channel, Block&& memory, ReceiveCompletion completion) {
  WriteDone later = [memory = std::move(memory), completion = std::move(completion)](
                        std::error_code error) mutable { completion(error, std::move(memory), 0); };
  channel.complete_later(std::move(later), make_error_code(errc::unavailable));
}

}  // namespace linkspan
