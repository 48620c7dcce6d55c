// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The epoll transport: level-triggered, speculative sends, interest changed only when it has to be.
#pragma once

#include <memory>

#include "linkspan/base/result.hpp"
#include "linkspan/loop/engine.hpp"

namespace linkspan {

[[nodiscard]] Result<std::unique_ptr<Engine>> make_epoll_transport(EventLoop& loop);

}  // namespace linkspan
