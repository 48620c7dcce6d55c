// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "command.hpp"

#include <algorithm>
#include <string>

namespace linkspan::cache {
namespace {

constexpr std::uint8_t kReadsFast = kReads | kFast;
constexpr std::uint8_t kWritesFast = kWrites | kFast;
constexpr std::uint8_t kStores = kWrites | kNeedsMemory;
constexpr std::uint8_t kStoresFast = kStores | kFast;
constexpr std::uint8_t kAlways = kFast | kBeforeAuth;

constexpr auto kCommands = std::to_array<Command>({
    {"append", 3, kStoresFast, 1, 1, 1, &append},
    {"auth", -2, kAlways, 0, 0, 0, &auth},
    {"client", -2, 0, 0, 0, 0, &client},
    {"command", -1, 0, 0, 0, 0, &command},
    {"config", -2, 0, 0, 0, 0, &config},
    {"dbsize", 1, kReadsFast, 0, 0, 0, &dbsize},
    {"decr", 2, kStoresFast, 1, 1, 1, &decr},
    {"decrby", 3, kStoresFast, 1, 1, 1, &decrby},
    {"del", -2, kWrites, 1, -1, 1, &del},
    {"echo", 2, kFast, 0, 0, 0, &echo},
    {"exists", -2, kReadsFast, 1, -1, 1, &exists},
    {"expire", -3, kWritesFast, 1, 1, 1, &expire},
    {"flushall", -1, kWrites, 0, 0, 0, &flush},
    {"flushdb", -1, kWrites, 0, 0, 0, &flush},
    {"get", 2, kReadsFast, 1, 1, 1, &get},
    {"getdel", 2, kWritesFast, 1, 1, 1, &getdel},
    {"getex", -2, kWritesFast, 1, 1, 1, &getex},
    {"getrange", 4, kReads, 1, 1, 1, &getrange},
    {"hello", -1, kAlways, 0, 0, 0, &hello},
    {"incr", 2, kStoresFast, 1, 1, 1, &incr},
    {"incrby", 3, kStoresFast, 1, 1, 1, &incrby},
    {"info", -1, 0, 0, 0, 0, &info},
    {"keys", 2, kReads, 0, 0, 0, &keys},
    {"mget", -2, kReadsFast, 1, -1, 1, &mget},
    {"mset", -3, kStores, 1, -1, 2, &mset},
    {"persist", 2, kWritesFast, 1, 1, 1, &persist},
    {"pexpire", -3, kWritesFast, 1, 1, 1, &pexpire},
    {"ping", -1, kFast, 0, 0, 0, &ping},
    {"pttl", 2, kReadsFast, 1, 1, 1, &pttl},
    {"quit", -1, kAlways, 0, 0, 0, &quit},
    {"scan", -2, kReads, 0, 0, 0, &scan},
    {"select", 2, kFast, 0, 0, 0, &select},
    {"set", -3, kStores, 1, 1, 1, &set},
    {"setnx", 3, kStoresFast, 1, 1, 1, &setnx},
    {"strlen", 2, kReadsFast, 1, 1, 1, &strlen},
    {"time", 1, kFast, 0, 0, 0, &time},
    {"ttl", 2, kReadsFast, 1, 1, 1, &ttl},
    {"type", 2, kReadsFast, 1, 1, 1, &type},
    {"unlink", -2, kWritesFast, 1, -1, 1, &del},
});

// --- the table: a perfect hash of the names' eight bytes, which the compiler finds -------------------------

constexpr std::size_t kNameMostBytes = 8;
constexpr unsigned kTableBits = 8;
constexpr std::uint8_t kNoCommand = 0xff;

/// The bytes of a name, their case folded; different for all names that consist of letters.
constexpr std::uint64_t packed(std::string_view name) noexcept {
  std::uint64_t bytes = 0;
  for (const char c : name) bytes = bytes << 8 | (static_cast<unsigned char>(c) | 0x20U);
  return bytes;
}

constexpr std::size_t slot(std::uint64_t bytes, std::uint64_t factor) noexcept {
  return static_cast<std::size_t>((bytes * factor) >> (64 - kTableBits));
}

struct Table {
  std::uint64_t factor = 0;
  std::array<std::uint8_t, std::size_t{1} << kTableBits> commands{};
};

constexpr bool fill(Table& table) {
  table.commands.fill(kNoCommand);
  for (std::size_t i = 0; i != kCommands.size(); ++i) {
    std::uint8_t& place = table.commands[slot(packed(kCommands[i].name), table.factor)];
    if (place != kNoCommand) return false;
    place = static_cast<std::uint8_t>(i);
  }
  return true;
}

constexpr Table make_table() {
  Table table;
  table.factor = 0x9E3779B97F4A7C15;
  while (!fill(table)) table.factor = table.factor * 6364136223846793005 + 1442695040888963407;
  return table;
}

constexpr Table kTable = make_table();

static_assert(std::ranges::all_of(kCommands,
                                  [](const Command& each) { return each.name.size() <= kNameMostBytes; }));

/// What Redis shows of the arguments of a command that it does not know.
constexpr std::size_t kShownMostBytes = 128;

}  // namespace

bool is(std::string_view text, std::string_view name) noexcept {
  return text.size() == name.size() && std::ranges::equal(text, name, [](char c, char lower) {
           return (c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c) == lower;
         });
}

const Command* find_command(std::string_view name) noexcept {
  if (name.size() > kNameMostBytes) return nullptr;
  const std::uint8_t index = kTable.commands[slot(packed(name), kTable.factor)];
  if (index == kNoCommand || !is(name, kCommands[index].name)) return nullptr;
  return &kCommands[index];
}

std::span<const Command> all_commands() noexcept {
  return kCommands;
}

void wrong_number_of_arguments(const Call& call, std::string_view command) {
  call.reply.error("ERR wrong number of arguments for '" + std::string(command) + "' command");
}

void unknown_command(Call& call) {
  std::string arguments;
  for (std::size_t i = 1; i != call.size() && arguments.size() < kShownMostBytes; ++i) {
    const std::size_t most = kShownMostBytes - arguments.size();
    arguments += "'" + std::string(call[i].substr(0, most)) + "' ";
  }
  call.reply.error("ERR unknown command '" + std::string(call[0].substr(0, kShownMostBytes)) +
                   "', with args beginning with: " + arguments);
}

void unknown_subcommand(const Call& call, std::string_view command) {
  call.reply.error("ERR unknown subcommand '" + std::string(call[1].substr(0, kShownMostBytes)) + "'. Try " +
                   std::string(command) + " HELP.");
}

}  // namespace linkspan::cache
