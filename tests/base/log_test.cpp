// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/base/log.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/log_capture.hpp"

using namespace linkspan;
using linkspan::test::LogCapture;

TEST_CASE("the callback gets records from the level on, and no others") {
  const LogCapture captured(LogLevel::info);
  CHECK(log_enabled(LogLevel::info));
  CHECK_FALSE(log_enabled(LogLevel::debug));
  log(LogLevel::debug, "base", "dropped");
  log(LogLevel::info, "base", "kept");
  log(LogLevel::error, "loop", "kept too");
  CHECK(captured.lines() == std::vector<std::string>{"info base: kept", "error loop: kept too"});
}

TEST_CASE("level off drops everything") {
  const LogCapture captured(LogLevel::off);
  log(LogLevel::error, "base", "dropped");
  CHECK(captured.lines().empty());
}

TEST_CASE("a record says where it was made") {
  static SourceLocation seen;
  set_log_callback([](void*, const LogRecord& record) { seen = record.location; }, nullptr);
  log(LogLevel::error, "base", "here");
  const int line = __LINE__ - 1;
  set_log_callback(nullptr, nullptr);
  CHECK(seen.line == line);
  CHECK(std::string(seen.file).find("log_test.cpp") != std::string::npos);
}

TEST_CASE("levels have names") {
  CHECK(to_string(LogLevel::debug) == "debug");
  CHECK(to_string(LogLevel::warning) == "warning");
  CHECK(to_string(LogLevel::off) == "off");
}
