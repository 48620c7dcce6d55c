// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/embedded_channel.hpp"

namespace linkspan {
namespace {

// Nothing to wait for.
class IdleEngine final : public Engine {
 public:
  std::string_view name() const noexcept override { return "embedded"; }
  bool poll(Duration) noexcept override { return false; }
  void wake() noexcept override {}
  void stop() noexcept override {}
  bool idle() const noexcept override { return true; }
};

}  // namespace

detail::EmbeddedLoop::EmbeddedLoop(EventLoopOptions options)
    : owned_loop(EventLoop::create(
                     [](EventLoop&) -> Result<std::unique_ptr<Engine>> {
                       return std::unique_ptr<Engine>(std::make_unique<IdleEngine>());
                     },
                     std::move(options))
                     .value_or_throw()) {}

EmbeddedChannel::EmbeddedChannel(Watermarks watermarks, bool auto_read, const PendingLimits& limits,
                                 EventLoopOptions loop_options)
    : EmbeddedLoop(std::move(loop_options)), Channel(*owned_loop, watermarks, auto_read, limits) {
  if (loop().pending_budget() != nullptr) static_cast<void>(ref());
}

EmbeddedChannel::~EmbeddedChannel() {
  if (!closed()) end(make_error_code(errc::aborted));
  tick();
}

void EmbeddedChannel::open() {
  report_open();
  tick();
}

void EmbeddedChannel::receive(Chain&& bytes) {
  held_.append(std::move(bytes));
  deliver();
  tick();
}

void EmbeddedChannel::receive(std::string_view text) {
  receive(Chain(Slice::copy(text)));
}

void EmbeddedChannel::receive_end() {
  end_received_ = true;
  deliver();
  tick();
}

void EmbeddedChannel::deliver() {
  if (!receiving_ || closed() || ending_) return;
  if (!held_.empty()) {
    Chain bytes = std::move(held_);
    report_read(std::move(bytes));
  }
  if (!receiving_ || closed() || ending_ || !held_.empty()) return;
  if (std::exchange(end_received_, false)) report_end();
}

void EmbeddedChannel::break_connection(std::error_code error) {
  if (!closed()) end(error);
  tick();
}

Chain EmbeddedChannel::take_sent() {
  Chain sent = std::move(sent_);
  taken_bytes_ += sent.size();
  if (!closed()) {
    complete_all({});
    report_progress();
  }
  tick();
  return sent;
}

void EmbeddedChannel::tick() {
  owned_loop->run_once(Duration::zero());
  deliver();
  if (!closed() && ending_ && sent_.empty()) end(*ending_);
  owned_loop->run_once(Duration::zero());
}

void EmbeddedChannel::send(Chain&& bytes) {
  if (!write_ended_) sent_.append(std::move(bytes));
}

void EmbeddedChannel::send_marker(WriteDone&& done, std::uint64_t) {
  if (!write_ended_) {
    completions_.push_back(std::move(done));
    return;
  }
  static_cast<void>(loop().post(
      [this, done = std::move(done)]() mutable { run([&] { done(make_error_code(errc::shut_down)); }); }));
}

void EmbeddedChannel::send_range(FileRange&& range, WriteDone done) {
  Block block = loop().pool().allocate(static_cast<std::size_t>(range.size));
  const auto read =
      range.file->read_at(block.writable().first(static_cast<std::size_t>(range.size)), range.offset);
  const bool whole = read && read.value() == range.size;
  if (whole) send(Chain(std::move(block).freeze_all(read.value())));
  if (whole && done) send_marker(std::move(done), 0);
  if (whole) return;
  const std::error_code error = read ? make_error_code(errc::truncated) : read.error().code;
  if (done) complete_later(std::move(done), error);
  do_abort();
  ending_ = error;
}

void EmbeddedChannel::send_descriptors(WithDescriptors&& message, WriteDone done) {
  send(std::move(message.data));
  for (Socket& descriptor : message.descriptors) descriptors_.push_back(std::move(descriptor));
  if (done) send_marker(std::move(done), 0);
}

void EmbeddedChannel::do_receive_into(Block&& memory, std::size_t, ReceiveCompletion completion) {
  static_cast<void>(loop().post([memory = std::move(memory), completion = std::move(completion)]() mutable {
    completion(make_error_code(errc::unavailable), std::move(memory), 0);
  }));
}

void EmbeddedChannel::do_close(Duration) {
  write_ended_ = true;
  ending_ = std::error_code();
}

void EmbeddedChannel::do_abort() {
  write_ended_ = true;
  sent_.clear();
  ending_ = make_error_code(errc::aborted);
}

void EmbeddedChannel::complete_all(std::error_code error) {
  std::deque<WriteDone> completions = std::exchange(completions_, {});
  for (WriteDone& done : completions) run([&] { done(error); });
}

void EmbeddedChannel::end(std::error_code error) {
  close_error_ = reason() ? reason() : error;
  begin_closed();
  complete_all(error == errc::aborted ? make_error_code(errc::cancelled) : error);
  report_closed(error);
}

}  // namespace linkspan
