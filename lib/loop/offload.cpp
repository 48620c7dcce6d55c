// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/loop/offload.hpp"

#include <mutex>
#include <utility>

#include "lib/base/log_exception.hpp"
#include "linkspan/base/assert.hpp"

namespace linkspan {

struct Offload::Link {
  std::mutex mutex;
  EventLoop* loop;  // guarded; while it is set, the loop exists
  Done done;        // of the loop's thread
  std::error_code error;
};

Status Offload::start(EventLoop& loop, Helpers::Pace pace, unique_function<void()> work, Done done) {
  LINKSPAN_ASSERT(link_ == nullptr, "one piece of work at a time");
  auto link = std::make_shared<Link>();
  link->loop = &loop;
  link->done = std::move(done);
  EventLoop::PreparedTask report([link] {
    if (Done call = std::move(link->done)) call(link->error);
  });
  Status submitted = loop.options().helpers->submit(
      [link, report = std::move(report), work = std::move(work)](std::error_code not_begun) mutable {
        link->error = not_begun;
        try {
          if (!not_begun) work();
        } catch (...) {
          log_exception("loop", "work on a helper thread");
          link->error = make_error_code(errc::handler_failed);
        }
        work.reset();  // what it holds is the loop's alone when that hears of its end
        const std::lock_guard lock(link->mutex);
        if (link->loop != nullptr) std::move(report).post(*link->loop);
      },
      pace);
  if (submitted) link_ = std::move(link);
  return submitted;
}

void Offload::forget() noexcept {
  if (link_ == nullptr) return;
  {
    const std::lock_guard lock(link_->mutex);
    link_->loop = nullptr;
  }
  link_->done.reset();
  link_.reset();
}

}  // namespace linkspan
