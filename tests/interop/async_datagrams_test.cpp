// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Coroutines and completion tokens on datagram channels.
#include <version>  // the first: what Asio finds in the standard library depends on it

#include <doctest/doctest.h>

#include <asio.hpp>
#include <cerrno>
#include <memory>
#include <string>

#include "linkspan/interop/asio.hpp"
#include "tests/channel/packets.hpp"
#include "tests/interop/loops.hpp"

using namespace linkspan;
using namespace linkspan::test;
using asio::use_awaitable;

namespace {

using Notes = AsyncChannel<Note>;

DatagramChannelOptions bound_to(std::string_view address) {
  DatagramChannelOptions options;
  options.local = Endpoint::parse(address).value_or_throw();
  options.initializer = [](Channel& channel) { return channel.pipeline().append<NoteCodec>(); };
  return options;
}

asio::awaitable<void> echo(AsyncChannel<Packet> channel) {
  for (;;) {
    Packet packet = co_await async_read(channel, use_awaitable);
    co_await async_write(channel, std::move(packet), use_awaitable);
  }
}

asio::awaitable<void> ask(Notes& channel, Endpoint to, int count, int& answered) {
  for (int i = 0; i < count; ++i) {
    Note question{std::to_string(i), to};  // as a temporary, gcc 12 would destroy it twice
    co_await async_write(channel, std::move(question), use_awaitable);
    const Note answer = co_await async_read(channel, use_awaitable);
    if (answer.text == std::to_string(i) && answer.peer == to) ++answered;
  }
}

}  // namespace

TEST_CASE("coroutines take datagrams from a channel and answer them") {
  on_every_loop([](TestLoop& test) {
    DatagramChannelOptions options = bound_to("127.0.0.1:0");
    options.initializer = serve_with<Packet>(&echo);
    const BoundChannel server = open_datagram_channel(test.loop(), std::move(options)).value_or_throw();
    Notes client = open_async_datagrams<Note>(test.loop(), bound_to("127.0.0.1:0")).value_or_throw();
    int answered = 0;
    bool finished = false;
    asio::co_spawn(LoopExecutor(test.loop()), ask(client, server.local, 20, answered),
                   [&](std::exception_ptr failure) { finished = failure == nullptr; });
    CHECK(test.run_until([&] { return finished; }));
    CHECK(answered == 20);

    std::error_code late = make_error_code(errc::unhandled);
    async_write(client, Note{std::string(std::size_t{1} << 20, 'x'), server.local},
                [&](std::error_code error) { late = error; });
    CHECK(test.run_until([&] { return late != errc::unhandled; }));
    CHECK(late.value() == EMSGSIZE);
    bool closed = false;
    async_close(client, [&](std::error_code error) { closed = !error; });
    CHECK(test.run_until([&] { return closed; }));
    server.channel.abort();
    test.settle();
  });
}

TEST_CASE(
    "a read on a connected datagram channel hears that nobody listens there, and the next one goes on") {
  on_every_loop([](TestLoop& test) {
    DatagramChannelOptions options = bound_to("127.0.0.1:0");
    BoundChannel peer = open_datagram_channel(test.loop(), options).value_or_throw();
    options.datagram.peer = peer.local;
    Notes client = open_async_datagrams<Note>(test.loop(), options).value_or_throw();
    peer.channel.abort();
    REQUIRE(test.run_until([&] { return !peer.channel.alive(); }));
    std::error_code result;
    async_read(client, [&](std::error_code error, Note) { result = error; });
    client.write(Note{"anybody?", {}});
    CHECK(test.run_until([&] { return result == std::errc::connection_refused; }));

    options = bound_to(peer.local.to_string());
    options.initializer = serve_with<Packet>(&echo);
    peer = open_datagram_channel(test.loop(), options).value_or_throw();
    std::string answer;
    async_read(client, [&](std::error_code error, Note note) {
      result = error;
      answer = note.text;
    });
    client.write(Note{"now?", {}});
    CHECK(test.run_until([&] { return answer == "now?"; }));
    CHECK(!result);
    peer.channel.abort();
    client.abort();
    test.settle();
  });
}
