// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The Asio transport: runs wherever Asio does. The calls on sockets are those of every readiness transport;
// Asio waits. What Asio calls to do so is its own business and not counted in LoopCounters::system_calls.
#pragma once

#include <memory>

#include "linkspan/base/result.hpp"
#include "linkspan/loop/engine.hpp"

namespace linkspan {

[[nodiscard]] Result<std::unique_ptr<Engine>> make_asio_transport(EventLoop& loop);

}  // namespace linkspan
