// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Messages with a number, which Requests can tell apart.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "linkspan/channel/handler.hpp"
#include "linkspan/channel/requests.hpp"

namespace linkspan::test {

// "ID text\n"
struct Numbered {
  std::uint64_t id = 0;
  std::string text;
};

class NumberedLines final : public Codec<Chain, Numbered> {
 public:
  void on_read(Chain&& data) override {
    buffer_ += data.to_string();
    for (std::size_t end; !removed() && (end = buffer_.find('\n')) != std::string::npos;) {
      const std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      pass({std::stoull(line), line.substr(line.find(' ') + 1)});
    }
  }
  void on_write(Numbered&& message) override {
    write(Chain(Slice::adopt(std::to_string(message.id) + " " + message.text + "\n")));
  }

 private:
  std::string buffer_;
};

struct Ids {
  static void set(Numbered& request, std::uint64_t id) { request.id = id; }
  static std::uint64_t get(const Numbered& response) { return response.id; }
};
using Questions = Requests<Numbered, Numbered, Ids>;

}  // namespace linkspan::test
