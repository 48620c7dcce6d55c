// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The commands: one function each, found by a table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "linkspan/codec/resp_command.hpp"
#include "linkspan/codec/resp_writer.hpp"

namespace linkspan::cache {

struct Cache;
class Session;

/// One command on its way: it answers with one reply.
struct Call {
  RespCommand& command;
  RespWriter& reply;
  Cache& cache;
  Session& session;

  [[nodiscard]] std::size_t size() const noexcept { return command.size(); }
  [[nodiscard]] std::string_view operator[](std::size_t index) const { return command.text(index); }

  void ok() const { reply.simple_string("OK"); }
  void syntax_error() const { reply.error("ERR syntax error"); }
  void not_an_integer() const { reply.error("ERR value is not an integer or out of range"); }
};

enum CommandFlag : std::uint8_t {
  kWrites = 1,
  kReads = 2,
  kNeedsMemory = 4,  // Redis: denyoom
  kFast = 8,
  kBeforeAuth = 16,
};

struct Command {
  std::string_view name;
  int arity;  // as Redis counts: the name included; negative: at least
  std::uint8_t flags;
  std::int8_t first_key;  // 0: none
  std::int8_t last_key;   // negative: from the end
  std::int8_t key_step;
  void (*run)(Call& call);

  [[nodiscard]] bool fits(std::size_t arguments) const noexcept {
    const auto count = static_cast<int>(arguments);
    return arity >= 0 ? count == arity : count >= -arity;
  }
};

/// nullptr: there is none.
[[nodiscard]] const Command* find_command(std::string_view name) noexcept;
[[nodiscard]] std::span<const Command> all_commands() noexcept;

/// Whether two names are the same, whatever their case; `name` is in lower case.
[[nodiscard]] bool is(std::string_view text, std::string_view name) noexcept;

void wrong_number_of_arguments(const Call& call, std::string_view command);
void unknown_command(Call& call);
void unknown_subcommand(const Call& call, std::string_view command);

// strings.cpp
void get(Call& call);
void set(Call& call);
void setnx(Call& call);
void mget(Call& call);
void mset(Call& call);
void getdel(Call& call);
void getex(Call& call);
void incr(Call& call);
void decr(Call& call);
void incrby(Call& call);
void decrby(Call& call);
void append(Call& call);
void strlen(Call& call);
void getrange(Call& call);

// keys.cpp
void del(Call& call);
void exists(Call& call);
void expire(Call& call);
void pexpire(Call& call);
void ttl(Call& call);
void pttl(Call& call);
void persist(Call& call);
void type(Call& call);
void scan(Call& call);
void keys(Call& call);
void dbsize(Call& call);
void flush(Call& call);

// connection.cpp
void ping(Call& call);
void echo(Call& call);
void hello(Call& call);
void auth(Call& call);
void select(Call& call);
void client(Call& call);
void quit(Call& call);

// server.cpp
void info(Call& call);
void command(Call& call);
void config(Call& call);
void time(Call& call);

}  // namespace linkspan::cache
