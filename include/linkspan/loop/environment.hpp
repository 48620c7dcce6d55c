// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Environment: what a loop takes from the world around it (time, randomness, threads, names, files), behind
// small interfaces. Programs use Environment::system(); a simulated world passes its own.
// Not for: sockets; those are the Engine's.
// Cost: a virtual call; nothing of it is on the path of data.
// Threads: each interface says so; the system's implementations may be used from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "linkspan/base/clock.hpp"
#include "linkspan/base/result.hpp"
#include "linkspan/base/unique_function.hpp"

namespace linkspan {

class Files;  // loop/files.hpp

class LINKSPAN_API Random {
 public:
  virtual ~Random();
  /// 64 random bits that a peer cannot predict.
  [[nodiscard]] virtual std::uint64_t next() noexcept = 0;
};

/// A running thread; destruction joins it.
class LINKSPAN_API Thread {
 public:
  virtual ~Thread();
};

class LINKSPAN_API Threads {
 public:
  virtual ~Threads();
  /// Runs `body` on a thread called `name` (the system may cut it to 15 characters), bound to `cpu` if one is
  /// given. Fails when the system refuses the thread or the CPU.
  [[nodiscard]] virtual Result<std::unique_ptr<Thread>> start(const std::string& name, std::optional<int> cpu,
                                                              unique_function<void()> body) = 0;
};

class LINKSPAN_API Resolver {
 public:
  virtual ~Resolver();
  /// The numeric addresses of `host`, best first; errc::unresolved when there are none. Blocks: not for a
  /// loop's thread.
  [[nodiscard]] virtual Result<std::vector<std::string>> resolve(const std::string& host) = 0;
};

/// Refers to the parts; they have to outlive every loop that uses them.
struct LINKSPAN_API Environment {
  const Clock& clock;
  Random& random;
  Threads& threads;
  Resolver& resolver;
  Files& files;

  /// The real world; lives for ever.
  [[nodiscard]] static const Environment& system() noexcept;
};

}  // namespace linkspan
