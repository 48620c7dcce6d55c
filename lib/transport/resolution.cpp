// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/transport/resolution.hpp"

#include <utility>

#include "lib/loop/guarded_call.hpp"
#include "lib/loop/offload.hpp"
#include "linkspan/base/assert.hpp"

namespace linkspan {
namespace {

// Tells whether there is anything to look up.
class Asked final : public Resolver {
 public:
  bool asked = false;

  Result<std::vector<std::string>> resolve(const std::string&) override {
    asked = true;
    return std::vector<std::string>();
  }
};

// For the helper thread, which may have it after the Resolution is gone.
struct Lookup {
  std::string text;
  Resolver& resolver;
  std::optional<Result<std::vector<Endpoint>>> result;
};

}  // namespace

Resolution::Resolution(EventLoop& loop, std::string_view text, Completion completion, Duration timeout)
    : loop_(loop),
      text_(text),
      completion_(std::move(completion)),
      timeout_(loop, [this] { finish(failure(errc::timed_out)); }) {
  LINKSPAN_ASSERT(loop.in_loop_thread(), "a name is resolved on its loop's thread");
  LINKSPAN_ASSERT(active(), "a resolution has a completion");
  start(timeout);
  loop_.await(*this);
}

Resolution::~Resolution() {
  if (active()) finish(failure(errc::cancelled));
}

void Resolution::start(Duration timeout) {
  if (loop_.stopping()) return finish_soon(errc::stopped);
  Asked asked;
  result_ = resolve_endpoints(text_, asked);
  if (!asked.asked) return loop_.defer(*this);
  result_.reset();

  auto lookup = std::make_shared<Lookup>(Lookup{text_, loop_.environment().resolver, {}});
  lookup_ = std::make_unique<Offload>();
  Status started = lookup_->start(
      loop_, Helpers::Pace::slow,
      [lookup] { lookup->result = resolve_endpoints(lookup->text, lookup->resolver); },
      [this, lookup](std::error_code error) {
        finish(error ? Error(error, "resolving " + text_) : std::move(*lookup->result));
      });
  if (started) {
    timeout_.start(timeout);
  } else {
    result_ = Error(started.error().code, "resolving " + text_ + ": " + started.error().detail);
    loop_.defer(*this);
  }
}

void Resolution::finish_soon(errc reason) noexcept {
  if (!active()) return;
  reason_ = reason;
  if (lookup_ != nullptr) lookup_->forget();
  timeout_.cancel();
  loop_.defer(*this);
}

void Resolution::run_deferred() {
  finish(reason_ == errc() ? std::move(*result_) : failure(reason_));
}

Error Resolution::failure(errc reason) const {
  const std::error_code code = make_error_code(reason);
  return {code, "resolving " + text_ + ": " + code.message()};
}

// Nothing of this object is touched after the call: it may be gone.
void Resolution::finish(Result<std::vector<Endpoint>> result) noexcept {
  if (lookup_ != nullptr) lookup_->forget();
  timeout_.cancel();
  ListNode<DeferredTask>::unlink();
  ListNode<PendingWork>::unlink();
  auto call = [completion = std::move(completion_), &result]() mutable { completion(std::move(result)); };
  guarded_call(call, "a completion of a resolution", loop_.counters());
}

}  // namespace linkspan
