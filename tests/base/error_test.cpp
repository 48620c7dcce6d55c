// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/base/error.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <memory>
#include <set>
#include <string>

#include "linkspan/base/result.hpp"

using namespace linkspan;

TEST_CASE("errc is a condition: codes compare with it, and only with their own") {
  const std::error_code code = make_error_code(errc::timed_out);
  CHECK(code == errc::timed_out);
  CHECK(code != errc::cancelled);
  CHECK(code.category() == error_category());
  CHECK(std::string(code.category().name()) == "linkspan");
  CHECK(std::error_code() != errc::timed_out);
  CHECK(system_error_code(static_cast<int>(errc::timed_out)) != errc::timed_out);
}

TEST_CASE("every errc has a message of its own") {
  std::set<std::string> messages;
  for (int code = static_cast<int>(errc::connection_lost); code <= static_cast<int>(errc::end_of_stream);
       ++code) {
    messages.insert(make_error_code(static_cast<errc>(code)).message());
  }
  CHECK(messages.size() == static_cast<std::size_t>(errc::end_of_stream));
  CHECK(messages.count("unknown error") == 0);
  CHECK(make_error_code(static_cast<errc>(1000)).message() == "unknown error");
}

TEST_CASE("a lost connection keeps the system's errno and equals errc::connection_lost") {
  for (const int system_errno : {ECONNRESET, EPIPE, ETIMEDOUT}) {
    const std::error_code code = connection_lost(system_errno);
    CHECK(code == errc::connection_lost);
    CHECK(code != errc::timed_out);
    CHECK(code.value() == system_errno);
    CHECK(code.message() == "connection lost: " + std::system_category().message(system_errno));
  }
  CHECK(connection_lost(EPIPE) != connection_lost(ECONNRESET));
  CHECK(make_error_code(errc::connection_lost) == errc::connection_lost);
}

TEST_CASE("a connection lost without an errno is an error all the same") {
  const std::error_code code = connection_lost(0);
  CHECK(static_cast<bool>(code));
  CHECK(code == errc::connection_lost);
  CHECK(code.message() == "connection lost");
}

TEST_CASE("an Error's message names the system's reason only where a system call failed") {
  CHECK(Error(errc::invalid_argument, "port 70000 is above 65535").message() == "port 70000 is above 65535");
  const std::error_code denied = system_error_code(EACCES);
  CHECK(Error(denied, "opening x").message() == "opening x: " + denied.message());
}

TEST_CASE("a Result holds a value or an error") {
  Result<int> value = 7;
  CHECK(value.ok());
  CHECK(static_cast<bool>(value));
  CHECK(value.value() == 7);
  value.value() = 8;
  CHECK(std::as_const(value).value() == 8);

  const Result<int> error = Error(errc::unavailable, "no");
  CHECK_FALSE(error.ok());
  CHECK(error.error().code == errc::unavailable);
  CHECK(error.error().detail == "no");

  const Result<int, std::error_code> code = make_error_code(errc::malformed);
  CHECK(code.error() == errc::malformed);
  CHECK(Status(std::monostate()).ok());
}

TEST_CASE("a Result hands out what can only be moved") {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(3);
  const std::unique_ptr<int> taken = std::move(result).value();
  CHECK(*taken == 3);
  CHECK(*Result<std::unique_ptr<int>>(std::make_unique<int>(4)).value_or_throw() == 4);
}

TEST_CASE("the throwing form throws the error's code and message") {
  try {
    static_cast<void>(Result<int>(Error(system_error_code(ENOENT), "opening x")).value_or_throw());
    FAIL("value_or_throw() returned");
  } catch (const Exception& exception) {
    CHECK(exception.code() == std::errc::no_such_file_or_directory);
    CHECK(std::string(exception.what()) == "opening x: " + system_error_code(ENOENT).message());
  }
}
