// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The payload fields of Archive, wherever they are.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "archive.pb.h"
#include "linkspan/marshal/protobuf.hpp"

namespace linkspan::test {

using VisitPayload = std::function<void(std::string&)>;

inline void each_payload(Archive& archive, const VisitPayload& visit);

inline void each_payload(Archive::Part& part, const VisitPayload& visit) {
  if (!part.data().empty()) visit(*part.mutable_data());
  if (part.has_inner()) each_payload(*part.mutable_inner(), visit);
}

/// The payload fields that are set, wherever they are.
inline void each_payload(Archive& archive, const VisitPayload& visit) {
  if (!archive.lead().empty()) visit(*archive.mutable_lead());
  if (archive.has_first()) each_payload(*archive.mutable_first(), visit);
  for (Archive::Part& part : *archive.mutable_parts()) each_payload(part, visit);
  for (std::string& piece : *archive.mutable_pieces()) visit(piece);
  for (auto& [name, part] : *archive.mutable_index()) each_payload(part, visit);
  for (auto& [name, blob] : *archive.mutable_blobs()) visit(blob);
  if (archive.has_direct()) visit(*archive.mutable_direct());
  if (archive.has_part()) each_payload(*archive.mutable_part(), visit);
  if (archive.has_maybe()) visit(*archive.mutable_maybe());
  if (!archive.tail().empty()) visit(*archive.mutable_tail());
}

/// Turns payloads into strings.
inline Archive without_payloads(Envelope<Archive>&& envelope) {
  each_payload(envelope.message,
               [&](std::string& value) { value = envelope.payloads.take(value).to_string(); });
  return std::move(envelope.message);
}

}  // namespace linkspan::test
