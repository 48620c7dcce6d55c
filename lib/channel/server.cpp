// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/server.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/log_exception.hpp"
#include "lib/channel/accept_limits.hpp"
#include "lib/channel/stream_channel.hpp"
#include "lib/loop/guarded_call.hpp"
#include "lib/transport/socket_system.hpp"
#include "linkspan/base/log.hpp"
#include "linkspan/loop/timer.hpp"
#include "linkspan/transport/transport.hpp"

namespace linkspan {
namespace {

// Runs `task` on the loop: now if this is its thread. False when the loop takes no more.
bool run_on(EventLoop& loop, unique_function<void()> task) {
  if (!loop.in_loop_thread()) return loop.post(std::move(task));
  task();
  return true;
}

// The same, with what it returns.
template <class Function>
Status run_and_wait(EventLoop& loop, Function function) {
  std::promise<Status> status;
  if (!run_on(loop, [&] { status.set_value(function()); })) {
    return Error(errc::stopped, "the loop that is to listen has stopped");
  }
  return status.get_future().get();
}

}  // namespace

// Shared by the server, the tasks it has posted, and its part on each loop until that has stopped.
class Server::Core final : public ListenerHandler, public std::enable_shared_from_this<Server::Core> {
 public:
  Core(EventLoop& accept_loop, LoopGroup* group, std::span<EventLoop* const> loops, ServerOptions options)
      : options_(std::move(options)), accept_loop_(accept_loop), group_(group) {
    if (options_.max_connections_per_address != 0 || options_.max_accepts_per_second != 0) {
      limits_ = std::make_unique<AcceptLimits>(options_);
    }
    for (EventLoop* loop : loops) parts_.push_back(std::make_shared<Part>(*loop));
    parts_running_ = parts_.size();
  }

  Status listen(Socket listening);
  Status listen_everywhere();
  void stop(Duration deadline, unique_function<void()> done);
  void wait();
  [[nodiscard]] bool stopping();
  [[nodiscard]] bool on_own_loop() const noexcept;

  [[nodiscard]] const Endpoint& local_endpoint() const noexcept { return local_endpoint_; }
  [[nodiscard]] std::size_t connections() const noexcept {
    return connections_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] ServerCounters counters() const noexcept;

 private:
  // Several loops count.
  using SharedCounter = std::atomic<std::uint64_t>;
  static void count(SharedCounter& counter) noexcept { counter.fetch_add(1, std::memory_order_relaxed); }
  void count_lost() noexcept {
    connections_.fetch_sub(1, std::memory_order_relaxed);
    count(failed_);
  }

  // A connection that counts for its address.
  class AddressShare;

  // The channels of one loop; used on its thread.
  class Part final : public ChannelOwner, public ListenerHandler, public std::enable_shared_from_this<Part> {
   public:
    explicit Part(EventLoop& loop_in) : loop(loop_in) {}

    /// On a listener of its own. Returns its address.
    Result<Endpoint> listen(const Endpoint& endpoint, const ListenOptions& options);
    void stop_listening() noexcept { listener_.close(); }
    void on_accept(Socket socket) override;

    void open(Socket socket) noexcept;
    void stop(Duration deadline);
    void finish();
    void channel_gone() noexcept override;

    EventLoop& loop;
    std::shared_ptr<Core> core;  // from listen() until this part has finished

   private:
    Listener listener_;
    IntrusiveList<StreamChannel, StreamChannel> channels_;
    bool stopping_ = false;
    std::unique_ptr<Timer> deadline_;
    std::atomic<bool> finished_{false};
  };

  void begin();
  [[nodiscard]] bool admit(EventLoop& loop);
  void stop_parts(Duration deadline);
  void part_finished(EventLoop& loop);
  void on_accept(Socket socket) override;

  ServerOptions options_;
  EventLoop& accept_loop_;
  LoopGroup* group_;  // nullptr: one loop
  std::vector<std::shared_ptr<Part>> parts_;
  std::atomic<std::size_t> connections_{0};
  std::unique_ptr<AcceptLimits> limits_;  // nullptr: only the total
  SharedCounter accepted_{0};
  SharedCounter closed_{0};
  SharedCounter refused_total_{0};
  SharedCounter refused_address_{0};
  SharedCounter refused_rate_{0};
  SharedCounter failed_{0};
  Listener listener_;  // accept loop's thread
  Endpoint local_endpoint_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t parts_running_;
  bool stopping_ = false;
  std::thread::id telling_;                       // the thread that tells them
  bool over_ = false;                             // no part runs, and everybody has been told
  std::vector<unique_function<void()>> waiting_;  // to be told
};

// --- starting and accepting -------------------------------------------------------------------------------

Status Server::Core::listen(Socket listening) {
  return run_and_wait(accept_loop_, [&]() -> Status {
    Transport& transport = Transport::of(accept_loop_);
    Result<Listener> listener = listening ? transport.listen(std::move(listening), *this)
                                          : transport.listen(options_.endpoint, options_.listen, *this);
    if (!listener) return listener.error();
    listener_ = std::move(listener).value();
    local_endpoint_ = listener_.local_endpoint();
    begin();  // before a connection can come
    return std::monostate{};
  });
}

Status Server::Core::listen_everywhere() {
  begin();  // connections may come while the others are not listening yet
  ListenOptions options = options_.listen;
  options.socket.reuse_port = true;
  local_endpoint_ = options_.endpoint;  // with port 0 until the first one has found a port
  for (const auto& part : parts_) {
    const Status status = run_and_wait(part->loop, [&]() -> Status {
      Result<Endpoint> endpoint = part->listen(local_endpoint_, options);
      if (!endpoint) return endpoint.error();
      local_endpoint_ = endpoint.value();
      return std::monostate{};
    });
    if (!status) {
      stop(Duration::zero(), nullptr);  // those that listen already
      if (!on_own_loop()) wait();
      return status;
    }
  }
  return std::monostate{};
}

void Server::Core::begin() {
  for (const auto& part : parts_) part->core = shared_from_this();
}

// Whether there may be one connection more.
bool Server::Core::admit(EventLoop& loop) {
  if (connections_.fetch_add(1, std::memory_order_relaxed) >= options_.max_connections) {
    count(refused_total_);
  } else if (limits_ != nullptr && !limits_->admit_rate(loop.now())) {
    count(refused_rate_);
  } else {
    return true;
  }
  connections_.fetch_sub(1, std::memory_order_relaxed);
  return false;
}

ServerCounters Server::Core::counters() const noexcept {
  const auto value = [](const SharedCounter& counter) { return counter.load(std::memory_order_relaxed); };
  return {value(accepted_),        value(closed_),       value(refused_total_),
          value(refused_address_), value(refused_rate_), value(failed_)};
}

class Server::Core::AddressShare final : public ChannelOwner {
 public:
  AddressShare(std::shared_ptr<Part> part, std::string host)
      : part_(std::move(part)), host_(std::move(host)) {}
  void channel_gone() noexcept override {
    part_->core->limits_->release(host_);
    part_->channel_gone();
  }

 private:
  std::shared_ptr<Part> part_;
  std::string host_;
};

Result<Endpoint> Server::Core::Part::listen(const Endpoint& endpoint, const ListenOptions& options) {
  Result<Listener> listener = Transport::of(loop).listen(endpoint, options, *this);
  if (!listener) return listener.error();
  listener_ = std::move(listener).value();
  return listener_.local_endpoint();
}

void Server::Core::Part::on_accept(Socket socket) {
  if (core->admit(loop)) open(std::move(socket));
}

void Server::Core::on_accept(Socket socket) {
  if (!admit(accept_loop_)) return;  // closes it
  bool taken = false;
  try {
    std::shared_ptr<Part> part = parts_.front();
    if (group_ != nullptr) {
      part = *std::ranges::find(parts_, &group_->next(), [](const auto& each) { return &each->loop; });
    }
    EventLoop& loop = part->loop;
    taken = run_on(loop, [part = std::move(part), socket = std::move(socket)]() mutable {
      part->open(std::move(socket));
    });
  } catch (...) {  // no memory for the task, or a policy of the group that throws
    log_exception("channel", "handing on an accepted connection");
  }
  if (!taken) count_lost();
}

void Server::Core::Part::open(Socket socket) noexcept {
  // No stop has come yet: it is posted behind every connection. But the loop itself may be stopping.
  if (loop.stopping()) {
    core->count_lost();
    return;
  }
  std::string host;
  bool counted = false;
  try {
    std::shared_ptr<ChannelOwner> owner = shared_from_this();
    if (core->options_.max_connections_per_address != 0) {
      host = system_of(socket).peer_endpoint(socket.descriptor()).host();
      counted = core->limits_->admit_host(host);
      if (!counted) {
        core->count(core->refused_address_);
        core->connections_.fetch_sub(1, std::memory_order_relaxed);
        return;
      }
      owner = std::make_shared<AddressShare>(shared_from_this(), host);
    }
    channels_.push_back(StreamChannel::open(loop, std::move(socket), core->options_.channel,
                                            core->options_.initializer, std::move(owner)));
    core->count(core->accepted_);
  } catch (...) {  // no memory for the channel: its connection is closed, the others go on
    log_exception("channel", "opening an accepted connection");
    if (counted) core->limits_->release(host);
    core->count_lost();
  }
}

void Server::Core::Part::channel_gone() noexcept {
  core->count(core->closed_);
  core->connections_.fetch_sub(1, std::memory_order_relaxed);
  if (stopping_ && channels_.empty()) finish();
}

// --- stopping ---------------------------------------------------------------------------------------------

void Server::Core::stop(Duration deadline, unique_function<void()> done) {
  {
    std::unique_lock lock(mutex_);
    if (over_) {
      lock.unlock();
      if (done) done();
      return;
    }
    if (done) waiting_.push_back(std::move(done));
    stopping_ = true;
  }
  const auto core = shared_from_this();
  const bool taken = run_on(accept_loop_, [core, deadline] {
    core->listener_.close();
    core->stop_parts(deadline);
  });
  if (!taken) stop_parts(deadline);  // the accept loop has stopped, and its listener with it
}

void Server::Core::stop_parts(Duration deadline) {
  for (const auto& part : parts_) {
    // A loop that takes no more tasks has no channels any more.
    if (!run_on(part->loop, [part, deadline] { part->stop(deadline); })) part->finish();
  }
}

void Server::Core::Part::stop(Duration deadline) {
  stop_listening();
  if (!std::exchange(stopping_, true)) {
    for (StreamChannel* channel = channels_.first(); channel != nullptr; channel = channels_.next(*channel)) {
      channel->drain(deadline);
    }
  }
  if (channels_.empty()) {
    finish();
    return;
  }
  if (deadline_ == nullptr) {
    deadline_ = std::make_unique<Timer>(loop, [this] {
      for (StreamChannel* channel = channels_.first(); channel != nullptr;
           channel = channels_.next(*channel)) {
        channel->abort();
      }
    });
  }
  deadline_->start(deadline);
}

void Server::Core::Part::finish() {
  if (finished_.exchange(true)) return;
  deadline_.reset();
  std::exchange(core, nullptr)->part_finished(loop);
}

void Server::Core::part_finished(EventLoop& loop) {
  std::unique_lock lock(mutex_);
  if (--parts_running_ != 0) return;
  telling_ = std::this_thread::get_id();
  while (!waiting_.empty()) {
    unique_function<void()> done = std::move(waiting_.back());
    waiting_.pop_back();
    lock.unlock();
    guarded_call(done, "a server's done callback", loop.counters());
    lock.lock();
  }
  over_ = true;
  changed_.notify_all();
}

void Server::Core::wait() {
  std::unique_lock lock(mutex_);
  // A callback that destroys the server is not waited for.
  changed_.wait(lock, [this] { return over_ || telling_ == std::this_thread::get_id(); });
}

bool Server::Core::stopping() {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

bool Server::Core::on_own_loop() const noexcept {
  return accept_loop_.in_loop_thread() ||
         std::ranges::any_of(parts_, [](const auto& part) { return part->loop.in_loop_thread(); });
}

// --- Server -----------------------------------------------------------------------------------------------

Server::Server(std::shared_ptr<Core> core) noexcept : core_(std::move(core)) {}

Result<Server> Server::start(LoopGroup& loops, ServerOptions options) {
  return start(*loops.loops().front(), loops, std::move(options));
}

Result<Server> Server::start(EventLoop& accept_loop, LoopGroup& loops, ServerOptions options) {
  return start(accept_loop, &loops, loops.loops(), std::move(options));
}

Result<Server> Server::start(EventLoop& loop, ServerOptions options) {
  EventLoop* const single[] = {&loop};
  return start(loop, nullptr, single, std::move(options));
}

Result<Server> Server::start(LoopGroup& loops, Socket listening, ServerOptions options) {
  if (!listening) return Error(errc::invalid_argument, "there is no socket to listen on");
  return start(*loops.loops().front(), &loops, loops.loops(), std::move(options), std::move(listening));
}

Result<Server> Server::start(EventLoop& loop, Socket listening, ServerOptions options) {
  if (!listening) return Error(errc::invalid_argument, "there is no socket to listen on");
  EventLoop* const single[] = {&loop};
  return start(loop, nullptr, single, std::move(options), std::move(listening));
}

Result<Server> Server::start(EventLoop& accept_loop, LoopGroup* group, std::span<EventLoop* const> loops,
                             ServerOptions options, Socket listening) {
  if (options.initializer == nullptr) {
    return Error(errc::invalid_argument, "a server has an initializer, which fills the pipelines");
  }
  if (options.max_connections == 0) {
    return Error(errc::invalid_argument, "max_connections is 0, but a server takes at least one");
  }
  const bool everywhere = options.listen_on_every_loop;
  if (everywhere && listening) {
    return Error(errc::invalid_argument, "listen_on_every_loop: an adopted socket listens on one loop");
  }
  if (everywhere && options.endpoint.is_unix()) {
    return Error(errc::invalid_argument, "listen_on_every_loop: unix sockets cannot share a path, as " +
                                             options.endpoint.to_string());
  }
  const auto core = std::make_shared<Core>(accept_loop, group, loops, std::move(options));
  Status status = everywhere ? core->listen_everywhere() : core->listen(std::move(listening));
  if (!status) return status.error();
  return Server(core);
}

Server& Server::operator=(Server&& other) noexcept {
  std::swap(core_, other.core_);
  return *this;
}

Server::~Server() {
  if (core_ == nullptr) return;
  if (!core_->stopping()) core_->stop(Duration::zero(), nullptr);
  if (!core_->on_own_loop()) core_->wait();
}

const Endpoint& Server::local_endpoint() const noexcept {
  return core_->local_endpoint();
}

std::size_t Server::connections() const noexcept {
  return core_->connections();
}

ServerCounters Server::counters() const noexcept {
  return core_->counters();
}

void Server::stop(Duration deadline, unique_function<void()> done) {
  core_->stop(deadline, std::move(done));
}

}  // namespace linkspan
