// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// own-format PORT: a format that is not protobuf. A message is a header of 16 bytes and a payload; the server
// remembers one payload a key and gives it back, without copying it. On 127.0.0.1, until a signal ends it.
//
//     frame   4 bytes  length of the rest, big endian (LengthPrefixCodec)
//     message 8 bytes  key, big endian
//             1 byte   what: 'p' put, 'g' get; 'v' value, 'n' nothing there
//             7 bytes  zero
//             the rest: payload
#include <array>
#include <cstdio>
#include <linkspan/buffer/cursor.hpp>
#include <linkspan/channel/server.hpp>
#include <linkspan/codec/length_prefix_codec.hpp>
#include <linkspan/marshal/marshaller.hpp>
#include <linkspan/transport/transport.hpp>
#include <map>

using namespace linkspan;

struct Message {
  std::uint64_t key = 0;
  char what = 0;
  Chain payload{};

  [[nodiscard]] std::size_t size_bytes() const { return 16 + payload.size(); }
};

struct OwnFormat {
  using Message = ::Message;
  static constexpr std::size_t kHeaderBytes = 16;

  [[nodiscard]] std::string_view name() const { return "message"; }
  [[nodiscard]] std::size_t size_hint(const Message& message) const { return message.size_bytes(); }

  [[nodiscard]] Status write(Message&& message, ChainWriter& writer) const {
    writer.write_big_endian(message.key);
    writer.write_big_endian(static_cast<std::uint64_t>(message.what) << 56);
    writer.append(std::move(message.payload));
    if (writer.error()) return Error(writer.error(), "memory is out");
    return std::monostate();
  }

  [[nodiscard]] Result<Message> read(Chain&& bytes) const {
    if (bytes.size() < kHeaderBytes) return Error(errc::truncated, "shorter than its header of 16 bytes");
    Cursor cursor(bytes);
    Message message;
    message.key = *cursor.read_big_endian<std::uint64_t>();
    message.what = static_cast<char>(*cursor.read_big_endian<std::uint64_t>() >> 56);
    bytes.drop_front(kHeaderBytes);
    message.payload = std::move(bytes);
    return message;
  }
};
static_assert(Marshaller<OwnFormat>);

class Memory final : public Service<Message> {
 public:
  void on_read(Message&& message) override {
    if (message.what == 'p' && (values_.size() < kMostValues || values_.contains(message.key))) {
      message.payload.compact();  // a few bytes shall not keep a large block alive
      values_[message.key] = std::move(message.payload);
    } else if (message.what == 'g') {
      const auto found = values_.find(message.key);
      const bool is_there = found != values_.end();
      write({message.key, is_there ? 'v' : 'n', is_there ? found->second.share() : Chain()});
    } else {
      pass_error(make_error_code(errc::malformed), "neither a put that has room nor a get");
    }
  }

 private:
  static constexpr std::size_t kMostValues = 1000;
  std::map<std::uint64_t, Chain> values_;
};

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: own-format PORT\n");
    return 2;
  }
  ServerOptions options;
  options.endpoint = Endpoint::parse(std::string("127.0.0.1:") + argv[1]).value_or_throw();
  options.initializer = [](Channel& channel) {
    LengthPrefixOptions frames;
    frames.max_frame_bytes = std::size_t{1} << 20;
    return channel.pipeline().append(std::make_unique<LengthPrefixCodec>(frames),
                                     std::make_unique<MarshalCodec<OwnFormat>>(OwnFormat()),
                                     std::make_unique<Memory>());
  };
  const auto loop = EventLoop::create(transport_engine().value_or_throw()).value_or_throw();
  const Server server = Server::start(*loop, options).value_or_throw();
  std::printf("listening on %s\n", server.local_endpoint().to_string().c_str());
  std::fflush(stdout);
  loop->run();
} catch (const Exception& error) {
  std::fprintf(stderr, "own-format: %s\n", error.what());
  return 1;
}
