// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Connector: which addresses a stream tries to connect to, and when (RFC 8305, "Happy Eyeballs"). The next
// attempt begins when the one before it has failed, or has not answered for the connection attempt delay; the
// first that succeeds wins, and the others are given up. Owned by the stream until that is decided.
#pragma once

#include <cstddef>
#include <optional>
#include <system_error>
#include <vector>

#include "lib/transport/connect_attempt.hpp"
#include "linkspan/loop/timer.hpp"
#include "linkspan/transport/stream.hpp"

namespace linkspan {

class TransportCore;

/// `endpoints` with the families in turn, the first one's first; those of a family keep their order.
[[nodiscard]] std::vector<Endpoint> interleave_families(std::vector<Endpoint> endpoints);

class Connector {
 public:
  Connector(StreamCore& stream, std::vector<Endpoint> peers, const StreamOptions& options);

  /// The outcome is there when this returns, or the stream is marked dirty when it is.
  void start();
  [[nodiscard]] bool started() const noexcept { return started_; }

  struct Outcome {
    Socket socket;  // connected
    Endpoint peer;
    std::error_code error;
  };
  /// Once there is one it is over: nothing is left that the stream would have to wait for, but operations.
  [[nodiscard]] std::optional<Outcome> take_outcome() noexcept {
    std::optional<Outcome> outcome = std::move(outcome_);
    outcome_.reset();
    return outcome;
  }

  [[nodiscard]] const StreamOptions& options() const noexcept { return options_; }

  /// Gives up what is in flight; there is no outcome then.
  void cancel() noexcept;

  /// Whatever answers, it will be a unix socket.
  [[nodiscard]] bool to_unix_only() const noexcept;

 private:
  friend class ConnectAttempt;

  void advance();
  void start_next();
  void attempt_ended(ConnectAttempt& attempt, Socket& socket, int error);
  void note_failure(std::error_code error, bool unreachable);

  StreamCore& stream_;
  TransportCore& transport_;
  const StreamOptions options_;
  const std::vector<Endpoint> peers_;
  std::size_t next_ = 0;                                // of peers_
  IntrusiveList<ConnectAttempt, AttemptTag> attempts_;  // in flight
  ConnectAttempt* newest_ = nullptr;                    // of these, while it keeps the next one waiting
  Timer delay_;
  std::error_code error_;    // of the failure to be told
  bool unreachable_ = true;  // it only says that this host has no way there
  bool started_ = false;
  bool advancing_ = false;
  std::optional<Outcome> outcome_;
};

}  // namespace linkspan
