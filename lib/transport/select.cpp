// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Which transport a loop gets.
#include <algorithm>
#include <cstdlib>
#include <span>
#include <string>

#include "linkspan/base/log.hpp"
#include "linkspan/transport/transport.hpp"
#if LINKSPAN_HAVE_IO_URING
#include "lib/transport/uring/uring_transport.hpp"
#endif
#if LINKSPAN_HAVE_EPOLL
#include "lib/transport/epoll/epoll_transport.hpp"
#endif
#if LINKSPAN_HAVE_ASIO
#include "lib/transport/asio/asio_transport.hpp"
#endif

namespace linkspan {
namespace {

using Make = Result<std::unique_ptr<Engine>> (*)(EventLoop&);

struct Candidate {
  std::string_view name;
  Make make;  // nullptr: not in this build
};

// In the order in which `auto` tries them.
constexpr Candidate kCandidates[] = {
#if LINKSPAN_HAVE_IO_URING
    {"io_uring", &make_uring_transport},
#else
    {"io_uring", nullptr},
#endif
#if LINKSPAN_HAVE_EPOLL
    {"epoll", &make_epoll_transport},
#else
    {"epoll", nullptr},
#endif
#if LINKSPAN_HAVE_ASIO
    {"asio", &make_asio_transport},
#else
    {"asio", nullptr},
#endif
};

Result<std::unique_ptr<Engine>> make_first_that_works(EventLoop& loop) {
  std::string reasons;
  for (const Candidate& candidate : kCandidates) {
    std::string reason = "not in this build";
    if (candidate.make != nullptr) {
      Result<std::unique_ptr<Engine>> made = candidate.make(loop);
      if (made) {
        log(LogLevel::info, "transport", loop.name() + ": " + std::string(candidate.name) + " chosen");
        return made;
      }
      reason = made.error().message();
    }
    log(LogLevel::info, "transport",
        loop.name() + ": " + std::string(candidate.name) + " passed over: " + reason);
    reasons += (reasons.empty() ? "" : "; ") + std::string(candidate.name) + ": " + reason;
  }
  return Error(errc::unavailable, "no transport can be set up (" + reasons + ")");
}

}  // namespace

std::vector<std::string_view> transport_names() {
  std::vector<std::string_view> names;
  for (const Candidate& candidate : kCandidates) {
    if (candidate.make != nullptr) names.push_back(candidate.name);
  }
  return names;
}

Result<EngineFactory> transport_engine(std::string_view name) {
  std::string source = "transport";
  if (name.empty() || name == "auto") {
    const char* variable = std::getenv("LINKSPAN_TRANSPORT");
    name = variable != nullptr && *variable != '\0' ? variable : "auto";
    source = "LINKSPAN_TRANSPORT";
  }
  if (name == "auto") return EngineFactory(&make_first_that_works);
  const auto* const candidate = std::ranges::find(kCandidates, name, &Candidate::name);
  if (candidate == std::end(kCandidates)) {
    return Error(errc::invalid_argument, source + " \"" + std::string(name) +
                                             "\" is unknown (expected io_uring, epoll, asio or auto)");
  }
  if (candidate->make == nullptr) {
    return Error(errc::unavailable, source + " \"" + std::string(name) + "\" is not in this build");
  }
  return EngineFactory([candidate](EventLoop& loop) -> Result<std::unique_ptr<Engine>> {
    Result<std::unique_ptr<Engine>> made = candidate->make(loop);
    if (!made)
      return Error(made.error().code,
                   "transport " + std::string(candidate->name) + ": " + made.error().detail);
    return made;
  });
}

}  // namespace linkspan
