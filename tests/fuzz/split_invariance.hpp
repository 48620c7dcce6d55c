// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Bytes through a pipeline, at once and in pieces: the events are the same. The first byte of an input
// chooses the pipeline, the second the size of the pieces.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "linkspan/channel/embedded_channel.hpp"

namespace linkspan::fuzz {

/// `add(channel, which, seen)` adds handlers that write events to `seen`; false if it could not.
template <class Add>
std::string events_of(Add add, std::uint8_t which, std::string_view bytes, std::size_t piece) {
  std::string seen;
  EmbeddedChannel channel;
  if (!add(channel, which, seen)) std::abort();
  channel.open();
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), piece))) {
    channel.receive(bytes.substr(0, piece));
  }
  channel.receive_end();
  return seen;
}

template <class Add>
int check_split_invariance(const std::uint8_t* data, std::size_t size, Add add) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (events_of(add, data[0], bytes, bytes.size() + 1) !=
      events_of(add, data[0], bytes, std::size_t{1} + data[1] % 16)) {
    std::abort();
  }
  return 0;
}

}  // namespace linkspan::fuzz
