// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What linkspan-cached is told on its command line or in its file of settings; names as Redis has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace linkspan::cache {

struct Settings {
  std::string bind = "127.0.0.1";
  std::uint16_t port = 6379;  // 0: a free one
  std::string unixsocket;     // empty: none
  std::uint16_t metrics_port = 0;
  bool metrics = false;
  std::string transport = "auto";
  std::size_t loops = 1;
  std::string requirepass;  // empty: everybody may
  std::size_t maxclients = 10'000;
  std::size_t maxmemory = std::size_t{1} << 30;  // of all keys and values, and what keeps them
  std::string maxmemory_policy = "noeviction";
  std::size_t proto_max_bulk_len = std::size_t{512} << 20;
  std::size_t client_query_buffer_limit = std::size_t{1} << 30;
  unsigned timeout = 0;  // seconds without a command; 0: none
  unsigned drain_seconds = 10;
};

}  // namespace linkspan::cache
