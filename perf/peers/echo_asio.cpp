// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// An echo server on Asio, as its own examples have it: a session that owns itself, async_read_some into the
// session's buffer, async_write of what came. One thread, and the context knows it.
#include <asio.hpp>
#include <cstddef>
#include <memory>
#include <system_error>
#include <utility>

#include "perf/support/server.h"

using asio::ip::tcp;

class Session : public std::enable_shared_from_this<Session> {
 public:
  explicit Session(tcp::socket socket) : socket_(std::move(socket)) {}

  void read() {
    socket_.async_read_some(asio::buffer(data_),
                            [self = shared_from_this()](std::error_code error, std::size_t bytes) {
                              if (!error) self->write(bytes);
                            });
  }

 private:
  void write(std::size_t bytes) {
    asio::async_write(socket_, asio::buffer(data_, bytes),
                      [self = shared_from_this()](std::error_code error, std::size_t) {
                        if (!error) self->read();
                      });
  }

  tcp::socket socket_;
  char data_[64 * 1024];
};

static void accept(tcp::acceptor& acceptor) {
  acceptor.async_accept([&acceptor](std::error_code error, tcp::socket socket) {
    if (!error) std::make_shared<Session>(std::move(socket))->read();
    accept(acceptor);
  });
}

int main(int argc, char** argv) {
  const char* endpoint = server_endpoint(argc, argv);
  server_end_with_parent();
  server_allow_descriptors();
  const int listener = server_listen(endpoint, 0);
  asio::io_context context(1);
  tcp::acceptor acceptor(context, tcp::v4(), listener);
  accept(acceptor);
  server_ready(listener);
  context.run();
}
