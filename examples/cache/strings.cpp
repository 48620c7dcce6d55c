// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The commands that read and write values.
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "cache.hpp"
#include "command.hpp"
#include "expire_options.hpp"
#include "numbers.hpp"
#include "time.hpp"

namespace linkspan::cache {
namespace {

void reply_value(RespWriter& reply, const EntryView& entry) {
  if (entry.large()) {
    reply.bulk(entry.pin());
  } else {
    reply.bulk(entry.small());
  }
}

/// The value of a key, or null.
void reply_value_of(Call& call, std::string_view key) {
  if (!call.cache.map->read(key, [&](const EntryView& entry) { reply_value(call.reply, entry); })) {
    call.reply.null();
  }
}

void reply_refused(const Call& call, std::error_code error) {
  if (error == store_errc::no_room || error == store_errc::out_of_memory) {
    call.reply.error("OOM command not allowed when used memory > 'maxmemory'.");
  } else if (error == store_errc::value_too_long) {
    call.reply.error("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
  } else {
    call.reply.error("ERR " + error.message());
  }
}

std::error_code put(Call& call, std::size_t key, std::size_t value, const PutOptions& options) {
  OffHeapMap& map = *call.cache.map;
  const std::string_view name = call[key];
  if (call.command.argument_bytes(value) < map.options().large_value_bytes) {
    return map.put(name, call[value], options);
  }
  return map.put(name, call.command.chain(value), options);
}

/// A value that was there before a change; a small one is copied.
struct OldValue {
  bool there = false;
  std::string small;
  Chain large;

  void take(const EntryView* entry) {
    there = entry != nullptr;
    small.clear();
    large.clear();
    if (entry == nullptr) return;
    if (entry->large()) {
      large = entry->pin();
    } else {
      small = entry->small();
    }
  }
  void reply_to(const Call& call) {
    if (!there) return call.reply.null();
    if (large.empty()) return call.reply.bulk(small);
    call.reply.bulk(std::move(large));
  }
};

/// SET with GET.
void exchange(Call& call, const ExpireOptions& options) {
  OldValue old;
  Chain value = call.command.chain(2);
  const std::error_code error = call.cache.map->update(call[1], [&](const EntryView* entry) {
    old.take(entry);
    if (entry == nullptr ? options.only_present : options.only_absent) return Change::keep();
    return Change::put(value, options.expiry());
  });
  if (error) return reply_refused(call, error);
  old.reply_to(call);
}

void add(Call& call, std::int64_t amount) {
  constexpr std::size_t kNumberMostBytes = 20;
  char digits[kNumberMostBytes];
  std::optional<std::int64_t> result;
  bool overflows = false;
  const std::error_code error = call.cache.map->update(call[1], [&](const EntryView* entry) {
    result.reset();
    std::optional<std::int64_t> old = 0;
    if (entry != nullptr) old = entry->large() ? std::nullopt : parse_number<std::int64_t>(entry->small());
    std::int64_t sum = 0;
    overflows = old && __builtin_add_overflow(*old, amount, &sum);
    if (!old || overflows) return Change::keep();
    result = sum;
    char* const end = std::to_chars(digits, digits + kNumberMostBytes, sum).ptr;
    return Change::put(std::string_view(digits, static_cast<std::size_t>(end - digits)));
  });
  if (error) return reply_refused(call, error);
  if (overflows) return call.reply.error("ERR increment or decrement would overflow");
  if (!result) return call.not_an_integer();
  call.reply.integer(*result);
}

}  // namespace

void get(Call& call) {
  reply_value_of(call, call[1]);
}

void set(Call& call) {
  ExpireOptions options;
  if (call.size() > 3) {
    auto parsed = parse_expire_options(call, 3, ExpireSyntax::set);
    if (!parsed || !set_time(call, *parsed)) return;
    options = *parsed;
    if (options.get) return exchange(call, options);
  }
  using Condition = PutOptions::Condition;
  const Condition condition = options.only_absent    ? Condition::only_absent
                              : options.only_present ? Condition::only_present
                                                     : Condition::always;
  const std::error_code error = put(call, 1, 2, {condition, options.expiry()});
  if (!error) return call.ok();
  if (error == store_errc::exists || error == store_errc::absent) return call.reply.null();
  reply_refused(call, error);
}

void setnx(Call& call) {
  const std::error_code error = put(call, 1, 2, {PutOptions::Condition::only_absent, Expiry::never()});
  if (error && error != store_errc::exists) return reply_refused(call, error);
  call.reply.integer(error ? 0 : 1);
}

void mget(Call& call) {
  call.reply.array(call.size() - 1);
  for (std::size_t i = 1; i != call.size(); ++i) reply_value_of(call, call[i]);
}

// One key after the other: others may see some of them before the rest.
void mset(Call& call) {
  if (call.size() % 2 == 0) return wrong_number_of_arguments(call, "mset");
  for (std::size_t i = 1; i != call.size(); i += 2) {
    if (const std::error_code error = put(call, i, i + 1, {})) return reply_refused(call, error);
  }
  call.ok();
}

void getdel(Call& call) {
  OldValue old;
  const std::error_code error = call.cache.map->update(call[1], [&](const EntryView* entry) {
    old.take(entry);
    return entry == nullptr ? Change::keep() : Change::erase();
  });
  if (error) return reply_refused(call, error);
  old.reply_to(call);
}

void getex(Call& call) {
  auto options = parse_expire_options(call, 2, ExpireSyntax::getex);
  if (!options) return;
  if (!options->persist && !options->time) return reply_value_of(call, call[1]);
  // As with Redis, nobody looks at the time when there is no key.
  if (!call.cache.map->contains(call[1])) return call.reply.null();
  if (!set_time(call, *options)) return;
  OldValue old;
  const std::error_code error = call.cache.map->update(call[1], [&](const EntryView* entry) {
    old.take(entry);
    if (entry == nullptr) return Change::keep();
    const bool over = options->unix_ms && has_passed(*options->unix_ms);
    return over ? Change::erase() : Change::expire(options->expiry());
  });
  if (error) return reply_refused(call, error);
  old.reply_to(call);
}

void incr(Call& call) {
  add(call, 1);
}

void decr(Call& call) {
  add(call, -1);
}

void incrby(Call& call) {
  const auto amount = parse_number<std::int64_t>(call[2]);
  if (!amount) return call.not_an_integer();
  add(call, *amount);
}

void decrby(Call& call) {
  const auto amount = parse_number<std::int64_t>(call[2]);
  if (!amount) return call.not_an_integer();
  if (*amount == std::numeric_limits<std::int64_t>::min()) {
    return call.reply.error("ERR decrement would overflow");
  }
  add(call, -*amount);
}

void append(Call& call) {
  std::size_t size = 0;
  const std::size_t size_most = call.cache.settings.proto_max_bulk_len;
  bool too_long = false;
  Chain value;
  const std::error_code error = call.cache.map->update(call[1], [&](const EntryView* entry) {
    value = entry == nullptr ? Chain() : entry->bytes();
    value.append(call.command.chain(2));
    size = value.size();
    too_long = size > size_most;
    return too_long ? Change::keep() : Change::put(value);
  });
  if (error) return reply_refused(call, error);
  if (too_long) return reply_refused(call, store_errc::value_too_long);
  call.reply.integer(static_cast<std::int64_t>(size));
}

void strlen(Call& call) {
  std::size_t size = 0;
  call.cache.map->read(call[1], [&](const EntryView& entry) { size = entry.size(); });
  call.reply.integer(static_cast<std::int64_t>(size));
}

void getrange(Call& call) {
  const auto first = parse_number<std::int64_t>(call[2]);
  const auto last = parse_number<std::int64_t>(call[3]);
  if (!first || !last) return call.not_an_integer();
  bool replied = false;
  call.cache.map->read(call[1], [&](const EntryView& entry) {
    const auto size = static_cast<std::int64_t>(entry.size());
    if (size == 0 || (*first < 0 && *last < 0 && *first > *last)) return;
    const std::int64_t begin = std::max<std::int64_t>(*first < 0 ? size + *first : *first, 0);
    const std::int64_t end = std::clamp<std::int64_t>(*last < 0 ? size + *last : *last, 0, size - 1) + 1;
    if (begin >= end) return;
    const auto offset = static_cast<std::size_t>(begin);
    const auto bytes = static_cast<std::size_t>(end - begin);
    if (entry.large()) {
      call.reply.bulk(entry.pin().share(offset, bytes));
    } else {
      call.reply.bulk(entry.small().substr(offset, bytes));
    }
    replied = true;
  });
  if (!replied) call.reply.bulk(std::string_view());
}

}  // namespace linkspan::cache
