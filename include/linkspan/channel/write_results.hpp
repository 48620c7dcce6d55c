// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Other ways to hear of a write's completion than a callback: a future, and one completion for several
// writes.
//
//   auto [done, result] = write_future();
//   channel.write(std::move(message), std::move(done));     // any thread
//   if (const std::error_code error = result.get()) ...     // not on the channel's loop
//
//   WriteGroup group([](std::error_code first) { ... });
//   for (const ChannelRef& channel : channels) channel.write(message.share(), group.next());
//   group.finish();
//
// Not for: writes whose outcome nobody asks for; they cost nothing without a completion.
// Cost: one allocation for a future, one for a group; and one for each completion, as always.
// Threads: futures as the standard says. A WriteGroup belongs to one thread; its completions may run on any.
#pragma once

#include <cstddef>
#include <future>
#include <memory>
#include <system_error>
#include <utility>

#include "linkspan/base/error.hpp"
#include "linkspan/channel/handler.hpp"

namespace linkspan {

struct WriteFuture {
  WriteDone done;
  std::future<std::error_code> result;
};

/// A completion, and the future that it fulfils. Waiting on the channel's loop waits for ever.
[[nodiscard]] LINKSPAN_API WriteFuture write_future();

/// One completion for several writes, perhaps of several channels.
class LINKSPAN_API WriteGroup {
 public:
  /// `done` is called once, when finish() was called and all writes have completed: with the first error in
  /// the order of their completion, if there was one. On the thread of the last completion, or inside
  /// finish() when all had completed by then.
  explicit WriteGroup(WriteDone done);
  WriteGroup(WriteGroup&&) noexcept = default;
  WriteGroup& operator=(WriteGroup&&) = delete;
  /// finish(), if that was not called.
  ~WriteGroup();

  /// The completion of one write. One that is destroyed without being called counts as cancelled.
  [[nodiscard]] WriteDone next();
  /// There are no more.
  void finish();

 private:
  class State;
  class Part;

  std::shared_ptr<State> state_;
};

}  // namespace linkspan
