// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// A loop that lives on an io_context, which turn() and run() run.
#pragma once

#include <memory>

#include "linkspan/loop/event_loop.hpp"
#include "tests/transport/host.hpp"

namespace linkspan::conformance {

[[nodiscard]] std::unique_ptr<Host> make_asio_guest(EventLoopOptions options);

}  // namespace linkspan::conformance
