// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "linkspan/base/log.hpp"
#include "linkspan/transport/transport.hpp"

namespace linkspan {
namespace {

constexpr const char* kVariable = "LINKSPAN_TRANSPORT";

/// Sets the variable, or removes it, and puts back what was there. No other thread runs meanwhile.
class ScopedVariable {
 public:
  explicit ScopedVariable(const char* value) {
    if (const char* now = std::getenv(kVariable)) before_ = now;
    set(value);
  }
  ~ScopedVariable() { set(before_ ? before_->c_str() : nullptr); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  static void set(const char* value) {
    if (value != nullptr) {
      ::setenv(kVariable, value, 1);
    } else {
      ::unsetenv(kVariable);
    }
  }
  std::optional<std::string> before_;
};

class CapturedLog {
 public:
  CapturedLog() {
    set_log_callback(
        [](void* context, const LogRecord& record) noexcept {
          static_cast<CapturedLog*>(context)->lines.emplace_back(record.message);
        },
        this);
    set_log_level(LogLevel::info);
  }
  ~CapturedLog() {
    set_log_callback(nullptr, nullptr);
    set_log_level(LogLevel::warning);
  }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  [[nodiscard]] bool has(std::string_view text) const {
    return std::ranges::any_of(lines, [&](const std::string& line) { return line.find(text) != line.npos; });
  }

  std::vector<std::string> lines;
};

std::string chosen(std::string_view name) {
  Result<EngineFactory> engine = transport_engine(name);
  REQUIRE(engine.ok());
  const std::unique_ptr<EventLoop> loop = EventLoop::create(engine.value()).value_or_throw();
  return std::string(loop->engine().name());
}

}  // namespace

TEST_CASE("each transport of the build can be asked for by name") {
  const ScopedVariable variable(nullptr);
  CHECK_FALSE(transport_names().empty());
  for (const std::string_view name : transport_names()) {
    CHECK(chosen(name) == name);
    const std::unique_ptr<EventLoop> loop =
        EventLoop::create(transport_engine(name).value()).value_or_throw();
    CHECK(&Transport::of(*loop) == &loop->engine());
    CHECK_FALSE(Transport::of(*loop).capabilities().empty());
  }
}

TEST_CASE("an unknown transport is refused with what was expected") {
  const Result<EngineFactory> engine = transport_engine("kqueue");
  REQUIRE_FALSE(engine.ok());
  CHECK(engine.error().code == errc::invalid_argument);
  CHECK(engine.error().message() ==
        "transport \"kqueue\" is unknown (expected io_uring, epoll, asio or auto)");
}

TEST_CASE("a transport that is not in the build is refused as unavailable") {
  const std::vector<std::string_view> built = transport_names();
  for (const std::string_view name : {"io_uring", "epoll", "asio"}) {
    if (std::ranges::find(built, name) != built.end()) continue;
    const Result<EngineFactory> engine = transport_engine(name);
    REQUIRE_FALSE(engine.ok());
    CHECK(engine.error().code == errc::unavailable);
    CHECK(engine.error().message().find("\"" + std::string(name) + "\" is not in this build") !=
          std::string::npos);
  }
}

TEST_CASE("LINKSPAN_TRANSPORT replaces auto and the empty name, but no name that was asked for") {
  const std::string_view last = transport_names().back();
  const ScopedVariable variable(std::string(last).c_str());
  CHECK(chosen("auto") == last);
  CHECK(chosen("") == last);
  CHECK(chosen(transport_names().front()) == transport_names().front());
}

TEST_CASE("a wrong LINKSPAN_TRANSPORT is an error that names the variable") {
  const ScopedVariable variable("telepathy");
  const Result<EngineFactory> engine = transport_engine();
  REQUIRE_FALSE(engine.ok());
  CHECK(engine.error().code == errc::invalid_argument);
  CHECK(engine.error().message().find("LINKSPAN_TRANSPORT \"telepathy\" is unknown") == 0);
}

TEST_CASE("an empty LINKSPAN_TRANSPORT means auto, and so does auto itself") {
  for (const char* value : {"", "auto"}) {
    const ScopedVariable variable(value);
    CHECK(std::ranges::count(transport_names(), chosen("auto")) == 1);
  }
}

TEST_CASE("auto logs what it chose, and why it passed over what comes before") {
  const ScopedVariable variable(nullptr);
  CapturedLog log;
  const std::string name = chosen("auto");
  CHECK(log.has(name + " chosen"));
  for (const std::string_view candidate : {"io_uring", "epoll", "asio"}) {
    if (candidate == name) break;
    CHECK(log.has(std::string(candidate) + " passed over: "));
  }
}

}  // namespace linkspan
