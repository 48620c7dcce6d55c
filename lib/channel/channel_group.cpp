// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/channel_group.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/log_exception.hpp"
#include "linkspan/channel/channel.hpp"
#include "linkspan/loop/timer.hpp"

namespace linkspan {
namespace {

Error closed_error() {
  return Error(errc::cancelled, "the group is closed");
}

}  // namespace

// --- what is on its way -----------------------------------------------------------------------------------

// Shared by the parts that still have to write it; reports when the last one is through with it.
struct ChannelGroup::Broadcast {
  Broadcast(Chain&& data_in, BroadcastOptions options_in, BroadcastDone done_in)
      : data(std::move(data_in)), options(std::move(options_in)), done(std::move(done_in)) {}
  ~Broadcast();

  std::shared_ptr<Core> core;  // whose pending bytes it counts
  const Chain data;
  const BroadcastOptions options;
  std::atomic<std::size_t> given{0};
  std::atomic<std::size_t> skipped{0};
  std::error_code error;
  BroadcastDone done;
};

// Held by the parts that still have members; tells when the last one has none.
class ChannelGroup::Ending {
 public:
  explicit Ending(unique_function<void()> done) : done_(std::move(done)) {}
  ~Ending() {
    if (!done_) return;
    try {
      done_();
    } catch (...) {
      log_exception("channel", "a group's done callback");
    }
  }

 private:
  unique_function<void()> done_;
};

// --- members ----------------------------------------------------------------------------------------------

// The members on one loop; used on its thread. The core has it as long as there is one.
class ChannelGroup::Part {
 public:
  Part(EventLoop& loop_in, std::weak_ptr<Core> core) : loop(loop_in), core_(std::move(core)) {}

  void join(Membership& member);
  void leave(Membership& member) noexcept;
  void deliver(Broadcast& broadcast);
  void end(bool gently, Duration deadline, std::shared_ptr<Ending> ending);

  EventLoop& loop;

 private:
  template <class Visit>
  void visit(Visit&& visit);
  void compact() noexcept;

  std::weak_ptr<Core> core_;
  std::vector<Membership*> members_;  // nullptr: left during a visit
  std::size_t count_left_ = 0;        // of these
  int visits_ = 0;
  std::unique_ptr<Timer> deadline_;
  std::vector<std::shared_ptr<Ending>> endings_;
};

class ChannelGroup::Core : public std::enable_shared_from_this<Core> {
 public:
  explicit Core(const ChannelGroupOptions& options) : options_(options) {}

  Status admit();
  void count_left() noexcept { size_.fetch_sub(1, std::memory_order_relaxed); }
  /// nullptr: the group is closed, and its end does not see a member that joins now.
  std::shared_ptr<Part> part_of(EventLoop& loop);
  void retire(const Part& part) noexcept;
  void broadcast(const std::shared_ptr<Broadcast>& broadcast);
  void end(bool gently, Duration deadline, unique_function<void()> done);

  [[nodiscard]] std::size_t size() const noexcept { return size_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool admits_bytes(std::size_t bytes) noexcept;
  void release_bytes(std::size_t bytes) noexcept {
    pending_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  }

 private:
  /// Runs `task` for each part on its loop: now if this is its thread.
  template <class Task>
  void on_each_part(const Task& task);

  const ChannelGroupOptions options_;
  std::atomic<std::size_t> size_{0};
  std::atomic<std::size_t> pending_bytes_{0};
  std::atomic<bool> ending_{false};
  std::mutex mutex_;
  std::vector<std::shared_ptr<Part>> parts_;
};

// In the attributes of its channel: so it goes when the channel does.
class ChannelGroup::Membership {
 public:
  Membership(Channel& channel_in, std::shared_ptr<Core> core, std::shared_ptr<Part> part)
      : channel(channel_in), core_(std::move(core)), part_(std::move(part)) {
    part_->join(*this);
  }
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;
  ~Membership() {
    core_->count_left();
    part_->leave(*this);
  }

  [[nodiscard]] bool of(const Core& core) const noexcept { return core_.get() == &core; }

  Channel& channel;
  std::size_t place = 0;  // among the members of the part

  // A channel may be in several groups.
  using All = std::vector<std::unique_ptr<Membership>>;
  static const ChannelKey<All>& key() {
    static const ChannelKey<All> made;
    return made;
  }

 private:
  std::shared_ptr<Core> core_;
  std::shared_ptr<Part> part_;
};

ChannelGroup::Broadcast::~Broadcast() {
  if (core != nullptr) core->release_bytes(data.size());
  if (!done) return;
  try {
    done({given.load(std::memory_order_relaxed), skipped.load(std::memory_order_relaxed), error});
  } catch (...) {
    log_exception("channel", "a broadcast's done callback");
  }
}

// --- Part -------------------------------------------------------------------------------------------------

// Members may come and go meanwhile.
template <class Visit>
void ChannelGroup::Part::visit(Visit&& visit) {
  ++visits_;
  const std::size_t count = members_.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (members_[i] != nullptr) visit(members_[i]->channel);
  }
  if (--visits_ == 0 && count_left_ != 0) {
    compact();
  }
}

void ChannelGroup::Part::join(Membership& member) {
  member.place = members_.size();
  members_.push_back(&member);
}

void ChannelGroup::Part::compact() noexcept {
  std::erase(members_, nullptr);
  for (std::size_t i = 0; i < members_.size(); ++i) members_[i]->place = i;
  count_left_ = 0;
}

void ChannelGroup::Part::leave(Membership& member) noexcept {
  if (visits_ != 0) {
    members_[member.place] = nullptr;
    ++count_left_;
  } else {
    members_.back()->place = member.place;
    members_[member.place] = members_.back();
    members_.pop_back();
  }
  if (members_.size() != count_left_) return;
  deadline_.reset();
  if (const std::shared_ptr<Core> core = core_.lock()) core->retire(*this);
  const auto endings = std::exchange(endings_, {});
}

void ChannelGroup::Part::deliver(Broadcast& broadcast) {
  std::size_t given = 0;
  std::size_t skipped = 0;
  visit([&](Channel& channel) {
    const bool excepted =
        broadcast.options.except != ChannelRef() && channel.ref() == broadcast.options.except;
    if (excepted || channel.ended() || (broadcast.options.only_writable && !channel.writable())) {
      ++skipped;
    } else {
      channel.write(broadcast.data.share());
      ++given;
    }
  });
  broadcast.given.fetch_add(given, std::memory_order_relaxed);
  broadcast.skipped.fetch_add(skipped, std::memory_order_relaxed);
}

void ChannelGroup::Part::end(bool gently, Duration deadline, std::shared_ptr<Ending> ending) {
  if (members_.size() == count_left_) return;  // all left meanwhile
  endings_.push_back(std::move(ending));
  visit([&](Channel& channel) {
    if (gently) {
      channel.drain(deadline);
    } else {
      channel.close(deadline);
    }
  });
  if (!gently) return;
  if (deadline_ == nullptr) {
    deadline_ = std::make_unique<Timer>(loop, [this] { visit([](Channel& channel) { channel.abort(); }); });
  }
  deadline_->start(deadline);
}

// --- Core -------------------------------------------------------------------------------------------------

Status ChannelGroup::Core::admit() {
  if (ending_.load(std::memory_order_acquire)) return closed_error();
  if (size_.fetch_add(1, std::memory_order_relaxed) < options_.max_channels) return std::monostate{};
  size_.fetch_sub(1, std::memory_order_relaxed);
  return Error(errc::limit_exceeded,
               "ChannelGroupOptions::max_channels is " + std::to_string(options_.max_channels));
}

std::shared_ptr<ChannelGroup::Part> ChannelGroup::Core::part_of(EventLoop& loop) {
  const std::lock_guard lock(mutex_);
  if (ending_.load(std::memory_order_acquire)) return nullptr;
  const auto found = std::ranges::find_if(parts_, [&](const auto& part) { return &part->loop == &loop; });
  if (found != parts_.end()) return *found;
  return parts_.emplace_back(std::make_shared<Part>(loop, weak_from_this()));
}

void ChannelGroup::Core::retire(const Part& part) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(parts_, [&](const auto& each) { return each.get() == &part; });
}

template <class Task>
void ChannelGroup::Core::on_each_part(const Task& task) {
  std::vector<std::shared_ptr<Part>> here;  // one, but for several loops on one thread
  {
    // A loop that has a part in the list has members still, so it is there.
    const std::lock_guard lock(mutex_);
    for (const std::shared_ptr<Part>& part : parts_) {
      if (part->loop.in_loop_thread()) {
        here.push_back(part);
      } else {
        // A loop that takes no more tasks is about to close its channels.
        static_cast<void>(part->loop.post([task, part] { task(*part); }));
      }
    }
  }
  for (const std::shared_ptr<Part>& part : here) task(*part);
}

bool ChannelGroup::Core::admits_bytes(std::size_t bytes) noexcept {
  std::size_t now = pending_bytes_.load(std::memory_order_relaxed);
  do {
    if (now != 0 && now + bytes > options_.max_pending_bytes) return false;
  } while (!pending_bytes_.compare_exchange_weak(now, now + bytes, std::memory_order_relaxed));
  return true;
}

void ChannelGroup::Core::broadcast(const std::shared_ptr<Broadcast>& broadcast) {
  if (!admits_bytes(broadcast->data.size())) {
    broadcast->error = make_error_code(errc::limit_exceeded);
    return;
  }
  broadcast->core = shared_from_this();
  on_each_part([broadcast](Part& part) { part.deliver(*broadcast); });
}

void ChannelGroup::Core::end(bool gently, Duration deadline, unique_function<void()> done) {
  ending_.store(true, std::memory_order_release);
  const auto ending = std::make_shared<Ending>(std::move(done));
  on_each_part([gently, deadline, ending](Part& part) { part.end(gently, deadline, ending); });
}

// --- ChannelGroup -----------------------------------------------------------------------------------------

ChannelGroup::ChannelGroup(ChannelGroupOptions options) : core_(std::make_shared<Core>(options)) {}
ChannelGroup::~ChannelGroup() = default;

Status ChannelGroup::add(Channel& channel) {
  if (channel.ended()) return Error(errc::cancelled, "the channel is closed");
  Membership::All& all = channel.attributes().get(Membership::key());
  if (std::ranges::any_of(all, [&](const auto& each) { return each->of(*core_); })) return std::monostate{};
  if (Status status = core_->admit(); !status) return status;
  try {
    all.reserve(all.size() + 1);
    if (std::shared_ptr<Part> part = core_->part_of(channel.loop())) {
      all.push_back(std::make_unique<Membership>(channel, core_, std::move(part)));
      return std::monostate{};
    }
  } catch (...) {  // no memory
    core_->count_left();
    throw;
  }
  core_->count_left();
  return closed_error();
}

void ChannelGroup::remove(Channel& channel) noexcept {
  if (Membership::All* all = channel.attributes().find(Membership::key())) {
    std::erase_if(*all, [&](const auto& each) { return each->of(*core_); });
  }
}

std::size_t ChannelGroup::size() const noexcept {
  return core_->size();
}

void ChannelGroup::broadcast(Chain&& data, BroadcastOptions options, BroadcastDone done) {
  core_->broadcast(std::make_shared<Broadcast>(std::move(data), std::move(options), std::move(done)));
}

void ChannelGroup::close(Duration deadline, unique_function<void()> done) {
  core_->end(false, deadline, std::move(done));
}

void ChannelGroup::drain(Duration deadline, unique_function<void()> done) {
  core_->end(true, deadline, std::move(done));
}

}  // namespace linkspan
