// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The commands about keys, whatever their values are.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "cache.hpp"
#include "command.hpp"
#include "expire_options.hpp"
#include "glob.hpp"
#include "numbers.hpp"
#include "time.hpp"

namespace linkspan::cache {
namespace {

constexpr std::size_t kKeysAtOnce = 1024;  // of a shard, under its lock

struct ExpireConditions {
  bool only_without = false;  // NX
  bool only_with = false;     // XX
  bool only_later = false;    // GT
  bool only_sooner = false;   // LT

  /// Keys without a time to live live for ever.
  [[nodiscard]] bool hold(const std::optional<TimePoint>& old, TimePoint time) const {
    if (only_without && old) return false;
    if (only_with && !old) return false;
    if (only_later && (!old || time <= *old)) return false;
    return !only_sooner || !old || time < *old;
  }
};

std::optional<ExpireConditions> parse_conditions(const Call& call) {
  ExpireConditions conditions;
  for (std::size_t i = 3; i != call.size(); ++i) {
    if (is(call[i], "nx")) {
      conditions.only_without = true;
    } else if (is(call[i], "xx")) {
      conditions.only_with = true;
    } else if (is(call[i], "gt")) {
      conditions.only_later = true;
    } else if (is(call[i], "lt")) {
      conditions.only_sooner = true;
    } else {
      call.reply.error("ERR Unsupported option " + std::string(call[i]));
      return std::nullopt;
    }
  }
  if (conditions.only_without && (conditions.only_with || conditions.only_later || conditions.only_sooner)) {
    call.reply.error("ERR NX and XX, GT or LT options at the same time are not compatible");
    return std::nullopt;
  }
  if (conditions.only_later && conditions.only_sooner) {
    call.reply.error("ERR GT and LT options at the same time are not compatible");
    return std::nullopt;
  }
  return conditions;
}

void expire_in(Call& call, TimeUnit unit) {
  const auto conditions = parse_conditions(call);
  if (!conditions) return;
  const auto unix_ms = parse_expiry(call, call[2], unit, true);
  if (!unix_ms) return;
  const TimePoint time = time_of(*unix_ms);
  const bool over = has_passed(*unix_ms);
  bool done = false;
  const std::error_code error = call.cache.map->update(call[1], [&](const EntryView* entry) {
    done = entry != nullptr && conditions->hold(entry->expires_at(), time);
    if (!done) return Change::keep();
    return over ? Change::erase() : Change::expire(Expiry::at(time));
  });
  call.reply.integer(!error && done ? 1 : 0);
}

void time_left(Call& call, TimeUnit unit) {
  std::int64_t left = -2;
  call.cache.map->peek(call[1], [&](const EntryView& entry) {
    if (const auto expires_at = entry.expires_at()) {
      left = std::max<std::int64_t>(milliseconds_left(*expires_at), 0);
      if (unit == TimeUnit::seconds) left = (left + 500) / 1000;
    } else {
      left = -1;
    }
  });
  call.reply.integer(left);
}

void reply_keys(const Call& call, const std::vector<std::string>& keys) {
  call.reply.array(keys.size());
  for (const std::string& key : keys) call.reply.bulk(key);
}

}  // namespace

void del(Call& call) {
  std::int64_t erased = 0;
  for (std::size_t i = 1; i != call.size(); ++i) erased += call.cache.map->erase(call[i]) ? 1 : 0;
  call.reply.integer(erased);
}

void exists(Call& call) {
  std::int64_t found = 0;
  for (std::size_t i = 1; i != call.size(); ++i) found += call.cache.map->contains(call[i]) ? 1 : 0;
  call.reply.integer(found);
}

void expire(Call& call) {
  expire_in(call, TimeUnit::seconds);
}

void pexpire(Call& call) {
  expire_in(call, TimeUnit::milliseconds);
}

void ttl(Call& call) {
  time_left(call, TimeUnit::seconds);
}

void pttl(Call& call) {
  time_left(call, TimeUnit::milliseconds);
}

void persist(Call& call) {
  call.reply.integer(call.cache.map->persist(call[1]) ? 1 : 0);
}

void type(Call& call) {
  call.reply.simple_string(call.cache.map->contains(call[1]) ? "string" : "none");
}

void scan(Call& call) {
  const auto cursor = parse_number<std::uint64_t>(call[1]);
  if (!cursor) return call.reply.error("ERR invalid cursor");
  std::size_t count = 10;
  std::string_view pattern = "*";
  bool strings = true;  // those of another type are none
  for (std::size_t i = 2; i < call.size(); i += 2) {
    if (i + 1 == call.size()) return call.syntax_error();
    if (is(call[i], "count")) {
      const auto number = parse_number<std::int64_t>(call[i + 1]);
      if (!number) return call.not_an_integer();
      if (*number < 1) return call.syntax_error();
      count = std::min<std::size_t>(static_cast<std::size_t>(*number), kKeysAtOnce);
    } else if (is(call[i], "match")) {
      pattern = call[i + 1];
    } else if (is(call[i], "type")) {
      strings = is(call[i + 1], "string");
    } else {
      return call.syntax_error();
    }
  }
  std::vector<std::string> found;
  const std::uint64_t next =
      call.cache.map->scan(*cursor, count, [&](std::string_view key, const EntryView&) {
        if (strings && glob_matches(pattern, key)) found.emplace_back(key);
      });
  call.reply.array(2);
  call.reply.bulk(std::to_string(next));
  reply_keys(call, found);
}

// Walks over all keys before it answers, as Redis does.
void keys(Call& call) {
  const std::string_view pattern = call[1];
  std::vector<std::string> found;
  std::uint64_t cursor = 0;
  do {
    cursor = call.cache.map->scan(cursor, kKeysAtOnce, [&](std::string_view key, const EntryView&) {
      if (glob_matches(pattern, key)) found.emplace_back(key);
    });
  } while (cursor != 0);
  reply_keys(call, found);
}

void dbsize(Call& call) {
  call.reply.integer(static_cast<std::int64_t>(call.cache.map->statistics().entries));
}

void flush(Call& call) {
  if (call.size() > 2 || (call.size() == 2 && !is(call[1], "sync") && !is(call[1], "async"))) {
    return call.syntax_error();
  }
  call.cache.map->clear();
  call.ok();
}

}  // namespace linkspan::cache
