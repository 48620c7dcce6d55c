// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/frame_codec.hpp"

namespace linkspan {

FrameCodec::~FrameCodec() = default;

}  // namespace linkspan
