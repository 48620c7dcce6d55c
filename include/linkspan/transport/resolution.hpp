// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Resolution: turns "host:port" into endpoints without blocking a loop. The system's lookup runs on the
// loop's helper threads and cannot be interrupted; the Resolution can: it completes at once and leaves the
// lookup to itself.
// Not for: connecting by name; see Client.
// Cost: a job of a helper thread, which a lookup that hangs occupies for as long as it does. Addresses need
// none.
// Threads: its loop's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "linkspan/base/clock.hpp"
#include "linkspan/base/result.hpp"
#include "linkspan/base/unique_function.hpp"
#include "linkspan/loop/event_loop.hpp"
#include "linkspan/loop/timer.hpp"
#include "linkspan/transport/endpoint.hpp"

namespace linkspan {

class Offload;  // lib/loop/offload.hpp

/// One lookup. A resource: destroy it on its loop's thread, before the loop; its completion may do so.
class LINKSPAN_API Resolution final : private DeferredTask, private PendingWork {
 public:
  /// What resolve_endpoints gives: one endpoint or more, best first; or its error; or
  /// errc::timed_out: the timeout has passed;
  /// errc::cancelled: by cancel(), by destruction, or because the loop stops;
  /// errc::stopped: the loop was stopping already;
  /// errc::limit_exceeded: too many jobs wait for the helper threads.
  using Completion = unique_function<void(Result<std::vector<Endpoint>>)>;

  static constexpr Duration kTimeout = std::chrono::seconds(5);

  /// Starts. `text` is what Endpoint::parse reads, or has a name for a host. `completion` runs exactly once:
  /// from the loop, in a later tick even if nothing has to be looked up, or else in the destructor. An
  /// exception that it throws is logged and counted.
  Resolution(EventLoop& loop, std::string_view text, Completion completion, Duration timeout = kTimeout);
  ~Resolution();
  Resolution(const Resolution&) = delete;
  Resolution& operator=(const Resolution&) = delete;

  /// The completion runs in this tick or the next one. Nothing happens if it ran already.
  void cancel() noexcept { finish_soon(errc::cancelled); }
  /// Whether the completion is still to come.
  [[nodiscard]] bool active() const noexcept { return static_cast<bool>(completion_); }

 private:
  void start(Duration timeout);
  void finish_soon(errc reason) noexcept;
  void finish(Result<std::vector<Endpoint>> result) noexcept;
  [[nodiscard]] Error failure(errc reason) const;

  void run_deferred() override;
  void loop_stops() noexcept override { finish_soon(errc::cancelled); }
  void loop_ends() noexcept override { finish(failure(errc::cancelled)); }

  EventLoop& loop_;
  std::string text_;
  Completion completion_;
  std::unique_ptr<Offload> lookup_;
  Timer timeout_;
  errc reason_{};                                        // why it ends early
  std::optional<Result<std::vector<Endpoint>>> result_;  // needed no lookup
};

}  // namespace linkspan
