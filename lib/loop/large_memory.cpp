// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/loop/large_memory.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <iterator>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "lib/loop/guarded_call.hpp"
#include "linkspan/base/assert.hpp"

namespace linkspan {
namespace {

// The least that is populated at once, and so the least progress of a tick; the most is a huge page.
constexpr std::size_t kGrainBytesMin = std::size_t{64} << 10;
constexpr std::size_t kGrainBytesMax = PageAllocator::kPieceBytes;
// Bounds a step where the clock stands still, as it may in a simulation. No machine does so much in its time.
constexpr std::size_t kStepBytesMax = std::size_t{16} << 20;
// How long the helper waits when a loop has no place for one more task.
constexpr Duration kPostAgain = std::chrono::milliseconds(10);

}  // namespace

// The block, and how far it is prepared. Works on one thread at a time: the loop's or the helper's.
struct LargeAllocation::Job {
  enum class Progress { more, ready, refused };

  std::size_t size = 0;
  Block block;
  std::size_t prepared_bytes = 0;
  std::size_t grain_bytes = kGrainBytesMin;
  Progress progress = Progress::more;

  // For the helper; both null once the allocation is finished. `allocation` belongs to the loop's thread,
  // `loop` is guarded by the helper's mutex: while it is set, the loop exists.
  LargeAllocation* allocation = nullptr;
  EventLoop* loop = nullptr;

  // Goes on until `budget` has passed since `begin`, with at least one grain. Grains grow and shrink so that
  // each takes a small part of the budget.
  void step(PageAllocator& pages, const Clock& clock, TimePoint begin, Duration budget) noexcept {
    if (!block) block = pages.allocate(size);
    if (!block) {
      progress = Progress::refused;
      return;
    }
    const std::size_t step_end = prepared_bytes + std::min(block.size() - prepared_bytes, kStepBytesMax);
    TimePoint before = clock.now();
    for (;;) {
      const std::size_t grain_end = std::min((prepared_bytes / grain_bytes + 1) * grain_bytes, block.size());
      if (!PageAllocator::populate(block.writable().subspan(prepared_bytes, grain_end - prepared_bytes))) {
        block.reset();
        progress = Progress::refused;
        return;
      }
      prepared_bytes = grain_end;
      if (prepared_bytes == block.size()) {
        progress = Progress::ready;
        return;
      }
      const TimePoint now = clock.now();
      const Duration took = now - std::exchange(before, now);
      if (took < budget / 8) grain_bytes = std::min(grain_bytes * 2, kGrainBytesMax);
      if (took > budget / 4) grain_bytes = std::max(grain_bytes / 2, kGrainBytesMin);
      // One more grain would take as long again.
      if (now - begin + took > budget || prepared_bytes >= step_end) return;
    }
  }
};

// The thread that prepares and unmaps, and what it shares with the loops.
class LargeMemory::Helper {
 public:
  using Job = LargeAllocation::Job;

  explicit Helper(LargeMemoryOptions options) : options_(std::move(options)), pages_(options_.pages) {
    pages_.set_released_callback([this] {
      const std::lock_guard lock(mutex_);
      released_ = true;
      changed_.notify_one();
    });
  }

  ~Helper() {
    LINKSPAN_ASSERT(allocations_ == 0, "large allocations are destroyed before the memory that they are of");
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      changed_.notify_one();
    }
    thread_.reset();
    waiting_.clear();
    pages_.set_released_callback(nullptr);
  }

  Status start() {
    auto thread = options_.environment->threads.start(options_.thread_name, std::nullopt, [this] { run(); });
    if (!thread) return thread.error();
    thread_ = std::move(thread).value();
    return std::monostate();
  }

  void add(std::shared_ptr<Job> job) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(job));
    changed_.notify_one();
  }

  // Loop's thread: the helper lets go of the job when it comes to it, and of the loop now.
  void give_up(Job& job) noexcept {
    job.allocation = nullptr;
    const std::lock_guard lock(mutex_);
    job.loop = nullptr;
  }

  void count(int change) noexcept { allocations_ += change; }
  [[nodiscard]] PageAllocator& pages() noexcept { return pages_; }
  [[nodiscard]] const LargeMemoryOptions& options() const noexcept { return options_; }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      const auto has_work = [this] { return stop_ || released_ || !waiting_.empty(); };
      if (ready_.empty()) {
        changed_.wait(lock, has_work);
      } else {
        changed_.wait_for(lock, kPostAgain, has_work);
      }
      if (stop_) return;
      if (std::exchange(released_, false)) unmap_one(lock);
      drop_unwanted();
      if (!waiting_.empty()) prepare_first(lock);
      deliver(lock);
    }
  }

  void unmap_one(std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    const bool more = pages_.unmap_released();
    lock.lock();
    released_ |= more;
  }

  void drop_unwanted() {
    const auto unwanted = [](const std::shared_ptr<Job>& job) {
      return job->loop == nullptr || job->loop->stopping();
    };
    const auto first = std::stable_partition(waiting_.begin(), waiting_.end(), std::not_fn(unwanted));
    std::move(first, waiting_.end(), std::back_inserter(ready_));
    waiting_.erase(first, waiting_.end());
  }

  void prepare_first(std::unique_lock<std::mutex>& lock) {
    const std::shared_ptr<Job> job = waiting_.front();
    const Clock& clock = options_.environment->clock;
    lock.unlock();
    job->step(pages_, clock, clock.now(), options_.step);
    lock.lock();
    if (job->progress == Job::Progress::more) return;
    waiting_.pop_front();
    ready_.push_back(job);
  }

  // Hands over what is ready, and what nobody wants any more. A loop that is stopping may take no more tasks;
  // then the allocation's destructor reports.
  void deliver(std::unique_lock<std::mutex>& lock) {
    std::vector<std::shared_ptr<Job>> gone;  // released without the lock: their blocks come back to it
    for (std::size_t i = 0; i < ready_.size();) {
      EventLoop* const loop = ready_[i]->loop;
      if (loop != nullptr && !post(*loop, ready_[i]) && !loop->stopping()) {
        ++i;
        continue;
      }
      gone.push_back(std::move(ready_[i]));
      ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    lock.unlock();
    gone.clear();
    lock.lock();
  }

  static bool post(EventLoop& loop, const std::shared_ptr<Job>& job) noexcept {
    try {
      return loop.post([job] {
        if (job->allocation != nullptr) job->allocation->run_deferred();
      });
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  const LargeMemoryOptions options_;
  PageAllocator pages_;
  std::atomic<int> allocations_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> waiting_;  // the helper works on the first
  std::vector<std::shared_ptr<Job>> ready_;   // and these have not been posted yet
  bool released_ = false;                     // pages_ has something to unmap
  bool stop_ = false;
  std::unique_ptr<Thread> thread_;
};

LargeMemory::LargeMemory(std::unique_ptr<Helper> helper) noexcept : helper_(std::move(helper)) {}
LargeMemory::~LargeMemory() = default;

Result<std::unique_ptr<LargeMemory>> LargeMemory::create(LargeMemoryOptions options) {
  if (options.step <= Duration::zero()) {
    return Error(errc::invalid_argument, options.thread_name + ": a step has to take some time, not " +
                                             std::to_string(options.step.count()) + " ns");
  }
  auto helper = std::make_unique<Helper>(std::move(options));
  const Status started = helper->start();
  if (!started) return started.error();
  return std::unique_ptr<LargeMemory>(new LargeMemory(std::move(helper)));
}

PageAllocator& LargeMemory::pages() noexcept {
  return helper_->pages();
}
const LargeMemoryOptions& LargeMemory::options() const noexcept {
  return helper_->options();
}

LargeAllocation::LargeAllocation(LargeMemory& memory, EventLoop& loop, std::size_t size, Place place,
                                 Completion completion)
    : memory_(memory), loop_(loop), completion_(std::move(completion)), job_(std::make_shared<Job>()) {
  LINKSPAN_ASSERT(loop.in_loop_thread(), "a large allocation is made on its loop's thread");
  LINKSPAN_ASSERT(active(), "a large allocation has a completion");
  job_->size = size;
  if (place == Place::on_loop) {
    loop_.defer(*this);
  } else {
    job_->allocation = this;
    job_->loop = &loop;
    memory_.helper_->add(job_);
  }
  memory_.helper_->count(1);
}

LargeAllocation::~LargeAllocation() {
  if (active()) {
    give_up();
    finish(Block(), make_error_code(loop_.stopping() ? errc::stopped : errc::cancelled));
  }
  memory_.helper_->count(-1);
}

void LargeAllocation::cancel() noexcept {
  if (!active()) return;
  give_up();
  loop_.defer(*this);
}

std::shared_ptr<LargeAllocation::Job> LargeAllocation::give_up() noexcept {
  if (job_ != nullptr) memory_.helper_->give_up(*job_);
  return std::move(job_);
}

// Deferred: a step on the loop, or a cancelled allocation. Posted by the helper: it is ready, or the loop
// stops.
void LargeAllocation::run_deferred() {
  if (job_ == nullptr) return finish(Block(), make_error_code(errc::cancelled));
  if (loop_.stopping()) {
    give_up();
    return finish(Block(), make_error_code(errc::stopped));
  }
  if (job_->allocation == nullptr) {
    job_->step(memory_.pages(), loop_.environment().clock, loop_.now(), memory_.options().step);
    if (job_->progress == Job::Progress::more) return loop_.defer(*this);
  }
  const bool ready = job_->progress == Job::Progress::ready;
  finish(std::move(give_up()->block), ready ? std::error_code() : make_error_code(errc::pool_exhausted));
}

// Nothing of this object is touched after the call: it may be gone.
void LargeAllocation::finish(Block block, std::error_code error) {
  unlink();
  auto call = [completion = std::move(completion_), &block, error]() mutable {
    completion(std::move(block), error);
  };
  guarded_call(call, "a completion of a large allocation", loop_.counters());
}

}  // namespace linkspan
