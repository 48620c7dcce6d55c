// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Handlers that tests of datagram channels use.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linkspan/channel/datagram_channel.hpp"

namespace linkspan::test {

/// A message, and who sent it or is to get it.
struct Note {
  std::string text;
  Endpoint peer;
};

class NoteCodec final : public Codec<Packet, Note> {
 public:
  void on_read(Packet&& packet) override { pass({packet.data.to_string(), packet.peer}); }
  void on_write(Note&& note) override { write({Chain(Slice::copy(note.text)), note.peer}); }
};

/// What a channel's last handler has seen. Shared, since the channel may outlive the test's body.
struct Seen {
  std::vector<std::string> events;  ///< but for messages
  std::vector<std::string> texts;
  std::vector<Endpoint> peers;
  std::vector<std::pair<std::error_code, Endpoint>> refusals;
  std::vector<std::error_code> errors;
  std::error_code inactive;
  /// What the test does inside an event.
  std::function<void(std::string_view event, Channel& channel)> during;

  [[nodiscard]] std::size_t count(std::string_view event) const {
    std::size_t found = 0;
    for (const std::string& each : events) found += each == event ? 1 : 0;
    return found;
  }
  [[nodiscard]] bool closed() const { return count("inactive") != 0; }
};

class NoteProbe final : public Service<Note> {
 public:
  explicit NoteProbe(std::shared_ptr<Seen> seen) : seen_(std::move(seen)) {}

  void on_active() override { saw("active"); }
  void on_read(Note&& note) override {
    seen_->texts.push_back(std::move(note.text));
    seen_->peers.push_back(note.peer);
    if (seen_->during) seen_->during("read", channel());
  }
  void on_error(std::error_code error, std::string_view detail) override {
    seen_->errors.push_back(error);
    saw("error");
    pass_error(error, detail);
  }
  void on_refused(std::error_code error, const Endpoint& peer) override {
    seen_->refusals.emplace_back(error, peer);
    saw("refused");
  }
  void on_drain(Duration deadline) override {
    saw("drain");
    pass_drain(deadline);
  }
  void on_writable_changed(bool writable) override { saw(writable ? "writable" : "not writable"); }
  void on_read_resumed() override { saw("resumed"); }
  void on_inactive(std::error_code error) override {
    seen_->inactive = error;
    saw("inactive");
  }

 private:
  void saw(std::string_view event) {
    seen_->events.emplace_back(event);
    if (seen_->during) seen_->during(event, channel());
  }

  std::shared_ptr<Seen> seen_;
};

/// Sends one packet for each word of a note.
class WordsCodec final : public Codec<Packet, Note> {
 public:
  void on_read(Packet&& packet) override { pass({packet.data.to_string(), packet.peer}); }
  void on_write(Note&& note) override {
    std::size_t begin = 0;
    while (begin < note.text.size()) {
      const std::size_t end = std::min(note.text.find(' ', begin), note.text.size());
      write({Chain(Slice::copy(note.text.substr(begin, end - begin))), note.peer});
      begin = end + 1;
    }
  }
};

}  // namespace linkspan::test
