// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/channel_ref.hpp"

#include <utility>

#include "lib/base/log_exception.hpp"
#include "linkspan/channel/channel.hpp"

namespace linkspan {
namespace detail {

ChannelState::ChannelState(EventLoop& loop_in, std::size_t high_bytes_in, const PendingLimits& limits_in)
    : loop(&loop_in), high_bytes(high_bytes_in), limits(limits_in), budget(loop_in.pending_budget()) {}

bool ChannelState::admits(std::size_t bytes) noexcept {
  const std::size_t queued =
      remote_bytes.load(std::memory_order_relaxed) + local_bytes.load(std::memory_order_relaxed);
  if (queued <= high_bytes) return true;
  // Those that may wait are looked at again on the loop.
  const std::size_t times = limits.when_full == WhenFull::wait ? 2 : 1;
  if (queued + bytes <= times * limits.max_bytes) {
    if (budget == nullptr) return true;
    const std::lock_guard lock(mutex);
    if (loop == nullptr || !budget->exceeded(times)) return true;
    budget->count_refused();
  }
  return false;
}

void ChannelState::charge(std::size_t bytes) noexcept {
  if (bytes > charged_bytes) {
    budget->add(bytes - charged_bytes);
  } else if (bytes < charged_bytes) {
    budget->subtract(charged_bytes - bytes);
  }
  charged_bytes = bytes;
}

RemoteTask::~RemoteTask() = default;

bool RemoteTask::submit(const std::shared_ptr<ChannelState>& state, std::unique_ptr<RemoteTask> task) {
  if (state == nullptr) return false;
  // A refused task is destroyed after the lock is gone: its completion may use the ref again.
  const std::lock_guard lock(state->mutex);
  if (state->loop == nullptr) return false;
  task->put_on_account();
  const bool posted = state->loop->post([state, raw = task.get()] {
    const std::unique_ptr<RemoteTask> owner(raw);
    owner->run(state->channel);
  });
  if (posted) {
    static_cast<void>(task.release());
  } else {
    task->take_off_account();
  }
  return posted;
}

void complete_here(WriteDone& done, std::error_code error) noexcept {
  if (!done) return;
  try {
    done(error);
  } catch (...) {
    log_exception("channel", "a write's completion");
  }
}

RemoteWrite::RemoteWrite(std::shared_ptr<ChannelState> state, std::size_t bytes, WriteDone done)
    : state_(std::move(state)), bytes_(bytes), done_(std::move(done)) {}

void RemoteWrite::put_on_account() noexcept {
  on_account_ = true;
  if (state_->budget != nullptr) state_->budget->add(bytes_);
  const std::size_t remote = state_->remote_bytes.fetch_add(bytes_, std::memory_order_relaxed) + bytes_;
  if (remote + state_->local_bytes.load(std::memory_order_relaxed) > state_->high_bytes) {
    state_->writable.store(false, std::memory_order_relaxed);
  }
}

RemoteWrite::~RemoteWrite() {
  take_off_account();
  complete_here(done_, make_error_code(errc::cancelled));
}

void RemoteWrite::run(Channel* channel) {
  if (channel == nullptr) return;
  take_off_account();
  deliver(*channel, std::exchange(done_, nullptr));
  channel->update_writable();
}

void RemoteWrite::take_off_account() noexcept {
  if (!std::exchange(on_account_, false)) return;
  if (state_->budget != nullptr) state_->budget->subtract(bytes_);
  state_->remote_bytes.fetch_sub(bytes_, std::memory_order_relaxed);
}

// A function to call on the channel.
class RemoteCall final : public RemoteTask {
 public:
  explicit RemoteCall(unique_function<void(Channel&)> function) : function_(std::move(function)) {}
  void run(Channel* channel) override {
    if (channel != nullptr) channel->run([&] { function_(*channel); });
  }

 private:
  unique_function<void(Channel&)> function_;
};

}  // namespace detail

Channel* ChannelRef::here() const noexcept {
  if (state_ == nullptr) return nullptr;
  if (state_->thread.load(std::memory_order_acquire) != std::this_thread::get_id()) return nullptr;
  return state_->channel;
}

bool ChannelRef::post(unique_function<void(Channel&)> task) const {
  return detail::RemoteTask::submit(state_, std::make_unique<detail::RemoteCall>(std::move(task)));
}

void ChannelRef::shutdown_write() const {
  if (Channel* channel = here()) {
    channel->shutdown_write();
  } else {
    static_cast<void>(post([](Channel& there) { there.shutdown_write(); }));
  }
}

void ChannelRef::close(Duration deadline) const {
  if (Channel* channel = here()) {
    channel->close(deadline);
  } else {
    static_cast<void>(post([deadline](Channel& there) { there.close(deadline); }));
  }
}

void ChannelRef::abort() const {
  if (Channel* channel = here()) {
    channel->abort();
  } else {
    static_cast<void>(post([](Channel& there) { there.abort(); }));
  }
}

bool ChannelRef::writable() const noexcept {
  return alive() && state_->writable.load(std::memory_order_relaxed);
}

bool ChannelRef::alive() const noexcept {
  if (state_ == nullptr) return false;
  const std::lock_guard lock(state_->mutex);
  return state_->loop != nullptr;
}

}  // namespace linkspan
