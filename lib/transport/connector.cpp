// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/connector.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "lib/transport/transport_core.hpp"
#include "linkspan/base/log.hpp"

namespace linkspan {
namespace {

// RFC 8305, section 8.
constexpr Duration kDelayLeast = std::chrono::milliseconds(10);
constexpr Duration kDelayMost = std::chrono::seconds(2);

// This host has no way to such an address: that says less than what any other one has answered.
bool is_unreachable(int error) noexcept {
  return error == ENETUNREACH || error == EADDRNOTAVAIL || error == EAFNOSUPPORT;
}

}  // namespace

std::vector<Endpoint> interleave_families(std::vector<Endpoint> endpoints) {
  std::vector<std::vector<Endpoint>> families;
  for (const Endpoint& endpoint : endpoints) {
    const auto same = std::ranges::find_if(
        families, [&](const auto& family) { return family.front().family() == endpoint.family(); });
    if (same != families.end()) {
      same->push_back(endpoint);
    } else {
      families.push_back({endpoint});
    }
  }
  std::vector<Endpoint> in_turn;
  for (std::size_t round = 0; in_turn.size() < endpoints.size(); ++round) {
    for (const std::vector<Endpoint>& family : families) {
      if (round < family.size()) in_turn.push_back(family[round]);
    }
  }
  return in_turn;
}

// --- ConnectAttempt

ConnectAttempt::ConnectAttempt(TransportCore& transport, AttemptSetup setup) noexcept
    : SocketCore(transport),
      socket_(std::move(setup.socket)),
      peer_(setup.peer),
      connector_(&setup.connector),
      stream_(setup.stream) {}

void ConnectAttempt::begin() {
  stream_.operation_started();
  start();
}

void ConnectAttempt::give_up() {
  connector_ = nullptr;
  cancel();
}

void ConnectAttempt::report(int error) {
  if (Connector* connector = std::exchange(connector_, nullptr)) {
    connector->attempt_ended(*this, socket_, error);
  }
  if (socket_) {
    transport().sockets().before_close(descriptor(), false);
    socket_.close();
  }
  transport().bury(*this);
  stream_.operation_finished();
}

// --- Connector

Connector::Connector(StreamCore& stream, std::vector<Endpoint> peers, const StreamOptions& options)
    : stream_(stream),
      transport_(stream.transport()),
      options_(options),
      peers_(interleave_families(std::move(peers))),
      delay_(stream.transport().loop(), [this] { advance(); }) {}

bool Connector::to_unix_only() const noexcept {
  return std::ranges::all_of(peers_, [](const Endpoint& peer) { return peer.is_unix(); });
}

void Connector::start() {
  started_ = true;
  advance();
}

// The newest attempt has failed, or has been waited for long enough.
void Connector::advance() {
  if (advancing_) return;  // it has failed inside start_next, below
  advancing_ = true;
  newest_ = nullptr;
  while (!outcome_ && newest_ == nullptr && next_ < peers_.size()) start_next();
  advancing_ = false;
  if (outcome_) return;
  if (next_ < peers_.size()) {
    delay_.start(std::clamp(options_.connect_attempt_delay, kDelayLeast, kDelayMost));
  } else if (attempts_.empty()) {
    outcome_ = Outcome{Socket(), Endpoint(), error_};
    stream_.mark_dirty();
  }
}

void Connector::start_next() {
  const Endpoint& peer = peers_[next_++];
  if (peer.family() == AF_UNSPEC) {
    note_failure(make_error_code(errc::invalid_argument), true);
    return;
  }
  Result<Socket> socket = transport_.sockets().make_connecting(peer, options_);
  if (!socket) {
    log(LogLevel::warning, "transport", socket.error().message());
    note_failure(socket.error().code, true);
    return;
  }
  ConnectAttempt& attempt = transport_.add_attempt({std::move(socket).value(), peer, *this, stream_});
  attempts_.push_back(attempt);
  newest_ = &attempt;
  attempt.begin();
}

void Connector::attempt_ended(ConnectAttempt& attempt, Socket& socket, int error) {
  static_cast<ListNode<AttemptTag>&>(attempt).unlink();
  if (newest_ == &attempt) newest_ = nullptr;
  if (error != 0) {
    note_failure(system_error_code(error), is_unreachable(error));
    if (newest_ == nullptr) advance();
    return;
  }
  cancel();
  outcome_ = Outcome{std::move(socket), attempt.peer_, {}};
  stream_.mark_dirty();
}

void Connector::note_failure(std::error_code error, bool unreachable) {
  if (unreachable && !unreachable_) return;
  error_ = error;
  unreachable_ = unreachable;
}

void Connector::cancel() noexcept {
  delay_.cancel();
  while (!attempts_.empty()) attempts_.pop_front().give_up();
}

}  // namespace linkspan
