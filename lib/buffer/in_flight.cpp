// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/buffer/in_flight.hpp"

#include <functional>
#include <string>
#include <string_view>

#include "lib/buffer/buffer_registry.hpp"
#include "linkspan/buffer/buffer_debug.hpp"

namespace linkspan {
namespace {

std::size_t hash_of(const std::byte* data, std::size_t size) noexcept {
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(data), size});
}

}  // namespace

void InFlight::add(const Chain& data, const char* queue, int number) {
  const std::string label = std::string(queue) + " of stream " + std::to_string(number);
  for (const Slice& slice : data) {
    const detail::HolderTrace& trace = detail::TraceAccess::trace(slice);
    const bool readable = trace.kind() != BufferKind::mapped;
    label_buffer(slice, label);
    parts_.push_back({slice.data(), slice.size(), readable ? hash_of(slice.data(), slice.size()) : 0,
                      readable, trace.name()});
  }
}

void InFlight::remove(std::size_t bytes) noexcept {
  removed_ += bytes;
  while (!parts_.empty() && removed_ >= parts_.front().size) {
    const Part part = parts_.pop_front();
    removed_ -= part.size;
    if (part.readable && hash_of(part.data, part.size) != part.hash) {
      detail::broken_rule("memory in flight is not changed: from a write to its completion", part.holder);
    }
  }
}

}  // namespace linkspan
