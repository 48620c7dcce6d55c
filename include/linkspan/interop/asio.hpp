// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Coroutines and Asio's completion tokens on Linkspan's loops, all of it: LoopExecutor, TaskScope,
// AsyncChannel with its servers and clients, requests, and what loops do besides.
// Not for: handlers and callbacks; they need none of these headers.
// Cost: time to compile; include the single headers where that matters. Header-only but for a part of the
// library that knows nothing of Asio; the dependency linkspan-asio has the definitions that it expects.
// Threads: see each.
#pragma once

#include "linkspan/interop/async_channel.hpp"   // IWYU pragma: export
#include "linkspan/interop/async_files.hpp"     // IWYU pragma: export
#include "linkspan/interop/async_loop.hpp"      // IWYU pragma: export
#include "linkspan/interop/async_requests.hpp"  // IWYU pragma: export
#include "linkspan/interop/async_server.hpp"    // IWYU pragma: export
#include "linkspan/interop/loop_executor.hpp"   // IWYU pragma: export
#include "linkspan/interop/task_scope.hpp"      // IWYU pragma: export
