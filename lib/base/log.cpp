// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/base/log.hpp"

#include <array>
#include <atomic>
#include <cstdio>
#include <exception>

#include "lib/base/log_exception.hpp"

namespace linkspan {
namespace {

void log_to_stderr(void*, const LogRecord& record) {
  std::fprintf(stderr, "linkspan %.*s [%.*s] %.*s\n", static_cast<int>(to_string(record.level).size()),
               to_string(record.level).data(), static_cast<int>(record.room.size()), record.room.data(),
               static_cast<int>(record.message.size()), record.message.data());
}

std::atomic<LogLevel> g_level{LogLevel::warning};
std::atomic<LogCallback> g_callback{&log_to_stderr};
std::atomic<void*> g_context{nullptr};

}  // namespace

void set_log_callback(LogCallback callback, void* context) noexcept {
  g_context.store(context, std::memory_order_relaxed);
  g_callback.store(callback != nullptr ? callback : &log_to_stderr, std::memory_order_release);
}

void set_log_level(LogLevel level) noexcept {
  g_level.store(level, std::memory_order_relaxed);
}

bool log_enabled(LogLevel level) noexcept {
  return level >= g_level.load(std::memory_order_relaxed);
}

void log(LogLevel level, std::string_view room, std::string_view message, SourceLocation location) noexcept {
  if (!log_enabled(level)) return;
  const LogCallback callback = g_callback.load(std::memory_order_acquire);
  callback(g_context.load(std::memory_order_relaxed), LogRecord{level, room, message, location});
}

void log_exception(std::string_view room, std::string_view callback) noexcept {
  std::array<char, 512> message;
  const auto write = [&](const char* what) {
    std::snprintf(message.data(), message.size(), "%.*s threw: %s", static_cast<int>(callback.size()),
                  callback.data(), what);
  };
  try {
    throw;
  } catch (const std::exception& exception) {
    write(exception.what());
  } catch (...) {
    write("something that is not a std::exception");
  }
  log(LogLevel::error, room, message.data());
}

std::string_view to_string(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::debug: return "debug";
    case LogLevel::info: return "info";
    case LogLevel::warning: return "warning";
    case LogLevel::error: return "error";
    case LogLevel::off: break;
  }
  return "off";
}

}  // namespace linkspan
