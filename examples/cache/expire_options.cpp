// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "expire_options.hpp"

#include <limits>
#include <string>

#include "numbers.hpp"
#include "time.hpp"

namespace linkspan::cache {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

std::optional<std::int64_t> refuse(const Call& call) {
  const Command* const command = find_command(call[0]);
  call.reply.error("ERR invalid expire time in '" + std::string(command->name) + "' command");
  return std::nullopt;
}

struct TimeOption {
  std::string_view name;
  TimeUnit unit;
  bool relative;
};
constexpr TimeOption kTimeOptions[] = {{"ex", TimeUnit::seconds, true},
                                       {"px", TimeUnit::milliseconds, true},
                                       {"exat", TimeUnit::seconds, false},
                                       {"pxat", TimeUnit::milliseconds, false}};

}  // namespace

std::optional<std::int64_t> parse_expiry(const Call& call, std::string_view text, TimeUnit unit,
                                         bool relative) {
  const auto number = parse_number<std::int64_t>(text);
  if (!number) {
    call.not_an_integer();
    return std::nullopt;
  }
  std::int64_t time = *number;
  if (unit == TimeUnit::seconds) {
    if (time > kMost / 1000 || time < -(kMost / 1000)) return refuse(call);
    time *= 1000;
  }
  if (!relative) return time;
  const std::int64_t now = unix_time_ms();
  if (time > kMost - now) return refuse(call);
  return time + now;
}

Expiry ExpireOptions::expiry() const {
  if (keep) return Expiry::keep();
  return unix_ms ? Expiry::at(time_of(*unix_ms)) : Expiry::never();
}

std::optional<ExpireOptions> parse_expire_options(const Call& call, std::size_t begin, ExpireSyntax syntax) {
  const bool for_set = syntax == ExpireSyntax::set;
  ExpireOptions options;
  const TimeOption* time = nullptr;
  std::string_view time_text;
  for (std::size_t i = begin; i < call.size(); ++i) {
    const std::string_view option = call[i];
    if (for_set && is(option, "nx") && !options.only_present) {
      options.only_absent = true;
    } else if (for_set && is(option, "xx") && !options.only_absent) {
      options.only_present = true;
    } else if (for_set && is(option, "get")) {
      options.get = true;
    } else if (for_set && is(option, "keepttl") && time == nullptr) {
      options.keep = true;
    } else if (!for_set && is(option, "persist") && time == nullptr) {
      options.persist = true;
    } else {
      const TimeOption* found = nullptr;
      for (const TimeOption& each : kTimeOptions) {
        if (is(option, each.name)) found = &each;
      }
      // The same one may come again, and counts.
      const bool other = options.keep || options.persist || (time != nullptr && time != found);
      if (found == nullptr || other || i + 1 == call.size()) {
        call.syntax_error();
        return std::nullopt;
      }
      time = found;
      time_text = call[++i];
    }
  }
  if (time != nullptr) options.time = {time_text, time->unit, time->relative};
  return options;
}

bool set_time(const Call& call, ExpireOptions& options) {
  if (!options.time) return true;
  const auto number = parse_number<std::int64_t>(options.time->text);
  if (number && *number <= 0) return refuse(call).has_value();
  options.unix_ms = parse_expiry(call, options.time->text, options.time->unit, options.time->relative);
  return options.unix_ms.has_value();
}

}  // namespace linkspan::cache
