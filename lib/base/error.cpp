// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/base/error.hpp"

#include "lib/base/never_destroyed.hpp"

namespace linkspan {
namespace {

const char* text(errc code) noexcept {
  switch (code) {
    case errc::connection_lost: return "connection lost";
    case errc::shut_down: return "the sending side is shut down";
    case errc::cancelled: return "cancelled";
    case errc::aborted: return "aborted";
    case errc::timed_out: return "deadline passed";
    case errc::pool_exhausted: return "block pool exhausted";
    case errc::limit_exceeded: return "limit exceeded";
    case errc::truncated: return "input truncated";
    case errc::malformed: return "malformed input";
    case errc::invalid_argument: return "invalid argument";
    case errc::unavailable: return "unavailable";
    case errc::unresolved: return "the name could not be resolved";
    case errc::stopped: return "the loop is stopping";
    case errc::handler_failed: return "a callback threw an exception";
    case errc::unhandled: return "a message that no handler takes";
    case errc::end_of_stream: return "the end of the stream";
  }
  return "unknown error";
}

class LinkspanCategory final : public std::error_category {
 public:
  const char* name() const noexcept override { return "linkspan"; }
  std::string message(int code) const override { return text(static_cast<errc>(code)); }
};

// Codes of this category are errnos, and every one of them is errc::connection_lost.
class ConnectionLostCategory final : public std::error_category {
 public:
  const char* name() const noexcept override { return "linkspan.connection_lost"; }
  std::string message(int code) const override {
    return std::string(text(errc::connection_lost)) + ": " + std::system_category().message(code);
  }
  std::error_condition default_error_condition(int) const noexcept override {
    return make_error_condition(errc::connection_lost);
  }
};

}  // namespace

const std::error_category& error_category() noexcept {
  static NeverDestroyed<LinkspanCategory> category;
  return category.get();
}

std::error_code connection_lost(int system_errno) noexcept {
  static NeverDestroyed<ConnectionLostCategory> category;
  // A code with the value 0 would say that nothing is wrong.
  if (system_errno == 0) return make_error_code(errc::connection_lost);
  return {system_errno, category.get()};
}

std::string Error::message() const {
  const bool from_system = code.category() == std::system_category();
  return from_system ? detail + ": " + code.message() : detail;
}

Exception::Exception(const Error& error) : std::runtime_error(error.message()), code_(error.code) {}
Exception::~Exception() = default;

}  // namespace linkspan
