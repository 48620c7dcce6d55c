// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Session: one connection of linkspan-cached, the last handler of its pipeline:
//
//   Intake, RespCommandDecoder, Session
//
// Commands run at once. Their replies gather in the loop's writer and leave together, when all that one read
// has brought is decoded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cache.hpp"
#include "linkspan/channel/channel.hpp"
#include "linkspan/codec/resp_command.hpp"

namespace linkspan::cache {

class Session final : public Service<RespCommand, Chain> {
 public:
  /// Fills the pipeline of a new connection.
  static Status open(Channel& channel, Cache& cache, LoopPart& part);

  Session(Cache& cache, LoopPart& part, RespCommandDecoder& decoder);

  void on_active() override;
  void on_read(RespCommand&& command) override;
  void on_read_resumed() override { send_replies(); }
  void on_error(std::error_code error, std::string_view detail) override;
  void on_writable_changed(bool writable) override;
  void on_inactive(std::error_code error) override;

  /// All that was read is decoded.
  void read_done();

  // For commands.
  [[nodiscard]] std::int64_t id() const noexcept { return id_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// False when a client cannot be called that.
  [[nodiscard]] bool set_name(std::string_view name);
  [[nodiscard]] bool authenticated() const noexcept { return authenticated_; }
  /// False when that is not the password, or not the user.
  [[nodiscard]] bool authenticate(std::string_view user, std::string_view password);
  void set_version(RespVersion version) noexcept { version_ = version; }
  [[nodiscard]] RespVersion version() const noexcept { return version_; }
  void close_after_reply() noexcept { closing_ = true; }

 private:
  void run(RespCommand& command);
  void send_replies();
  void wait_for_room();
  void discard_replies() { part_.reply.emplace(part_.loop.pool()); }

  Cache& cache_;
  LoopPart& part_;
  RespCommandDecoder& decoder_;  // in the same pipeline
  std::int64_t id_;
  std::string name_;
  std::size_t writes_queued_ = 0;  // since nothing was queued
  RespVersion version_ = RespVersion::two;
  bool authenticated_;
  bool counted_ = false;  // among the clients
  bool closing_ = false;
  bool paused_ = false;   // because the peer does not read
  bool waiting_ = false;  // for all that is queued to be sent
};

}  // namespace linkspan::cache
