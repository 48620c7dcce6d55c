// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The Asio transport: runs wherever Asio does, on an io_context of its own.
#pragma once

#include <memory>

#include "linkspan/base/result.hpp"
#include "linkspan/loop/engine.hpp"

namespace linkspan {

[[nodiscard]] Result<std::unique_ptr<Engine>> make_asio_transport(EventLoop& loop);

}  // namespace linkspan
