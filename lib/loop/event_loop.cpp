// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/loop/event_loop.hpp"

#include <unistd.h>

#include <algorithm>

#include "lib/loop/busy_poll.hpp"
#include "lib/loop/guarded_call.hpp"
#include "lib/loop/timer_wheel.hpp"
#include "linkspan/base/assert.hpp"
#include "linkspan/base/log.hpp"
#include "linkspan/loop/async_files.hpp"
#include "linkspan/loop/timer.hpp"

namespace linkspan {

Engine::~Engine() = default;
LoopCompanion::~LoopCompanion() = default;

struct EventLoop::PostedTask {
  unique_function<void()> function;
  PostedTask* next = nullptr;
};

namespace {

constexpr Duration kLongestBusyPoll = std::chrono::milliseconds(10);
// Where a clock stands still, as in tests, busy polling ends by this.
constexpr int kPollsMax = 1 << 16;

// In posted_: the loop takes no more tasks. Never dereferenced.
template <class Node>
Node* closed_mark() noexcept {
  return reinterpret_cast<Node*>(std::uintptr_t{1});
}

}  // namespace

EventLoop::EventLoop(EventLoopOptions options)
    : options_(std::move(options)),
      pool_(options_.pool),
      copy_ledger_(CopyLedger::this_thread()),
      now_(environment().clock.now()),
      timers_(std::make_unique<TimerWheel>(now_)),
      trim_timer_(std::make_unique<Timer>(*this, [this] { pool_.trim_unused(); })),
      thread_(std::this_thread::get_id()),
      process_(::getpid()) {
  if (options_.max_pending_bytes != 0 || options_.pending_budget != nullptr) {
    pending_budget_ = std::make_unique<PendingBudget>(options_.max_pending_bytes, options_.pending_budget);
  }
  if (options_.busy_poll != Duration::zero()) busy_poll_ = std::make_unique<BusyPoll>(options_.busy_poll);
}

Result<std::unique_ptr<EventLoop>> EventLoop::create(const EngineFactory& engine, EventLoopOptions options) {
  if (options.trim_interval < std::chrono::milliseconds(1)) {
    return Error(errc::invalid_argument, options.name + ": trim_interval is at least 1 ms");
  }
  if (options.tasks_per_tick == 0 || options.timers_per_tick == 0) {
    return Error(errc::invalid_argument,
                 options.name + ": tasks_per_tick and timers_per_tick are at least 1, not 0");
  }
  if (options.busy_poll < Duration::zero() || options.busy_poll > kLongestBusyPoll) {
    return Error(errc::invalid_argument, options.name + ": busy_poll is between 0 and 10 ms");
  }
  if (options.max_file_operations == 0 || options.file_operations_at_once == 0) {
    return Error(errc::invalid_argument,
                 options.name + ": max_file_operations and file_operations_at_once are at least 1, not 0");
  }
  std::unique_ptr<EventLoop> loop(new EventLoop(std::move(options)));
  Result<std::unique_ptr<Engine>> made = engine(*loop);
  if (!made) return made.error();
  loop->engine_ = std::move(made).value();
  // A block that comes back after a refusal lets the engine try again.
  loop->pool_.set_available_callback([engine_ptr = loop->engine_.get()] { engine_ptr->memory_available(); });
  return loop;
}

EventLoop::~EventLoop() {
  LINKSPAN_ASSERT(in_loop_thread(), "a loop is destroyed on its own thread");
  assert_not_forked();
  if (engine_ != nullptr && !shut_down_done_) shut_down();
  delete companion_.load(std::memory_order_acquire);
  pool_.set_available_callback(nullptr);
  take_posted(closed_mark<PostedTask>());  // there are some only when the engine could not be made
  while (ready_first_ != nullptr) pop_ready();
}

AsyncFiles& EventLoop::files() {
  if (files_ == nullptr) files_ = std::make_unique<AsyncFiles>(*this);
  return *files_;
}

LoopCompanion& EventLoop::companion(std::unique_ptr<LoopCompanion> (*make)(EventLoop& loop)) {
  if (LoopCompanion* there = companion_.load(std::memory_order_acquire)) return *there;
  std::unique_ptr<LoopCompanion> made = make(*this);
  LoopCompanion* expected = nullptr;
  if (companion_.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel)) {
    return *made.release();
  }
  return *expected;
}

bool EventLoop::in_loop_thread() const noexcept {
  return std::this_thread::get_id() == thread_;
}

// Its engine is shared with the parent: whatever the child does to it happens to the parent's connections.
void EventLoop::assert_not_forked() const {
  LINKSPAN_ASSERT(process_ == ::getpid(), "a loop does not survive a fork: leave the child by exec or _exit");
}

void EventLoop::run() {
  LINKSPAN_ASSERT(in_loop_thread(), "a loop runs on the thread that created it");
  assert_not_forked();
  LINKSPAN_ASSERT(!guest_, "a guest is run by its host");
  while (!stopping()) tick(Duration::max(), true);
  shut_down();
}

void EventLoop::run_once(Duration max_wait) {
  LINKSPAN_ASSERT(in_loop_thread(), "a loop runs on the thread that created it");
  LINKSPAN_ASSERT(!guest_, "a guest is run by its host");
  tick(max_wait, true);
}

bool EventLoop::run_as_guest() {
  LINKSPAN_ASSERT(in_loop_thread(), "a loop runs on the thread that created it");
  assert_not_forked();
  guest_ = true;
  unattended_ = false;
  sleeping_.store(false, std::memory_order_relaxed);
  if (!stopping()) {
    tick(Duration::max(), true);
  } else if (!shut_down_done_) {
    if (!shut_down_begun_) begin_shut_down();
    if (!tick_in_shut_down()) end_shut_down();
  }
  unattended_ = !shut_down_done_;
  return !shut_down_done_;
}

TimePoint EventLoop::next_timer() const noexcept {
  return timers_->next_expiry();
}

void EventLoop::tick(Duration max_wait, bool with_timers) {
  counters_.ticks.add(1);
  now_ = environment().clock.now();
  now_is_old_ = false;
  if (with_timers) timers_->expire(now_, options_.timers_per_tick, counters_);
  run_tasks(options_.tasks_per_tick);
  run_deferred();
  engine_->prepare();
  if (pool_.collect() && with_timers && !trim_timer_->active()) {
    trim_timer_->start(options_.trim_interval);
  }

  Duration wait = max_wait;
  if (with_timers) {
    const TimePoint next = timers_->not_before();
    if (next != TimePoint::max()) {
      wait = std::min(wait, std::max(next - environment().clock.now(), Duration::zero()));
    }
  }
  if (ready_first_ != nullptr || !deferred_.empty()) wait = Duration::zero();
  now_is_old_ = true;
  if (busy_poll_ == nullptr || wait <= Duration::zero()) {
    poll_or_sleep(wait, with_timers);
    return;
  }
  const TimePoint idle_since = environment().clock.now();
  const bool came = poll_busily(wait) || poll_or_sleep(wait, with_timers) || posted();
  const Duration idle = environment().clock.now() - idle_since;
  if (came || idle > options_.busy_poll) busy_poll_->was_idle(idle);
}

// True when an event came.
bool EventLoop::poll_or_sleep(Duration wait, bool with_timers) noexcept {
  if (wait > Duration::zero()) {
    // A post that comes after the check below sees the flag and wakes the engine.
    sleeping_.store(true, std::memory_order_seq_cst);
    if (posted_.load(std::memory_order_seq_cst) != nullptr ||
        (with_timers && stop_requested_.load(std::memory_order_seq_cst))) {
      wait = Duration::zero();
    } else {
      counters_.wake_ups.add(1);
    }
  }
  const bool came = engine_->poll(wait);
  if (!guest_) sleeping_.store(false, std::memory_order_relaxed);  // a guest sleeps until its next tick
  return came;
}

// Polls for as long as it may, and takes that from `wait`. True when something came.
bool EventLoop::poll_busily(Duration& wait) noexcept {
  if (!busy_poll_->begin()) return false;
  const Clock& clock = environment().clock;
  const TimePoint begin = clock.now();
  const Duration longest = std::min(wait, options_.busy_poll);
  Duration spent = Duration::zero();
  bool came = false;
  for (int polls = 0; !came && spent < longest && polls < kPollsMax; ++polls) {
    came = engine_->poll(Duration::zero()) || posted() || stopping();
    spent = clock.now() - begin;
  }
  busy_poll_->finish();
  counters_.busy_polls.add(1);
  if (came) counters_.busy_poll_hits.add(1);
  counters_.busy_poll_ns.add(static_cast<std::uint64_t>(spent.count()));
  wait = std::max(wait - spent, Duration::zero());
  return came;
}

void EventLoop::stop() noexcept {
  stop_requested_.store(true, std::memory_order_seq_cst);
  if (sleeping_.exchange(false, std::memory_order_seq_cst)) engine_->wake();
}

bool EventLoop::post(unique_function<void()> task) {
  auto node = std::make_unique<PostedTask>(PostedTask{std::move(task)});
  if (pending_tasks_.fetch_add(1, std::memory_order_relaxed) >= options_.max_pending_tasks) {
    pending_tasks_.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }
  return push(std::move(node));
}

EventLoop::PreparedTask::PreparedTask(unique_function<void()> task)
    : node_(std::make_unique<PostedTask>(PostedTask{std::move(task)})) {}
EventLoop::PreparedTask::PreparedTask(PreparedTask&& other) noexcept = default;
EventLoop::PreparedTask::~PreparedTask() = default;

void EventLoop::PreparedTask::post(EventLoop& loop) && noexcept {
  loop.pending_tasks_.fetch_add(1, std::memory_order_relaxed);
  static_cast<void>(loop.push(std::move(node_)));
}

// Has been counted in pending_tasks_.
bool EventLoop::push(std::unique_ptr<PostedTask> node) noexcept {
  PostedTask* newest = posted_.load(std::memory_order_relaxed);
  do {
    if (newest == closed_mark<PostedTask>()) {
      pending_tasks_.fetch_sub(1, std::memory_order_relaxed);
      return false;
    }
    node->next = newest;
  } while (!posted_.compare_exchange_weak(newest, node.get(), std::memory_order_seq_cst,
                                          std::memory_order_relaxed));
  static_cast<void>(node.release());
  // Only an empty list can have been seen by a loop that went to sleep; so only its first task has to wake
  // it.
  if (newest == nullptr && sleeping_.exchange(false, std::memory_order_seq_cst)) engine_->wake();
  return true;
}

// Appends what was posted to the ready tasks, oldest first, and leaves `mark` in its place.
void EventLoop::take_posted(PostedTask* mark) noexcept {
  if (posted_.load(std::memory_order_relaxed) == mark) return;
  PostedTask* newest_first = posted_.exchange(mark, std::memory_order_acquire);
  if (newest_first == nullptr) return;
  PostedTask* last = newest_first;
  PostedTask* first = nullptr;
  while (newest_first != nullptr) {
    PostedTask* task = std::exchange(newest_first, newest_first->next);
    task->next = std::exchange(first, task);
  }
  (ready_first_ == nullptr ? ready_first_ : ready_last_->next) = first;
  ready_last_ = last;
}

std::unique_ptr<EventLoop::PostedTask> EventLoop::pop_ready() noexcept {
  return std::unique_ptr<PostedTask>(std::exchange(ready_first_, ready_first_->next));
}

void EventLoop::run_tasks(std::size_t limit) {
  if (posted_.load(std::memory_order_relaxed) != closed_mark<PostedTask>()) take_posted(nullptr);
  for (; ready_first_ != nullptr && limit != 0; --limit) {
    const std::unique_ptr<PostedTask> task = pop_ready();
    pending_tasks_.fetch_sub(1, std::memory_order_relaxed);
    counters_.tasks.add(1);
    guarded_call(task->function, "a task", counters_);
  }
}

void EventLoop::run_deferred() {
  IntrusiveList<DeferredTask, DeferredTask> running;
  running.splice_back(deferred_);
  while (!running.empty()) {
    auto run = [&task = running.pop_front()] { task.run_deferred(); };
    guarded_call(run, "a deferred task", counters_);
  }
}

void EventLoop::shut_down() {
  unattended_ = false;  // ticks come from here
  if (!shut_down_begun_) begin_shut_down();
  while (tick_in_shut_down()) {
  }
  end_shut_down();
}

void EventLoop::begin_shut_down() {
  stop_requested_.store(true, std::memory_order_relaxed);
  shut_down_begun_ = true;
  shut_down_begin_ = environment().clock.now();
  engine_->stop();
  for (PendingWork* work = pending_work_.first(); work != nullptr; work = pending_work_.next(*work)) {
    work->loop_stops();
  }
}

// False when it was the last one.
bool EventLoop::tick_in_shut_down() {
  constexpr Duration kLookAgain = std::chrono::milliseconds(10);
  tick(idle() ? Duration::zero() : kLookAgain, false);
  return !idle() && now_ - shut_down_begin_ < options_.stop_deadline;
}

void EventLoop::end_shut_down() {
  if (!idle()) log(LogLevel::error, "loop", options_.name + ": stopped with operations still open");
  timers_->cancel_all();
  if (LoopCompanion* companion = companion_.load(std::memory_order_acquire)) companion->before_end();

  // From here on post() refuses. What came before still runs, so that nobody waits for ever.
  take_posted(closed_mark<PostedTask>());
  while (ready_first_ != nullptr) run_tasks(options_.max_pending_tasks);
  run_deferred();
  while (!pending_work_.empty()) pending_work_.front().loop_ends();
  shut_down_done_ = true;
}

}  // namespace linkspan
