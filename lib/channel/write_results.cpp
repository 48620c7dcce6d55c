// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/write_results.hpp"

#include <mutex>

#include "lib/base/log_exception.hpp"
#include "linkspan/base/assert.hpp"

namespace linkspan {

WriteFuture write_future() {
  std::promise<std::error_code> promise;
  std::future<std::error_code> result = promise.get_future();
  return {[promise = std::move(promise)](std::error_code error) mutable { promise.set_value(error); },
          std::move(result)};
}

// --- WriteGroup -------------------------------------------------------------------------------------------

class WriteGroup::State {
 public:
  explicit State(WriteDone done) : done_(std::move(done)) {}

  void add() {
    const std::lock_guard lock(mutex_);
    ++open_;
  }
  void complete(std::error_code error) {
    {
      const std::lock_guard lock(mutex_);
      if (error && !first_) first_ = error;
      if (--open_ != 0) return;
    }
    if (done_) done_(first_);  // nobody else is left
  }

  /// In a destructor.
  void complete_guarded(std::error_code error) noexcept {
    try {
      complete(error);
    } catch (...) {
      log_exception("channel", "the completion of a group of writes");
    }
  }

 private:
  std::mutex mutex_;
  std::size_t open_ = 1;  // writes, and the group until it is finished
  std::error_code first_;
  WriteDone done_;
};

// One write's share: completes it once, whatever happens.
class WriteGroup::Part {
 public:
  explicit Part(std::shared_ptr<State> state) : state_(std::move(state)) { state_->add(); }
  Part(Part&&) noexcept = default;
  Part& operator=(Part&&) = delete;
  ~Part() {
    if (state_ != nullptr) state_->complete_guarded(make_error_code(errc::cancelled));
  }
  void operator()(std::error_code error) { std::exchange(state_, nullptr)->complete(error); }

 private:
  std::shared_ptr<State> state_;
};

WriteGroup::WriteGroup(WriteDone done) : state_(std::make_shared<State>(std::move(done))) {}

WriteGroup::~WriteGroup() {
  if (state_ != nullptr) state_->complete_guarded({});
}

WriteDone WriteGroup::next() {
  LINKSPAN_ASSERT(state_ != nullptr, "a group that is finished has no more writes");
  return Part(state_);
}

void WriteGroup::finish() {
  LINKSPAN_ASSERT(state_ != nullptr, "a group is finished once");
  std::exchange(state_, nullptr)->complete({});
}

}  // namespace linkspan
