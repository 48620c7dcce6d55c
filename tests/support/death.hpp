// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What a process says when it dies: for code that has to abort.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>

namespace linkspan::test {

/// What `run` wrote to stderr and stdout until it aborted, in a process of its own; empty when it did not
/// abort. Fork with one thread only.
template <class Function>
[[nodiscard]] std::string last_words(Function run) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // not doctest's
    const rlimit no_core{};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::dup2(ends[1], STDERR_FILENO);
    ::dup2(ends[1], STDOUT_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    run();
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string words;
  std::array<char, 4096> buffer{};
  for (ssize_t size = 0; (size = ::read(ends[0], buffer.data(), buffer.size())) > 0;) {
    words.append(buffer.data(), static_cast<std::size_t>(size));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? words : "";
}

}  // namespace linkspan::test
