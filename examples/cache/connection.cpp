// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The commands about the connection that they come on.
#include <cstddef>
#include <string>
#include <string_view>

#include "cache.hpp"
#include "command.hpp"
#include "numbers.hpp"
#include "session.hpp"

namespace linkspan::cache {
namespace {

constexpr std::string_view kWrongPassword = "WRONGPASS invalid username-password pair or user is disabled.";
constexpr std::string_view kBadName =
    "ERR Client names cannot contain spaces, newlines or special characters.";

}  // namespace

void ping(Call& call) {
  if (call.size() > 2) return wrong_number_of_arguments(call, "ping");
  if (call.size() == 1) return call.reply.simple_string("PONG");
  echo(call);
}

void echo(Call& call) {
  call.reply.bulk(call.command.chain(1));
}

void auth(Call& call) {
  if (call.size() > 3) return call.syntax_error();
  if (call.size() == 2 && call.cache.settings.requirepass.empty()) {
    return call.reply.error(
        "ERR AUTH <password> called without any password configured for the default user. Are you sure your "
        "configuration is correct?");
  }
  const bool with_user = call.size() == 3;
  if (!call.session.authenticate(with_user ? call[1] : "default", call[with_user ? 2 : 1])) {
    return call.reply.error(kWrongPassword);
  }
  call.ok();
}

void hello(Call& call) {
  RespVersion version = call.session.version();
  std::size_t next = 1;
  if (call.size() > 1) {
    const auto number = parse_number(call[1]);
    if (!number) return call.reply.error("ERR Protocol version is not an integer or out of range");
    if (*number != 2 && *number != 3) return call.reply.error("NOPROTO unsupported protocol version");
    version = static_cast<RespVersion>(*number);
    next = 2;
  }
  std::size_t name = 0;
  std::size_t user = 0;
  while (next < call.size()) {
    const std::size_t left = call.size() - next - 1;
    if (is(call[next], "auth") && left >= 2) {
      user = next + 1;
      next += 3;
    } else if (is(call[next], "setname") && left >= 1) {
      name = next + 1;
      next += 2;
    } else {
      return call.reply.error("ERR Syntax error in HELLO option '" + std::string(call[next]) + "'");
    }
  }
  if (user != 0 && !call.session.authenticate(call[user], call[user + 1])) {
    return call.reply.error(kWrongPassword);
  }
  if (!call.session.authenticated()) {
    return call.reply.error(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH "
        "<user> <pass> option can be used to authenticate the client and select the RESP protocol version at "
        "the same time");
  }
  if (name != 0 && !call.session.set_name(call[name])) return call.reply.error(kBadName);
  call.session.set_version(version);
  RespWriter& reply = call.reply;
  reply.set_version(version);
  const auto text = [&](std::string_view key, std::string_view value) {
    reply.bulk(key);
    reply.bulk(value);
  };
  reply.map(7);
  text("server", "redis");
  text("version", kRedisVersion);
  reply.bulk("proto");
  reply.integer(version == RespVersion::two ? 2 : 3);
  reply.bulk("id");
  reply.integer(call.session.id());
  text("mode", "standalone");
  text("role", "master");
  reply.bulk("modules");
  reply.array(0);
}

void select(Call& call) {
  const auto index = parse_number<int>(call[1]);
  if (!index) return call.not_an_integer();
  if (*index != 0) return call.reply.error("ERR DB index is out of range");
  call.ok();
}

void client(Call& call) {
  const std::string_view what = call[1];
  const auto arguments = [&](std::size_t count) {
    if (call.size() == count) return true;
    std::string name = "client|";
    for (const char c : what) name += static_cast<char>(c | 0x20);
    wrong_number_of_arguments(call, name);
    return false;
  };
  if (is(what, "id")) {
    if (arguments(2)) call.reply.integer(call.session.id());
  } else if (is(what, "getname")) {
    if (!arguments(2)) return;
    if (call.session.name().empty()) return call.reply.null();
    call.reply.bulk(call.session.name());
  } else if (is(what, "setname")) {
    if (!arguments(3)) return;
    if (!call.session.set_name(call[2])) return call.reply.error(kBadName);
    call.ok();
  } else {
    unknown_subcommand(call, "CLIENT");
  }
}

void quit(Call& call) {
  call.ok();
  call.session.close_after_reply();
}

}  // namespace linkspan::cache
