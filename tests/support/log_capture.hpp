// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Collects what the library logs while it lives, instead of printing it.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "linkspan/base/log.hpp"

namespace linkspan::test {

class LogCapture {
 public:
  explicit LogCapture(LogLevel level = LogLevel::warning) {
    set_log_level(level);
    set_log_callback(&collect, this);
  }
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;
  ~LogCapture() {
    set_log_callback(nullptr, nullptr);
    set_log_level(LogLevel::warning);
  }

  /// "level room: message" of each record so far.
  [[nodiscard]] std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  [[nodiscard]] bool contains(std::string_view text) const {
    const std::lock_guard lock(mutex_);
    for (const std::string& line : lines_) {
      if (line.find(text) != std::string::npos) return true;
    }
    return false;
  }

 private:
  static void collect(void* context, const LogRecord& record) {
    auto& self = *static_cast<LogCapture*>(context);
    const std::lock_guard lock(self.mutex_);
    self.lines_.push_back(std::string(to_string(record.level)) + " " + std::string(record.room) + ": " +
                          std::string(record.message));
  }

  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace linkspan::test
