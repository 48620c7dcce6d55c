// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Writes a message as protobuf does, byte for byte, but references large strings that protobuf copies:
// repeated ones, a map's values, extensions and unknown fields.
#pragma once

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message.h>

#include "lib/marshal/protobuf_shape.hpp"

namespace linkspan::detail {

/// After message.ByteSizeLong(), which notes the sizes of all messages inside. `output` references what its
/// stream allows to, of at least `reference_bytes`: messages that are smaller are left to protobuf. So are
/// message sets, and maps from strings to numbers. Keys of maps are always copied (CopyPlace::marshal):
/// protobuf gives out copies of them only.
void write_referencing(const google::protobuf::Message& message, const MessageShape& shape,
                       std::size_t reference_bytes, google::protobuf::io::CodedOutputStream& output);

}  // namespace linkspan::detail
