// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What the tests of Server and Client need around them: loops on each transport, blocking sockets of the
// other side, and a place where handlers on loops leave what they saw for the test's thread.
#pragma once

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "linkspan/loop/loop_group.hpp"
#include "linkspan/transport/endpoint.hpp"
#include "linkspan/transport/transport.hpp"

namespace linkspan::test {

/// Runs `body` with a group of loops on each transport that this machine can set up.
inline void on_every_transport(std::size_t size, const std::function<void(LoopGroup&)>& body) {
  for (const std::string_view name : transport_names()) {
    CAPTURE(name);
    LoopGroupOptions options;
    options.size = size;
    auto group = LoopGroup::create(transport_engine(name).value_or_throw(), options);
    if (!group) {
      MESSAGE("left out: " << group.error().message());
      continue;
    }
    body(*group.value());
  }
}

inline Endpoint loopback(std::uint16_t port = 0) {
  return Endpoint::parse("127.0.0.1:" + std::to_string(port)).value_or_throw();
}

/// A blocking socket.
class Peer {
 public:
  explicit Peer(int descriptor) : descriptor_(descriptor) {}
  explicit Peer(const Endpoint& to) : descriptor_(::socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    connected_ = ::connect(descriptor_, to.address(), static_cast<socklen_t>(to.address_size())) == 0;
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer() { close(); }

  [[nodiscard]] bool connected() const { return connected_; }

  void send(std::string_view data) {
    while (!data.empty()) {
      const ssize_t sent = ::send(descriptor_, data.data(), data.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      data.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  void end() { ::shutdown(descriptor_, SHUT_WR); }

  /// `size` bytes, fewer when the other side ends.
  std::string receive(std::size_t size) {
    std::string data(size, '\0');
    const ssize_t got = ::recv(descriptor_, data.data(), size, MSG_WAITALL);
    data.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return data;
  }
  /// Everything until the end; `clean` says whether there was one.
  std::string receive_all(bool* clean = nullptr) {
    std::string all;
    char part[65536];
    ssize_t got;
    while ((got = ::recv(descriptor_, part, sizeof(part), 0)) > 0) {
      all.append(part, static_cast<std::size_t>(got));
    }
    if (clean != nullptr) *clean = got == 0;
    return all;
  }

  void reset() {
    const linger hard{1, 0};
    ::setsockopt(descriptor_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    close();
  }
  void close() {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  }

 private:
  int descriptor_;
  bool connected_ = true;
};

/// Words from any thread, in the order in which they came.
class Mailbox {
 public:
  void put(std::string word) {
    const std::lock_guard lock(mutex_);
    words_.push_back(std::move(word));
    changed_.notify_all();
  }
  /// Waits until `count` words are there.
  std::vector<std::string> wait(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return words_.size() >= count; });
    return words_;
  }
  std::vector<std::string> words() {
    const std::lock_guard lock(mutex_);
    return words_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> words_;
};

}  // namespace linkspan::test
