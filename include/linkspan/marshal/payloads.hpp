// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Payloads: the chains beside a protobuf message. Where a payload belongs, the message holds its ticket: 15
// bytes that stand for it in any field that is declared as payload, be it singular, nested, repeated, a map's
// value or in a oneof. ProtobufMarshaller (protobuf.hpp) puts the payload itself on the wire.
// Not for: bytes that a program wants to look at as a string.
// Cost: 16 bytes and a chain a payload; a ticket fits into std::string without an allocation.
// Threads: a value.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linkspan/base/export.hpp"
#include "linkspan/buffer/chain.hpp"

namespace linkspan {

class LINKSPAN_API Payloads {
 public:
  static constexpr std::size_t kTicketBytes = 15;

  /// Takes a payload; returns what to set as the field's value. An empty payload needs no ticket: the value
  /// is empty, too.
  [[nodiscard]] std::string add(Chain&& payload);

  /// Gives out what a field's value stands for; empty when it was given out already. A value that is not one
  /// of our tickets is the payload itself: it is copied (CopyPlace::below_threshold), as small ones stay in
  /// the message.
  [[nodiscard]] Chain take(std::string_view value);

  /// The payload of a ticket, nullptr when it is none of ours.
  [[nodiscard]] const Chain* find(std::string_view value) const noexcept;

  /// Its place in the order of add(), and the payload at such a place, given out.
  [[nodiscard]] std::optional<std::size_t> index_of(std::string_view ticket) const noexcept;
  [[nodiscard]] Chain take(std::size_t index) noexcept { return std::move(chains_[index]); }

  /// How many were added.
  [[nodiscard]] std::size_t count() const noexcept { return chains_.size(); }
  [[nodiscard]] std::size_t size_bytes() const noexcept;
  void clear() noexcept { chains_.clear(); }

 private:
  static constexpr std::size_t kNonceBytes = 11;

  std::vector<Chain> chains_;
  // Drawn with the first payload. A ticket never leaves the process: a peer cannot make one up.
  std::array<char, kNonceBytes> nonce_{};
};

}  // namespace linkspan
