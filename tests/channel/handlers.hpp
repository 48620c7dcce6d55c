// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Handlers that several tests of pipelines use.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "linkspan/channel/channel.hpp"

namespace linkspan::test {

/// Text in lines; keeps what has no end yet. Keeps to pauses, as decoders do.
class Lines final : public Codec<Chain, std::string> {
 public:
  void on_read(Chain&& data) override {
    buffer_ += data.to_string();
    decode();
  }
  void on_read_resumed() override { decode(); }
  void on_write(std::string&& line) override { write(Chain(Slice::adopt(std::move(line) + "\n"))); }
  Chain take_unread() override {
    return buffer_.empty() ? Chain() : Chain(Slice::adopt(std::exchange(buffer_, {})));
  }

 private:
  void decode();

  std::string buffer_;
};

inline void Lines::decode() {
  std::size_t end;
  while (!removed() && channel().reading() && (end = buffer_.find('\n')) != std::string::npos) {
    std::string line = buffer_.substr(0, end);
    buffer_.erase(0, end + 1);
    pass(std::move(line));
  }
}

/// Answers each line with itself.
class Echo final : public Service<std::string> {
 public:
  void on_read(std::string&& line) override { write(std::move(line)); }
};

/// Records what a last handler hears, as words.
class Recorder final : public Service<std::string> {
 public:
  explicit Recorder(std::vector<std::string>& log) : log_(log) {}
  void on_added() override { log_.emplace_back("added"); }
  void on_removed() override { log_.emplace_back("removed"); }
  void on_active() override { log_.emplace_back("active"); }
  void on_read(std::string&& line) override { log_.push_back("read " + line); }
  void on_read_end() override {
    log_.emplace_back("end");
    pass_read_end();
  }
  void on_inactive(std::error_code error) override { log_.push_back("inactive " + error.message()); }
  void on_error(std::error_code error, std::string_view detail) override {
    log_.push_back("error " + error.message() + ": " + std::string(detail));
  }

 private:
  std::vector<std::string>& log_;
};

}  // namespace linkspan::test
