// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "session.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "command.hpp"
#include "linkspan/channel/timeouts.hpp"

namespace linkspan::cache {
namespace {

// Replies that have become so many leave while there are commands left of a read.
constexpr std::size_t kReplyMostBytes = std::size_t{64} << 10;
// A reply of a few bytes keeps a block: so writes are bounded by their number, too.
constexpr std::size_t kWritesMost = 64;
// Of an unfinished command; larger ones may not take what is left of the loop's memory.
constexpr std::size_t kUnfinishedBytes = std::size_t{64} << 10;

/// The first handler: knows when a read is over.
class Intake final : public Handler<Chain, Chain, Chain, Chain> {
 public:
  explicit Intake(Session& session) : session_(session) {}
  void on_read(Chain&& bytes) override {
    pass(std::move(bytes));
    session_.read_done();
  }

 private:
  Session& session_;
};

}  // namespace

Status Session::open(Channel& channel, Cache& cache, LoopPart& part) {
  RespCommandLimits limits;
  limits.max_bulk_bytes = cache.settings.proto_max_bulk_len;
  limits.max_command_bytes = cache.settings.client_query_buffer_limit;
  auto decoder = std::make_unique<RespCommandDecoder>(limits);
  auto session = std::make_unique<Session>(cache, part, *decoder);
  auto intake = std::make_unique<Intake>(*session);
  if (cache.settings.timeout != 0) {
    const auto idle = std::chrono::seconds(cache.settings.timeout);
    if (Status status = channel.pipeline().append(std::make_unique<IdleTimeout>(idle)); !status) {
      return status;
    }
  }
  return channel.pipeline().append(std::move(intake), std::move(decoder), std::move(session));
}

Session::Session(Cache& cache, LoopPart& part, RespCommandDecoder& decoder)
    : cache_(cache),
      part_(part),
      decoder_(decoder),
      id_(cache.next_client_id.fetch_add(1, std::memory_order_relaxed)),
      authenticated_(cache.settings.requirepass.empty()) {
  decoder_.restrict_unauthenticated(!authenticated_);
}

void Session::on_active() {
  counted_ = true;
  if (cache_.clients.fetch_add(1, std::memory_order_relaxed) < cache_.settings.maxclients) {
    cache_.connections.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  cache_.connections_refused.fetch_add(1, std::memory_order_relaxed);
  part_.reply->error("ERR max number of clients reached");
  closing_ = true;
  send_replies();
}

void Session::on_inactive(std::error_code) {
  if (counted_) cache_.clients.fetch_sub(1, std::memory_order_relaxed);
}

// --- commands ---------------------------------------------------------------------------------------------

void Session::on_read(RespCommand&& command) {
  part_.reply->set_version(version_);
  try {
    run(command);
  } catch (...) {  // the channel closes; the next session must not find half a reply
    discard_replies();
    throw;
  }
  if (closing_ || part_.reply->size() >= kReplyMostBytes) send_replies();
}

void Session::run(RespCommand& command) {
  part_.commands.add(1);
  Call call{command, *part_.reply, cache_, *this};
  const Command* const found = find_command(call[0]);
  if (found == nullptr) {
    unknown_command(call);
  } else if (!found->fits(command.size())) {
    wrong_number_of_arguments(call, found->name);
  } else if (!authenticated_ && (found->flags & kBeforeAuth) == 0) {
    call.reply.error("NOAUTH Authentication required.");
  } else {
    found->run(call);
  }
}

bool Session::set_name(std::string_view name) {
  if (std::ranges::any_of(name, [](char c) { return c < '!' || c > '~'; })) return false;
  name_ = name;
  return true;
}

bool Session::authenticate(std::string_view user, std::string_view password) {
  const std::string& expected = cache_.settings.requirepass;
  // Takes the same time wherever they differ.
  std::size_t differences = password.size() == expected.size() ? 0 : 1;
  for (std::size_t i = 0; i != password.size() && !expected.empty(); ++i) {
    differences += password[i] == expected[i % expected.size()] ? 0 : 1;
  }
  if (user != "default" || (!expected.empty() && differences != 0)) return false;
  authenticated_ = true;
  decoder_.restrict_unauthenticated(false);
  return true;
}

// --- replies ----------------------------------------------------------------------------------------------

void Session::read_done() {
  send_replies();
  const std::size_t unfinished_bytes = decoder_.undecoded().size();
  if (unfinished_bytes <= kUnfinishedBytes || channel().ended() || !channel().reading()) return;
  // Whoever is in the middle of a large command ends before the loop has nothing left to receive into.
  const BlockPool& pool = part_.loop.pool();
  if (pool.statistics().live_bytes > pool.options().budget_bytes / 4 * 3) {
    on_error(make_error_code(errc::limit_exceeded), "Protocol error: no memory for so large a command");
  }
}

void Session::send_replies() {
  RespWriter& reply = *part_.reply;
  if (reply.error_code()) {
    discard_replies();
    channel().fail(make_error_code(errc::pool_exhausted), "no block for a reply");
    return;
  }
  if (reply.size() != 0) {
    writes_queued_ = channel().queued_bytes() == 0 ? 1 : writes_queued_ + 1;
    write(reply.take());
    wait_for_room();
  }
  if (closing_) channel().close();
}

void Session::wait_for_room() {
  if (!paused_ && !channel().writable()) {
    paused_ = true;
    channel().pause_read();
  }
  if (!waiting_ && writes_queued_ > kWritesMost) {
    waiting_ = true;
    channel().pause_read();
    write(Chain(), [this](std::error_code) {  // a channel that is alive has its handlers
      waiting_ = false;
      channel().resume_read();
    });
  }
}

void Session::on_writable_changed(bool writable) {
  if (writable == !paused_) return;
  paused_ = !writable;
  if (writable) {
    channel().resume_read();
  } else {
    channel().pause_read();
  }
}

void Session::on_error(std::error_code error, std::string_view detail) {
  if (error == errc::truncated) return channel().close();
  if (!detail.starts_with("Protocol error")) return pass_error(error, detail);
  part_.errors.add(1);
  part_.reply->error("ERR " + std::string(detail));
  closing_ = true;
  send_replies();
}

}  // namespace linkspan::cache
