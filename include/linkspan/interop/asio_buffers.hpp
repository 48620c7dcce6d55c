// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Chains, slices and blocks as Asio's buffers: asio::write(socket, asio_buffers(chain)) sends a chain without
// copying it, asio::read(socket, asio_buffer(block)) receives into a block.
// Not for: Linkspan's own streams and channels, which take chains as they are.
// Cost: 8 bytes; an iterator looks the slice up in the chain. Header-only; the dependency linkspan-asio has
// the definitions that it expects.
// Threads: as those of the chain.
#pragma once

#include <version>  // the first: what Asio finds in the standard library depends on it

#include <asio/buffer.hpp>
#include <cstddef>
#include <iterator>

#include "linkspan/buffer/block.hpp"
#include "linkspan/buffer/chain.hpp"

namespace linkspan {

/// A ConstBufferSequence over the slices of a chain. The chain has to stay alive, and as it is, until the
/// operation that was given the sequence has completed.
class AsioBuffers {
 public:
  class Iterator {
   public:
    using value_type = asio::const_buffer;
    using reference = asio::const_buffer;
    using pointer = void;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::bidirectional_iterator_tag;

    Iterator() noexcept = default;
    Iterator(const Chain* chain, std::size_t index) noexcept : chain_(chain), index_(index) {}

    asio::const_buffer operator*() const noexcept {
      const Slice& slice = (*chain_)[index_];
      return {slice.data(), slice.size()};
    }
    Iterator& operator++() noexcept {
      ++index_;
      return *this;
    }
    Iterator operator++(int) noexcept { return {chain_, index_++}; }
    Iterator& operator--() noexcept {
      --index_;
      return *this;
    }
    Iterator operator--(int) noexcept { return {chain_, index_--}; }
    friend bool operator==(const Iterator&, const Iterator&) noexcept = default;

   private:
    const Chain* chain_ = nullptr;
    std::size_t index_ = 0;
  };
  using value_type = asio::const_buffer;
  using const_iterator = Iterator;

  explicit AsioBuffers(const Chain& chain) noexcept : chain_(&chain) {}

  [[nodiscard]] Iterator begin() const noexcept { return {chain_, 0}; }
  [[nodiscard]] Iterator end() const noexcept { return {chain_, chain_->slice_count()}; }

 private:
  const Chain* chain_;
};

[[nodiscard]] inline AsioBuffers asio_buffers(const Chain& chain) noexcept {
  return AsioBuffers(chain);
}
AsioBuffers asio_buffers(Chain&& chain) = delete;  // would be gone before it is read

/// The bytes of a slice, which has to outlive the operation.
[[nodiscard]] inline asio::const_buffer asio_buffer(const Slice& slice) noexcept {
  return {slice.data(), slice.size()};
}
asio::const_buffer asio_buffer(Slice&& slice) = delete;

/// What can be written of a block, which has to outlive the operation; freeze() what was received.
[[nodiscard]] inline asio::mutable_buffer asio_buffer(Block& block) noexcept {
  return {block.data(), block.size()};
}

}  // namespace linkspan
