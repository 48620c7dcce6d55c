// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The writes of a channel that do not enter the pipeline at once: see PendingLimits and WriteToken.
#include <utility>

#include "linkspan/base/log.hpp"
#include "linkspan/channel/channel.hpp"

namespace linkspan {

// --- WriteToken -------------------------------------------------------------------------------------------

WriteToken::WriteToken(ChannelRef channel) : state_(std::make_shared<State>()) {
  state_->channel = std::move(channel);
}

bool WriteToken::cancel() const {
  if (state_ == nullptr) return false;
  Stage stage = Stage::waits;
  if (!state_->stage.compare_exchange_strong(stage, Stage::cancelled, std::memory_order_acq_rel))
    return false;
  // Without the sweep the write would complete in its turn.
  static_cast<void>(state_->channel.post([](Channel& channel) {
    if (channel.held_writes_ != nullptr) channel.held_writes_->sweep_cancelled();
    channel.held_ = channel.held_writes_ != nullptr && !channel.held_writes_->empty();
    channel.update_writable();
  }));
  return true;
}

bool WriteToken::start() const noexcept {
  Stage stage = Stage::waits;
  return state_ == nullptr ||
         state_->stage.compare_exchange_strong(stage, Stage::started, std::memory_order_acq_rel);
}

bool WriteToken::cancelled() const noexcept {
  return state_ != nullptr && state_->stage.load(std::memory_order_acquire) == Stage::cancelled;
}

// --- HeldWrites -------------------------------------------------------------------------------------------

namespace detail {

HeldWrite::~HeldWrite() = default;

HeldWrites::HeldWrites(Channel& channel)
    : channel_(channel), deadline_(channel.loop(), [this] { deadline_passed(); }) {}

void HeldWrites::take_in(std::unique_ptr<HeldWrite> write, std::error_code refusal) {
  const PendingLimits& limits = channel_.limits_;
  if (!refusal && (writes_.size() >= limits.max_waiting ||
                   (!writes_.empty() && bytes_ + write->bytes_ > limits.max_bytes))) {
    refusal = make_error_code(errc::limit_exceeded);
  }
  if (refusal) {
    const bool cancelled = !write->token_.start();
    if (cancelled) refusal = make_error_code(errc::cancelled);
    if (write->done_) channel_.complete_later(std::move(write->done_), refusal);
    return;
  }
  write->since_ = channel_.loop().now();
  bytes_ += write->bytes_;
  writes_.push_back(std::move(write));
  if (!deadline_.active()) restart_timer();
}

bool HeldWrites::start(bool all) {
  while (!writes_.empty() && (all || channel_.writable_) && !channel_.closed_) {
    const std::unique_ptr<HeldWrite> write = take(0);
    if (write->token_.start()) {
      write->start(channel_, std::move(write->done_));
    } else if (write->done_) {
      channel_.complete_later(std::move(write->done_), make_error_code(errc::cancelled));
    }
  }
  restart_timer();
  return writes_.empty();
}

void HeldWrites::sweep_cancelled() {
  for (std::size_t i = 0; i < writes_.size();) {
    if (!writes_[i]->token_.cancelled()) {
      ++i;
      continue;
    }
    const std::unique_ptr<HeldWrite> write = take(i);
    if (write->done_) channel_.complete_later(std::move(write->done_), make_error_code(errc::cancelled));
  }
  restart_timer();
}

void HeldWrites::fail(std::error_code error) {
  // Completions that write again get their answer from the channel, which is closed.
  while (!writes_.empty()) {
    std::unique_ptr<HeldWrite> write = take(0);
    const std::error_code reason = write->token_.start() ? error : make_error_code(errc::cancelled);
    WriteDone done = std::move(write->done_);
    write.reset();  // its memory goes first
    if (done) channel_.run([&] { done(reason); });
  }
  deadline_.cancel();
}

std::unique_ptr<HeldWrite> HeldWrites::take(std::size_t index) {
  std::unique_ptr<HeldWrite> write = std::move(writes_[index]);
  writes_.erase(writes_.begin() + static_cast<std::ptrdiff_t>(index));
  bytes_ -= write->bytes_;
  return write;
}

void HeldWrites::deadline_passed() {
  const TimePoint now = channel_.loop().now();
  while (!writes_.empty() && now - writes_.front()->since_ >= channel_.limits_.max_wait) {
    const std::unique_ptr<HeldWrite> write = take(0);
    const bool cancelled = !write->token_.start();
    if (write->done_) {
      channel_.complete_later(std::move(write->done_),
                              make_error_code(cancelled ? errc::cancelled : errc::timed_out));
    }
  }
  channel_.held_ = !writes_.empty();
  channel_.update_writable();
  restart_timer();
}

void HeldWrites::restart_timer() {
  if (writes_.empty()) {
    deadline_.cancel();
  } else {
    deadline_.start(channel_.limits_.max_wait - (channel_.loop().now() - writes_.front()->since_));
  }
}

}  // namespace detail

// --- Channel: what does not happen to every message -------------------------------------------------------

Channel::Admission Channel::admit(std::size_t bytes) noexcept {
  if (closed_ || closing_) return Admission::now;  // which says so
  const bool waits = limits_.when_full == WhenFull::wait;
  if (held_) return Admission::wait;  // in order
  PendingBudget* const budget = loop_.pending_budget();
  const bool over_budget = budget != nullptr && budget->exceeded();
  if (!over_budget && queued_bytes() + bytes <= limits_.max_bytes && has_room()) return Admission::now;
  if (over_budget && !waits) budget->count_refused();
  return waits ? Admission::wait : Admission::refuse;
}

void Channel::hold(Admission admission, std::unique_ptr<detail::HeldWrite> write) {
  if (held_writes_ == nullptr) held_writes_ = std::make_unique<detail::HeldWrites>(*this);
  std::error_code refusal;
  if (closed_) {
    refusal = make_error_code(errc::cancelled);
  } else if (admission == Admission::refuse) {
    refusal = make_error_code(errc::limit_exceeded);
  }
  held_writes_->take_in(std::move(write), refusal);
  if (admission == Admission::now && !closed_) {
    start_held(true);
    return;
  }
  held_ = !held_writes_->empty();
  if (!held_) return;
  update_writable();
  loop_.defer(*this);
}

void Channel::flush(WriteDone done) {
  if (held_) {
    hold(Admission::wait, make_held(detail::FlushMark(), std::move(done), {}));
  } else {
    complete(std::move(done), write_position());
  }
  flush();
}

void Channel::start_held(bool all) {
  held_ = !held_writes_->start(all);
  update_writable();
}

void Channel::start_write(FileRange&& range, WriteDone&& done) {
  if (closed_ || !may_send()) {
    if (done) complete_later(std::move(done), make_error_code(errc::cancelled));
    return;
  }
  send_range(std::move(range), as_event(std::move(done)));
  update_writable();
}

void Channel::start_write(WithDescriptors&& message, WriteDone&& done) {
  if (closed_ || !may_send()) {
    if (done) complete_later(std::move(done), make_error_code(errc::cancelled));
    return;
  }
  send_descriptors(std::move(message), as_event(std::move(done)));
  update_writable();
}

WriteDone Channel::as_event(WriteDone done) {
  if (!done) return done;
  return [this, done = std::move(done)](std::error_code error) mutable { run([&] { done(error); }); };
}

void Channel::receive_into(Block&& memory, std::size_t size, ReceiveCompletion completion) {
  if (active_) {
    do_receive_into(std::move(memory), size,
                    [this, completion = std::move(completion)](std::error_code error, Block&& filled,
                                                               std::size_t bytes) mutable {
                      run([&] { completion(error, std::move(filled), bytes); });
                    });
    return;
  }
  WriteDone later = [memory = std::move(memory), completion = std::move(completion)](
                        std::error_code error) mutable { completion(error, std::move(memory), 0); };
  complete_later(std::move(later), make_error_code(closed_ ? errc::cancelled : errc::unavailable));
}

// Whether bytes of the pipeline may be queued, when the channel is closed or above its high watermark.
bool Channel::may_send() noexcept {
  if (closed_ || writable_ || closing_) return !closed_;  // what is behind refuses it when it closes
  PendingBudget* const budget = loop_.pending_budget();
  const bool over_budget = budget != nullptr && budget->exceeded(2);
  if (!over_budget && unsent_bytes() / 2 <= limits_.max_bytes) return true;
  if (over_budget) budget->count_aborted();
  if (!reason_) reason_ = make_error_code(errc::limit_exceeded);
  log(LogLevel::warning, "channel",
      over_budget ? "a channel is aborted: the budget of pending bytes was exceeded twofold"
                  : "a channel is aborted: its handlers have queued twice PendingLimits::max_bytes");
  abort();
  return false;
}

}  // namespace linkspan
